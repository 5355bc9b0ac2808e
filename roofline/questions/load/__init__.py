"""Loads instead of batches: who runs together, for how long, and what is best over all of it."""
