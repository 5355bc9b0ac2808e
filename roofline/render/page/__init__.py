"""A report as one HTML file: the answer, its grid and charts, and sliders over priced steps.

The page holds step times that the tool has priced, and its script multiplies them by tokens per
step. The script has no other arithmetic, so there is one cost model.
"""
