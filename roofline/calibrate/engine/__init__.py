"""The numbers of an engine, fitted on served runs; validation leaves runs out and fits again."""
