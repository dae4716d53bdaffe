"""The files of a Kafka partition directory, read and written byte for byte: record batches, indexes, checkpoints, names.

Pure apart from reading a named file: no settings, no clock. Everything read is checked; what does not fit raises CorruptFile.
"""
