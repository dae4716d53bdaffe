"""What each path answers. Pure: a path in, status, content type and bytes out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from sidecar import __version__
from sidecar.http.health import StatusSource
from sidecar.metrics import Metrics

STATUS_VERSION = 1
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer without its headers."""

    status: HTTPStatus
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of one process."""

    source: StatusSource
    metrics: Metrics
    heartbeat_timeout_s: float

    def answer(self, path: str, accept: str) -> Answer:
        """The answer to a GET of this path."""
        match path:
            case "/metrics":
                body, content_type = self.metrics.exposition(accept)
                return Answer(HTTPStatus.OK, content_type, body)
            case "/healthz":
                return self._health()
            case "/readyz":
                return self._readiness()
            case "/status":
                return Answer(HTTPStatus.OK, JSON, _json({"version": STATUS_VERSION, **self._status()}))
            case _:
                return plain(HTTPStatus.NOT_FOUND, "there are /metrics, /healthz, /readyz and /status")

    def _health(self) -> Answer:
        age_s = self.source.heartbeat_age_s()
        if age_s > self.heartbeat_timeout_s:
            limit = f"{self.heartbeat_timeout_s:g}"
            return plain(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the loop has not come round for {age_s:.0f} s, limit {limit} s"
            )
        return plain(HTTPStatus.OK, "ok")

    def _readiness(self) -> Answer:
        lacking = self.source.not_ready()
        if lacking:
            lines = [f"{condition}: {reason}" for condition, reason in sorted(lacking.items())]
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(lines))
        return plain(HTTPStatus.OK, "ok")

    def _status(self) -> dict[str, Any]:
        return {
            "program": f"tiered-sidecar {__version__}",
            "heartbeat_age_s": round(self.source.heartbeat_age_s(), 3),
            "not_ready": dict(self.source.not_ready()),
            **self.source.status(),
        }


def plain(status: HTTPStatus, text: str) -> Answer:
    """A line of text."""
    return Answer(status, TEXT, f"{text}\n".encode())


def _json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode() + b"\n"
