"""Engines by `--engine` and `spark.engine`."""
