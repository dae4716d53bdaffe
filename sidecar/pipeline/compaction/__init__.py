"""Compaction where the process that archives does it: before the upload, and of archives beside it."""
