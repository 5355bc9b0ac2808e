"""The best draft length from a few timings: what is believed, what to time next, when to stop."""
