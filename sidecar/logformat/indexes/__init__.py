"""Offset, time and transaction indexes: read, checked, rebuilt from the batches."""
