"""Kernel laws: seconds from a kernel's shape, a device's datasheet figures and a few constants.

Every law takes seconds, bytes, FLOP, B/s and FLOP/s, broadcasts over the arrays in its shape like
NumPy, and returns a ``KernelTime`` of the same shape. The forms are this project's own, found on
public kernel tables (docs/explain/model.md); constants, their sources and how far off each law was
on shapes it was not fitted on are in the accelerators' profiles (docs/validation.md).
"""
