"""Measured kernels: reading them, and fitting the laws to them. Heavy imports stay in here."""
