"""Compiled loops of compaction, record by record."""
