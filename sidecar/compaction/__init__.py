"""Compaction by offset, timestamp or header: which records of a partition stay, and the bytes of what is left.

Pure: takes bytes, columns and plain values, asks no clock and opens no file. `rules` says what is wanted;
`scan`, `key_table` and `rewrite` do it natively in three stages that run in one process or in many.
"""
