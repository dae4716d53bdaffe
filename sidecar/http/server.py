"""The server: a thread per client, few served at once, and each with a deadline that trickling bytes do not move."""

from __future__ import annotations

import socket
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

import structlog

from sidecar.clock import Clock
from sidecar.config import HttpSettings
from sidecar.errors import SettingsError
from sidecar.http.clients import Clients
from sidecar.http.pages import HEALTH_PATH, Answer, Pages, Request, pages_of, plain
from sidecar.metrics import Metrics
from sidecar.reporting.health import Health
from sidecar.reporting.status_model import StatusModel

_log = structlog.get_logger(__name__)

POLL_S = 0.25
BACKLOG = 64
SECURITY_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class HttpServer:
    """Serves until `close`. A context manager."""

    def __init__(
        self,
        settings: HttpSettings,
        health: Health,
        metrics: Metrics,
        clock: Clock,
        model: StatusModel | None = None,
    ) -> None:
        """Bind and begin to serve in a thread of its own.

        Raises SettingsError if `http.bind` is unset or cannot be listened on, or the token cannot be read.
        """
        address = settings.address
        if address is None:
            raise SettingsError("http.bind is null: there is no address to listen on")
        pages = pages_of(settings, health, metrics, clock, model or StatusModel(clock))
        try:
            self._server = _server_class(address[0])(address, settings, pages, clock, metrics)
        except (OSError, UnicodeError) as error:
            raise SettingsError(f"http.bind: cannot listen on {settings.bind}: {error}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), name="http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self, grace_s: float = 1.0) -> None:
        """Stop listening; let answers in progress finish for so long, then cut them off."""
        self._server.shutdown()
        self._server.server_close()
        self._server.clients.finish(grace_s)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    request_queue_size = BACKLOG
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], settings: HttpSettings, pages: Pages, clock: Clock, metrics: Metrics
    ) -> None:
        self.pages = pages
        self._timeout_s = settings.request_timeout_s
        self.clients = Clients(settings.max_connections, self._timeout_s, clock, metrics.http_turned_away.inc)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without the reverse name lookup of `HTTPServer`, which may hang."""
        if self.address_family == socket.AF_INET6 and self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take the client, in a thread of its own."""
        self.clients.arrived(request)
        request.settimeout(self._timeout_s)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.clients.left(request)

    def service_actions(self) -> None:
        self.clients.cut_off_overdue()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to report; anything else is."""
        if isinstance(sys.exception(), OSError):
            _log.debug("http_client_gone", error=str(sys.exception()))
        else:
            _log.error("http_request_failed", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


def _server_class(host: str) -> type[_Server]:
    return _Server6 if ":" in host else _Server


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.0"  # one request per connection: an idle client holds no thread

    def do_GET(self) -> None:
        self._send(self._answer())

    def do_HEAD(self) -> None:
        self._send(self._answer(), with_body=False)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Plain text instead of a page that repeats what the client sent; methods other than GET and HEAD are 405."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self._send(plain(status, status.phrase.lower()), with_body=getattr(self, "command", None) != "HEAD")

    def version_string(self) -> str:
        """The name without versions."""
        return "tiered-sidecar"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Requests of probes and scrapers are of interest to nobody, but for debugging."""
        _log.debug("http_request", line=format % args)

    def _answer(self) -> Answer:
        try:
            target = urlsplit(self.path)
        except ValueError:
            return plain(HTTPStatus.BAD_REQUEST, "no request target")
        if target.path != HEALTH_PATH and not self.server.clients.has_turn(self.request):
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many ask at once", (("Retry-After", "1"),))
        names = ("Accept", "Authorization", "If-None-Match")
        return self.server.pages.answer(Request(target.path, target.query, *(self.headers.get(n, "") for n in names)))

    def _send(self, answer: Answer, *, with_body: bool = True) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        # With a tag a browser may keep it, and asks whether it is still true.
        self.send_header("Cache-Control", "private, no-cache" if answer.entity_tag else "no-store")
        if answer.entity_tag:
            self.send_header("ETag", answer.entity_tag)
        self.send_header("Content-Security-Policy", answer.content_policy)
        for name, value in (*SECURITY_HEADERS, *answer.headers):
            self.send_header(name, value)
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)
