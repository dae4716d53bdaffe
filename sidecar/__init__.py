"""Moves every finished Kafka log segment to S3-compatible storage as a complete, verified bundle.

Imports point down: cli, daemon, pipeline, then storage, discovery, broker and http, then the pure packages.
"""

__version__ = "0.1.0"
