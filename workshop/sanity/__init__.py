"""Prices a large grid through the product's own functions and counts what physics forbids."""
