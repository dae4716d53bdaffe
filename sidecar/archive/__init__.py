"""The archive as values: object keys, commits, the state that they add up to, coverage, bundles, lineages.

Pure: no store, no clock, no files. `docs/reference/archive-format.md` is the same knowledge for people who write another reader.
"""
