"""Stand-ins with faults that no real server produces on demand."""
