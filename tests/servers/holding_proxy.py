"""A TCP proxy that holds requests back, to be sent on later: what was on its way when its sender was given up arrives after all."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65536
_ACCEPT_S = 0.2


class HoldingProxy:
    """A context manager in front of 127.0.0.1:`upstream_port`. Everything passes, but for what `hold` names.

    `held` is set while a request is being held back.
    """

    def __init__(self, upstream_port: int) -> None:
        self.held = Event()
        self._upstream_port = upstream_port
        self._wanted: tuple[bytes, bytes] | None = None
        self._released = Event()
        self._over = Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_ACCEPT_S)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = Thread(target=self._accept, name="holding-proxy", daemon=True)

    def hold(self, method: str, part_of_path: str) -> None:
        """Hold back the next request of this kind with all that follows on its connection, until `release`."""
        self.held.clear()
        self._released.clear()
        self._wanted = method.encode() + b" ", part_of_path.encode()

    def release(self) -> None:
        """Send on what was held back, though its sender may be asleep or gone."""
        self._wanted = None
        self._released.set()

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()
        self._over.set()
        self._acceptor.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(None)
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._upstream_port)) as server:
            back = Thread(target=_pump, args=(server, client), daemon=True)
            back.start()
            while data := client.recv(_CHUNK_BYTES):
                if self._is_wanted(data):
                    self.held.set()
                    self._released.wait()
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            back.join()

    def _is_wanted(self, data: bytes) -> bool:
        """Clients do not pipeline: each request begins with a read of its own."""
        if self._wanted is None:
            return False
        method, part_of_path = self._wanted
        request_line = data.split(b"\r\n", 1)[0]
        return request_line.startswith(method) and part_of_path in request_line


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
