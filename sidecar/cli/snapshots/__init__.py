"""`snapshots rebuild`, `check` and `heal`."""
