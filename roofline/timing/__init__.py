"""From kernels to seconds and bytes held. Nothing here knows what is accepted."""
