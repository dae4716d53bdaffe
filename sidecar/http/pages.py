"""What each path answers. Pure: a request in, status, content type and bytes out."""

import base64
import binascii
import hmac
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any

from sidecar import __version__
from sidecar.clock import Clock
from sidecar.config.model import HttpSettings
from sidecar.errors import SettingsError
from sidecar.event_log import EVENTS
from sidecar.http.page.ranges import ranges_of
from sidecar.http.page.rendering import StatusPage
from sidecar.http.page.rows import state_of
from sidecar.metrics import Metrics
from sidecar.reporting.health_reporter import Health
from sidecar.reporting.status_model import PartitionFigures, StatusFigures, StatusModel, Upload

STATUS_VERSION = 1
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"
ASSETS = {"/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8"}
HEALTH_PATH = "/healthz"
NOTHING_POLICY = "default-src 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
TOKEN_BYTES_MIN = 16
TOKEN_BYTES_MAX = 4096
CHALLENGES = ('Basic realm="tiered-sidecar", charset="UTF-8"', 'Bearer realm="tiered-sidecar"')
"""Browsers ask for a password by the first they know; scrapers and scripts send the token as it is."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer. `content_policy`: what a browser may load for it. `headers`: besides those that every answer has."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    entity_tag: str = ""
    content_policy: str = NOTHING_POLICY


class Pages:
    """The pages of one process that these settings ask for."""

    def __init__(
        self,
        settings: HttpSettings,
        health: Health,
        metrics: Metrics,
        clock: Clock,
        model: StatusModel,
        *,
        requires_token: bool = True,
    ) -> None:
        """Raises as `Access`."""
        self.health, self.metrics, self.model = health, metrics, model
        self.heartbeat_timeout_s = settings.heartbeat_timeout_s
        self.page = StatusPage(model, health, clock, settings.heartbeat_timeout_s)
        self.access = Access(settings.token_file, requires_token=requires_token)

    def answer(self, path: str, query: str, header: Callable[[str, str], str]) -> Answer:
        """The answer to a GET. Without the token, if one is set, only `/healthz` is answered.

        `header`: gives what the client sent under a name, the second argument if it sent nothing.
        """
        if path != HEALTH_PATH and (refusal := self.access.refusal(header("Authorization", ""))) is not None:
            return refusal
        match path:
            case "/":
                tag, body = self.page.render(query)
                return _tagged(header("If-None-Match", ""), tag, HTML, body)
            case "/page.css" | "/page.js":
                tag, body = _tagged_asset(path)
                return _tagged(header("If-None-Match", ""), tag, ASSETS[path], body)
            case "/metrics":
                body, content_type = self.metrics.exposition(header("Accept", ""))
                return Answer(HTTPStatus.OK, content_type, body)
            case "/healthz":
                return self._health()
            case "/readyz":
                return self._readiness()
            case "/status":
                status = {"version": STATUS_VERSION, **self._status()}
                return Answer(HTTPStatus.OK, JSON, json.dumps(status, default=str).encode() + b"\n")
            case _:
                return plain(
                    HTTPStatus.NOT_FOUND, "not found; the paths are /, /metrics, /healthz, /readyz and /status"
                )

    def _health(self) -> Answer:
        age_s = self.health.heartbeat_age_s()
        if age_s > self.heartbeat_timeout_s:
            limit = f"{self.heartbeat_timeout_s:g}"
            return plain(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the loop has made no progress for {age_s:.0f} s, limit {limit} s"
            )
        return plain(HTTPStatus.OK, "ok")

    def _readiness(self) -> Answer:
        lacking = self.health.not_ready()
        if lacking:
            lines = [f"{condition}: {reason}" for condition, reason in sorted(lacking.items())]
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(lines))
        return plain(HTTPStatus.OK, "ok")

    def _status(self) -> dict[str, Any]:
        return {
            "program": f"tiered-sidecar {__version__}",
            "heartbeat_age_s": round(self.health.heartbeat_age_s(), 3),
            "not_ready": dict(self.health.not_ready()),
            **status_json(self.model),
            **self.health.status(),
        }


def plain(status: HTTPStatus, text: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    return Answer(status, TEXT, f"{text}\n".encode(), headers)


def _tagged(known_tags: str, tag: str, content_type: str, body: bytes) -> Answer:
    """The body, or that the client has it already: by its list of tags, weak ones too, or by `*`. Source: RFC 9110, 13.1.2."""
    is_known = any(known.strip().removeprefix("W/") in ("*", tag) for known in known_tags.split(","))
    status = HTTPStatus.NOT_MODIFIED if is_known else HTTPStatus.OK
    return Answer(status, content_type, b"" if is_known else body, entity_tag=tag, content_policy=PAGE_POLICY)


@cache
def _tagged_asset(path: str) -> tuple[str, bytes]:
    body = files("sidecar.http.page").joinpath(path.removeprefix("/")).read_bytes()
    return f'"{sha256(body).hexdigest()[:16]}"', body


def status_json(model: StatusModel) -> dict[str, Any]:
    """Partitions, uploads, errors and snapshots, as of now. Offsets `end_*` are exclusive."""
    figures: StatusFigures = model.figures()
    return {
        "archive": figures.archive,
        "instance": figures.instance,
        "began_ms": figures.began_ms,
        "partitions": [_partition(found) for found in figures.partitions],
        "uploads": [_upload(upload) for upload in figures.uploads],
        "errors": [asdict(error) for error in figures.errors],
        "snapshots": dict(figures.snapshots),
    }


def _partition(figures: PartitionFigures) -> dict[str, Any]:
    status, extent = figures.status, figures.extent
    return {
        **asdict(status.topic_partition),
        "state": state_of(figures),
        "archived_start_offset": extent.start_offset,
        "archived_end_offset": status.archived_end_offset,
        "archived_segments": extent.segments,
        "archived_bytes": extent.size_bytes,
        "segments_archived": figures.segments_archived,
        "segments_waiting": status.pending_segments,
        "bytes_waiting": status.pending_bytes,
        "pinned_deleted_bytes": status.pinned_deleted_bytes,
        "unpinned_segments": figures.unpinned_segments,
        "oldest_waiting_ms": status.oldest_pending_ms,
        "deadline_ms": status.deadline_ms,
        "active_deadline_ms": status.active_deadline_ms,
        "retention_known": status.is_retention_known,
        "ranges": [asdict(found) for found in ranges_of(figures)],
        "reason": figures.reason,
        "error": status.error,
    }


def _upload(upload: Upload) -> dict[str, Any]:
    fields = asdict(upload)
    return {**fields.pop("topic_partition"), **fields}


class Access:
    """Compares what clients send with the token of a file, which is read each time: Secrets are rotated in place."""

    def __init__(self, token_file: Path | None, *, requires_token: bool = True) -> None:
        """`token_file`: None lets everybody in. Raises SettingsError if the token is required and cannot be read, or too short."""
        self._token_file = token_file
        self._is_readable = True
        if token_file is not None and requires_token:
            _read_token(token_file)

    def refusal(self, authorization: str) -> Answer | None:
        """What a request with this Authorization header, "" for none, gets instead of its answer; None if it is let in.

        All are refused while the token cannot be read. Takes as long for a wrong token as for the right one.
        """
        if self._token_file is None:
            return None
        try:
            token = _read_token(self._token_file)
        except SettingsError as error:
            # Once, not for each scrape and each click until somebody mends it.
            if self._is_readable:
                EVENTS.error("http_token_not_read", error=str(error))
            self._is_readable = False
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "the token cannot be read: see the log")
        self._is_readable = True
        if hmac.compare_digest(_presented(authorization), token):
            return None
        challenges = tuple(("WWW-Authenticate", challenge) for challenge in CHALLENGES)
        text = "a token is required: as Bearer token, or as the password of any user"
        return plain(HTTPStatus.UNAUTHORIZED, text, challenges)


def _read_token(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_BYTES_MAX + 1).strip()
    except OSError as error:
        raise SettingsError(f"http.token_file: cannot read {path}: {error.strerror}") from error
    if not TOKEN_BYTES_MIN <= len(token) <= TOKEN_BYTES_MAX:
        raise SettingsError(
            f"http.token_file: {path} has {len(token)} bytes, a token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}: "
            f"`openssl rand -hex 32` makes one"
        )
    return token


def _presented(authorization: str) -> bytes:
    """The token in the header, empty if there is none: by Bearer, or as the password of any user by Basic."""
    scheme, _, value = authorization.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value.encode("latin-1", "replace")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""
