"""Sweeps: every point of a grid as a row of a file, however many points there are."""
