"""Draft lengths by batch: the best table, and how each engine can be told."""
