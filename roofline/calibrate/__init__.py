"""Kernels and steps of the machine at hand: timed, and the laws fitted to them."""
