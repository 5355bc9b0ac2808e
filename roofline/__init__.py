"""Advice on draft lengths: which one to run, and what it buys."""

__version__ = "0.1.0"
