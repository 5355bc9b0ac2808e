"""Kernels timed on the machine at hand, and the laws fitted to them."""
