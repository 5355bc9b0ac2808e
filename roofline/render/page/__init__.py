"""A report as one HTML file: the answer, its grid and charts, and sliders over priced steps.

The page carries step times that the tool has priced and multiplies them by tokens per step. It
knows no other arithmetic, so there is one cost model.
"""
