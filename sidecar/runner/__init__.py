"""The processes that archive: `run` and `backfill`, and how they are put together from the settings."""
