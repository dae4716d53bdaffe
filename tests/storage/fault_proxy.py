"""An HTTP proxy on loopback that breaks chosen requests in the ways of real networks and stores."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Break(StrEnum):
    """How a request is broken."""

    STATUS = "answered with an error, not passed on"
    RESET_IN_BODY = "connection reset in the middle of the request's body, not passed on"
    RESET_INSTEAD_OF_ANSWER = "passed on, connection reset instead of the answer"
    SILENCE = "passed on, no answer until the test ends"
    STATUS_INSTEAD_OF_ANSWER = "passed on, answered with an error"
    CUT_ANSWER = "passed on, answer ends in the middle of its body"
    FLIP_BIT = "passed on with one bit of the body changed"
    FLIP_BIT_OF_ANSWER = "passed on, one bit of the answer's body changed"


@dataclass
class Fault:
    """Breaks the next `times` requests with this method whose path and query contain `path_part`."""

    method: str
    kind: Break
    path_part: str = ""
    times: int = 1
    status: int = 503
    code: str = "SlowDown"


@dataclass
class FaultProxy:
    """Where to send requests, what to break, and what came by: method, path with query."""

    endpoint_url: str = ""
    faults: list[Fault] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, method: str, path_part: str = "") -> int:
        """How many such requests came by."""
        return sum(1 for seen_method, path in self.seen if seen_method == method and path_part in path)

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.seen.append((method, path))
            for fault in self.faults:
                if fault.method == method and fault.path_part in path and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None


@contextmanager
def fault_proxy(upstream_url: str) -> Iterator[FaultProxy]:
    """A proxy before `upstream_url`. Host headers pass unchanged, so signatures stay valid upstream."""
    proxy = FaultProxy()
    upstream = urlsplit(upstream_url)

    class Handler(_Handler):
        faults = proxy
        address = (upstream.hostname or "", upstream.port or 80)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    proxy.endpoint_url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield proxy
    finally:
        proxy.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faults: FaultProxy
    address: tuple[str, int]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Quiet."""

    def _serve(self) -> None:
        fault = self.faults.next_fault(self.command, self.path)
        kind = fault.kind if fault else None
        size_bytes = int(self.headers.get("Content-Length", 0))
        if kind is Break.RESET_IN_BODY:
            self.rfile.read(size_bytes // 2)
            self._reset()
            return
        body = bytearray(self.rfile.read(size_bytes))
        if fault is not None and kind is Break.STATUS:
            self._refuse(fault)
            return
        if kind is Break.FLIP_BIT:
            body[len(body) // 2] ^= 1
        status, headers, answer = self._forward(bytes(body))
        if fault is not None and kind is Break.STATUS_INSTEAD_OF_ANSWER:
            self._refuse(fault)
        elif kind is Break.RESET_INSTEAD_OF_ANSWER:
            self._reset()
        elif kind is Break.SILENCE:
            self.faults.ended.wait(60)
            self._reset()
        elif kind is Break.CUT_ANSWER:
            self._answer(status, headers, answer[: len(answer) // 2])
            self._reset()
        else:
            if kind is Break.FLIP_BIT_OF_ANSWER:
                changed = bytearray(answer)
                changed[len(changed) // 2] ^= 1
                answer = bytes(changed)
            self._answer(status, headers, answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - http.server looks for these names

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {"connection", "expect"}:
                    connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        announced = any(name.lower() == "content-length" for name, _ in headers)
        for name, value in headers:
            if name.lower() not in {"transfer-encoding", "connection"}:
                self.send_header(name, value)
        if not announced:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)

    def _refuse(self, fault: Fault) -> None:
        body = f"<Error><Code>{fault.code}</Code><Message>broken by the test</Message></Error>".encode()
        self._answer(fault.status, [("Content-Type", "application/xml")], b"" if self.command == "HEAD" else body)

    def _reset(self) -> None:
        # Zero linger turns close into RST.
        with suppress(OSError):
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)
        self.close_connection = True
        with suppress(OSError):
            self.connection.close()
