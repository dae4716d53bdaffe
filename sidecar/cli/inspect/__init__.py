"""`inspect`."""
