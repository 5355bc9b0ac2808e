"""Laws fitted to measured rows."""
