"""Metrics of the HTTP port itself."""

from __future__ import annotations

from sidecar.metrics.declarations import Declarations


class HttpMetrics:
    """Thread-safe."""

    def __init__(self, declare: Declarations) -> None:
        self._turned_away = declare.counter(
            "http_turned_away_total",
            "Clients of the HTTP port that got no answer: `http.max_connections` were being served and as many as may waited, "
            "or they had sent no request when others came.",
        )

    def turned_away(self) -> None:
        """A client got no answer for want of room."""
        self._turned_away.inc()
