"""Compaction of an archive: what is read of it, what replaces it, in one commit, and how that is undone."""
