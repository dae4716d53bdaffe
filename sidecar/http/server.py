"""The server: a thread per client, few served at once, and each with a deadline that trickling bytes do not move."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import structlog

from sidecar.clock import Clock
from sidecar.config import HttpSettings
from sidecar.errors import SettingsError
from sidecar.http.pages import HEALTH_PATH, Answer, Pages, Request, plain
from sidecar.metrics import Metrics
from sidecar.reporting.health_reporter import Health
from sidecar.reporting.status_model import StatusModel

WAITING_PER_SERVED = 4
"""So many clients may be silent, and so many may wait for their turn, for each that may be served."""
LOG_EVERY_S = 60.0
TURNED_AWAY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_log = structlog.get_logger(__name__)
POLL_S = 0.25
BACKLOG = 64
SECURITY_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class _Stage(Enum):
    SILENT = auto()
    WAITING = auto()
    SERVED = auto()


@dataclass(slots=True)
class _Client:
    deadline_s: float
    stage: _Stage = _Stage.SILENT


class Clients:
    """Clients whose request is still to come, that wait for their turn, or that are being served. Thread-safe.

    Bounds the three kinds apart, so that none takes the room of another. Who sends no request loses the connection to who comes:
    idle connections block no others. Requests without a queue, as `/healthz`, are answered however many there are.
    """

    def __init__(self, served_max: int, timeout_s: float, clock: Clock, turned_away: Callable[[], None]) -> None:
        """Args: turned_away: called for each client that got no answer because the queue was full."""
        self._served_max = served_max
        self._waiting_max = served_max * WAITING_PER_SERVED
        self._timeout_s = timeout_s
        self._clock = clock
        self._turned_away = turned_away
        self._logged_s = -LOG_EVERY_S
        self._unlogged = 0
        self._clients: dict[socket.socket, _Client] = {}
        self._changed = threading.Condition()

    def arrived(self, client: socket.socket) -> None:
        """A connection more. For its room the one is cut off that has been silent for longest."""
        with self._changed:
            silent = [known for known, state in self._clients.items() if state.stage is _Stage.SILENT]
            if len(silent) >= self._waiting_max:
                _refuse(silent[0])
                # Its thread is still to find out: until then it counts no more.
                del self._clients[silent[0]]
                self._count()
            self._clients[client] = _Client(self._clock.monotonic_s() + self._timeout_s)

    def has_turn(self, client: socket.socket) -> bool:
        """The client's request is known: wait until it can be served. False where too many wait, or it took too long."""
        with self._changed:
            state = self._clients.get(client)
            if state is None:
                return False  # cut off meanwhile, and counted
            if self._number(_Stage.WAITING) < self._waiting_max:
                state.stage = _Stage.WAITING
                if self._changed.wait_for(lambda: self._number(_Stage.SERVED) < self._served_max, self._timeout_s):
                    state.stage = _Stage.SERVED
                    return True
            self._count()
            return False

    def left(self, client: socket.socket) -> None:
        with self._changed:
            self._clients.pop(client, None)
            self._changed.notify_all()

    def cut_off_overdue(self) -> None:
        now_s = self._clock.monotonic_s()
        with self._changed:
            _cut_off(client for client, state in self._clients.items() if state.deadline_s <= now_s)

    def finish(self, grace_s: float) -> None:
        """Wait for all to leave; after the grace cut them off."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._clients, grace_s):
                _cut_off(self._clients)
                self._changed.wait_for(lambda: not self._clients, grace_s)

    def _number(self, stage: _Stage) -> int:
        return sum(state.stage is stage for state in self._clients.values())

    def _count(self) -> None:
        self._turned_away()
        self._unlogged += 1
        now_s = self._clock.monotonic_s()
        if now_s - self._logged_s >= LOG_EVERY_S:
            _log.warning(
                "http_connections_refused",
                clients=self._unlogged,
                remedy="find the client that sends so many requests, or raise http.max_connections",
            )
            self._logged_s, self._unlogged = now_s, 0


def _refuse(client: socket.socket) -> None:
    try:
        client.send(TURNED_AWAY, socket.MSG_DONTWAIT)
    except OSError as error:
        _log.debug("http_client_disconnected", error=str(error))
    _cut_off([client])


def _cut_off(clients: Iterable[socket.socket]) -> None:
    for client in clients:
        try:
            client.shutdown(socket.SHUT_RDWR)  # wakes the thread, which then closes it
        except OSError as error:
            _log.debug("http_client_disconnected", error=str(error))


class HttpServer(ThreadingHTTPServer):
    """Serves in a thread of its own until `close`. A context manager."""

    request_queue_size = BACKLOG
    daemon_threads = True

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
        """Bind and begin to serve.

        Raises SettingsError if `http.bind` is unset or cannot be listened on, or a required token cannot be read.
        """
        address = settings.address
        if address is None:
            raise SettingsError("http.bind is null: no address to listen on. Set it, such as 127.0.0.1:9308")
        model = model or StatusModel(clock)
        self.pages = Pages(settings, health, metrics, clock, model, requires_token=requires_token)
        self._timeout_s = settings.request_timeout_s
        self.clients = Clients(settings.max_connections, self._timeout_s, clock, metrics.http_refused_connections.inc)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, _Handler)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise SettingsError(
                f"http.bind: cannot listen on {settings.bind}: {why}; free the port, or set another address"
            ) from error
        self._thread = threading.Thread(target=self.serve_forever, args=(POLL_S,), name="http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def close(self, grace_s: float = 1.0) -> None:
        """Stop listening; let answers in progress finish for so long, then cut them off."""
        self.shutdown()
        self.server_close()
        self.clients.finish(grace_s)
        self._thread.join()

    def __exit__(self, *_exception: object) -> None:
        self.close()

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
            _log.debug("http_client_disconnected", error=str(sys.exception()))
        else:
            _log.error("http_request_failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
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

    def version_string(self) -> str:
        """The name without versions."""
        return "tiered-sidecar"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Requests of probes and scrapers matter only for debugging."""
        _log.debug("http_request", line=format % args)

    def _answer(self) -> Answer:
        try:
            target = urlsplit(self.path)
        except ValueError:
            return plain(HTTPStatus.BAD_REQUEST, "no request target")
        if target.path != HEALTH_PATH and not self.server.clients.has_turn(self.request):
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many concurrent requests", (("Retry-After", "1"),))
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
