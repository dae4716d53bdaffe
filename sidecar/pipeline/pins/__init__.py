"""Source files that are held open against retention, how long each may wait, and what is blocked."""
