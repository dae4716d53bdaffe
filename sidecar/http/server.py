"""The server of the pages: what `run` shows to people, probes and Prometheus."""

import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from sidecar.clock import Clock
from sidecar.config import HttpSettings
from sidecar.errors import SettingsError
from sidecar.event_log import EVENTS
from sidecar.http.bounded_server import BoundedServer, Clients, Discreet
from sidecar.http.pages import HEALTH_PATH, Answer, Pages, plain
from sidecar.metrics import Metrics
from sidecar.reporting.health_reporter import Health
from sidecar.reporting.status_model import StatusModel

SECURITY_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class HttpServer(BoundedServer):
    def __init__(
        self,
        settings: HttpSettings,
        health: Health,
        metrics: Metrics,
        clock: Clock,
        model: StatusModel | None = None,
        *,
        requires_token: bool = True,
    ) -> None:
        """Raises SettingsError if `http.bind` is unset or cannot be listened on, or a required token cannot be read."""
        if settings.address is None:
            raise SettingsError("http.bind is null: no address to listen on. Set it, such as 127.0.0.1:9308")
        model = model or StatusModel(clock)
        self.pages = Pages(settings, health, metrics, clock, model, requires_token=requires_token)
        remedy = "find the client that sends so many requests, or raise http.max_connections"
        turned_away = metrics.http_refused_connections.inc
        clients = Clients(settings.max_connections, settings.request_timeout_s, clock, remedy, turned_away)
        super().__init__(settings.address, _Handler, clients, "http.bind")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to report; anything else is."""
        if isinstance(sys.exception(), OSError):
            EVENTS.debug("http_client_disconnected", error=str(sys.exception()))
        else:
            EVENTS.error("http_request_failed", exc_info=True)


class _Handler(Discreet, BaseHTTPRequestHandler):
    server: HttpServer
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

    def _answer(self) -> Answer:
        try:
            target = urlsplit(self.path)
        except ValueError:
            return plain(HTTPStatus.BAD_REQUEST, "no request target")
        if target.path != HEALTH_PATH and not self.server.clients.has_turn(self.request):
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many concurrent requests", (("Retry-After", "1"),))
        return self.server.pages.answer(target.path, target.query, self.headers.get)

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
