"""The processes that archive: `run` and `backfill`, round by round, and how they are put together from the settings."""
