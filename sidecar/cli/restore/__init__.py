"""`restore`."""
