"""This machine: source files as they were listed, files pinned against retention, limits, and what outlives the process."""
