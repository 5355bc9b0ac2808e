"""Kernel laws: seconds from a kernel's shape, a device's datasheet figures and a few constants."""
