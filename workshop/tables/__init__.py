"""Public kernel tables: one module for each family of kernels reads them and fits its law."""
