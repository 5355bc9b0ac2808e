"""Measured steps against predicted ones: which term disagrees, and what would settle it."""
