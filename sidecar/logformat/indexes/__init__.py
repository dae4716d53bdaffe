"""Offset, time and transaction indexes: read, checked, written anew from the batches."""
