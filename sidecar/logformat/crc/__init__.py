"""CRC-32C in compiled kernels."""
