"""A whole request: its prompt, then its answer, alone or in a batch."""
