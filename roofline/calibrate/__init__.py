"""This machine's kernels and steps: measured, and the laws fitted to them."""
