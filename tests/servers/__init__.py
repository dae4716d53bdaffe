"""Real servers for tests: Kafka brokers, S3 servers and proxies, started on loopback with free ports.

Each server is a context manager that owns its process by process id, keeps its files below the directory it is given,
and raises `ServerError` with the tail of its log when it does not come up.
"""

from __future__ import annotations

from tests.servers.process import ServerError

__all__ = ["ServerError"]
