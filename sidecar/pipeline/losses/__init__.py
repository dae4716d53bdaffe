"""What of a log is gone, or was deleted on purpose, and what a commit says of it."""
