"""Who is connected: clients whose request is still to come, that wait for their turn, or that are being served."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto

import structlog

from sidecar.clock import Clock

_log = structlog.get_logger(__name__)

WAITING_PER_SERVED = 4
"""So many clients may be silent, and so many may wait for their turn, for each that may be served."""
TELL_EVERY_S = 60.0
TURNED_AWAY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class _Stage(Enum):
    SILENT = auto()
    WAITING = auto()
    SERVED = auto()


@dataclass(slots=True)
class _Client:
    deadline_s: float
    stage: _Stage = _Stage.SILENT


class Clients:
    """Bounds the three kinds apart, so that none takes the room of another. Thread-safe.

    Who sends no request loses the connection to who comes: idle connections keep nobody out. What is answered without asking for
    a turn, as `/healthz`, is answered however many there are.
    """

    def __init__(self, served_max: int, timeout_s: float, clock: Clock, turned_away: Callable[[], None]) -> None:
        """Args: turned_away: is told of each client that got no answer for want of room."""
        self._served_max = served_max
        self._waiting_max = served_max * WAITING_PER_SERVED
        self._timeout_s = timeout_s
        self._clock = clock
        self._turned_away = turned_away
        self._told_s = -TELL_EVERY_S
        self._untold = 0
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
        self._untold += 1
        now_s = self._clock.monotonic_s()
        if now_s - self._told_s >= TELL_EVERY_S:
            _log.warning(
                "http_clients_turned_away",
                clients=self._untold,
                remedy="who asks so often? else raise http.max_connections",
            )
            self._told_s, self._untold = now_s, 0


def _refuse(client: socket.socket) -> None:
    try:
        client.send(TURNED_AWAY, socket.MSG_DONTWAIT)
    except OSError as error:
        _log.debug("http_client_gone", error=str(error))
    _cut_off([client])


def _cut_off(clients: Iterable[socket.socket]) -> None:
    for client in clients:
        try:
            client.shutdown(socket.SHUT_RDWR)  # wakes the thread, which then closes it
        except OSError as error:
            _log.debug("http_client_gone", error=str(error))
