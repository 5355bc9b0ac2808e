"""Scripts for maintainers; the wheel leaves them out."""
