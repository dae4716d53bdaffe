"""Archives every finished Kafka log segment to S3-compatible storage as a complete, verified bundle.

Imports point down; docs/explanation/architecture.md has the packages in their order.
"""

__version__ = "0.1.0"
