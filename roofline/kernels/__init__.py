"""A forward pass as a list of kernels: FLOPs, bytes and rows, before anyone says how fast."""
