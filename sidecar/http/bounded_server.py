"""A server of HTTP with bounds: a thread per client, few served at once, and a deadline that trickling bytes do not move."""

import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Final

from sidecar.clock import Clock
from sidecar.errors import SettingsError
from sidecar.event_log import EVENTS

WAITING_PER_SERVED = 4
"""So many clients may be silent, and so many may wait for their turn, for each that may be served."""
LOG_EVERY_S = 60.0
TURNED_AWAY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_PLAIN: Final = socket.socket
"""Its methods do not touch the TLS of a connection, which belongs to another thread."""
POLL_S = 0.25
BACKLOG = 64


class _Stage(Enum):
    SILENT = auto()
    WAITING = auto()
    SERVED = auto()


@dataclass(slots=True)
class _Client:
    deadline_s: float
    stage: _Stage = _Stage.SILENT


@dataclass(eq=False)
class Clients:
    """Clients whose request is still to come, that wait for their turn, or that are being served. Thread-safe.

    Bounds the three kinds apart, so that none takes the room of another. Who sends no request loses the connection to who comes:
    idle connections block no others. Requests without a queue, as `/healthz`, are answered however many there are.
    `timeout_s`: of a client, whatever it has sent. `remedy`: for the log. `turned_away`: called for each one refused.
    """

    served_max: int
    timeout_s: float
    clock: Clock
    remedy: str
    turned_away: Callable[[], object] = lambda: None
    _logged_s: float = field(default=-LOG_EVERY_S, init=False)
    _unlogged: int = field(default=0, init=False)
    _clients: dict[socket.socket, _Client] = field(default_factory=dict, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)

    def arrived(self, client: socket.socket) -> None:
        """A connection more. For its room the one is cut off that has been silent for longest."""
        with self._changed:
            silent = [known for known, state in self._clients.items() if state.stage is _Stage.SILENT]
            if len(silent) >= self.served_max * WAITING_PER_SERVED:
                _refuse(silent[0])
                # Its thread is still to find out: until then it counts no more.
                del self._clients[silent[0]]
                self._count()
            self._clients[client] = _Client(self.clock.monotonic_s() + self.timeout_s)

    def has_turn(self, client: socket.socket) -> bool:
        """The client's request is known: wait until it can be served. False where too many wait, or it took too long."""
        with self._changed:
            state = self._clients.get(client)
            if state is None:
                return False  # cut off meanwhile, and counted
            if self._number(_Stage.WAITING) < self.served_max * WAITING_PER_SERVED:
                state.stage = _Stage.WAITING
                if self._changed.wait_for(lambda: self._number(_Stage.SERVED) < self.served_max, self.timeout_s):
                    state.stage = _Stage.SERVED
                    return True
            self._count()
            return False

    def left(self, client: socket.socket) -> None:
        with self._changed:
            self._clients.pop(client, None)
            self._changed.notify_all()

    def cut_off_overdue(self) -> None:
        now_s = self.clock.monotonic_s()
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
        self.turned_away()
        self._unlogged += 1
        now_s = self.clock.monotonic_s()
        if now_s - self._logged_s >= LOG_EVERY_S:
            EVENTS.warning("http_connections_refused", clients=self._unlogged, remedy=self.remedy)
            self._logged_s, self._unlogged = now_s, 0


def _refuse(client: socket.socket) -> None:
    try:
        _PLAIN.send(client, TURNED_AWAY, socket.MSG_DONTWAIT)
    except OSError as error:
        EVENTS.debug("http_client_disconnected", error=str(error))
    _cut_off([client])


def _cut_off(clients: Iterable[socket.socket]) -> None:
    for client in clients:
        try:
            _PLAIN.shutdown(client, socket.SHUT_RDWR)  # wakes the thread, which then closes it
        except OSError as error:
            EVENTS.debug("http_client_disconnected", error=str(error))


class Discreet:
    """Of a `BaseHTTPRequestHandler`: what the servers have in common."""

    def version_string(self) -> str:
        """The name without versions."""
        return "tiered-sidecar"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Requests of probes and scrapers matter only for debugging."""
        EVENTS.debug("http_request", line=format % args)


class BoundedServer(ThreadingTCPServer):
    """Serves in a thread of its own until `close`. A context manager.

    No `HTTPServer`: that looks up the name of its address, which may hang.
    """

    request_queue_size = BACKLOG
    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], clients: Clients, setting: str
    ) -> None:
        """Bind and begin to serve. Raises SettingsError, which names `setting`, if the address cannot be listened on."""
        self.clients = clients
        host, port = address
        if ":" in host:
            self.address_family = socket.AF_INET6
            host = f"[{host}]"
        try:
            super().__init__(address, handler)
        except (OSError, UnicodeError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise SettingsError(
                f"{setting}: cannot listen on {host}:{port}: {why}; free the port, or set another address"
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
        """Bind; all addresses of IPv6 include those of IPv4."""
        if self.address_family == socket.AF_INET6 and self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.clients.arrived(request)
        request.settimeout(self.clients.timeout_s)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.clients.left(request)

    def service_actions(self) -> None:
        self.clients.cut_off_overdue()
