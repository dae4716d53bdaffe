"""One port for who watches: a page for people, /metrics, /healthz, /readyz and /status. Read-only, bounded, behind a token or not.

What it tells comes from a `StatusSource` and a `Board`; it calls nothing else, least of all the object store.
"""

from sidecar.http.board import Board
from sidecar.http.figures import PartitionLook
from sidecar.http.health import Health, StatusSource
from sidecar.http.server import HttpServer

__all__ = ["Board", "Health", "HttpServer", "PartitionLook", "StatusSource"]
