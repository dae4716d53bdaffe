"""Compaction by offset, timestamp or header: which records of a partition stay, and the bytes of what is left.

Pure: takes bytes, columns and plain values, asks no clock and opens no file. `rules` and `reference` say what is right, slowly;
`scan`, `reduce` and `rewrite` do the same natively in three stages that run in one process or in many.
"""
