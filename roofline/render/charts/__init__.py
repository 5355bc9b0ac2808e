"""Charts. Matplotlib is imported by the functions that draw, and only then."""
