"""One port for machines that watch: /metrics, /healthz, /readyz and /status. Read-only, bounded, no authentication.

What it tells comes from a `StatusSource`; it calls nothing else, least of all the object store.
"""

from sidecar.http.health import Health, StatusSource
from sidecar.http.server import HttpServer

__all__ = ["Health", "HttpServer", "StatusSource"]
