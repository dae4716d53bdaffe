"""An HTTP proxy on loopback, in front of an S3 server, that breaks chosen requests in the ways of real networks and stores."""

from __future__ import annotations

import http.client
import random
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from sidecar.clock import SystemClock
from tests.servers.s3_server import ACCESS_KEY, REGION, SECRET_KEY

_UPSTREAM_TIMEOUT_S = 60.0
_STALE = timedelta(seconds=10)
IN_A_ROW_MAX = 4


class Break(StrEnum):
    """How a request is broken."""

    STATUS = "answered with an error, not passed on"
    RESET_IN_BODY = "connection reset in the middle of the request's body, not passed on"
    RESET_INSTEAD_OF_ANSWER = "passed on, connection reset instead of the answer"
    SILENCE = "passed on, no answer until the test ends"
    HOLD = "passed on only when the test lets it go, though its sender may be gone by then"
    STATUS_INSTEAD_OF_ANSWER = "passed on, answered with an error"
    CUT_ANSWER = "passed on, answer ends in the middle of its body"
    SHORT_ANSWER = "passed on, the answer's body and its Content-Length are half of what they were"
    FLIP_BIT = "passed on with one bit of the body changed"
    FLIP_BIT_OF_ANSWER = "passed on, one bit of the answer's body changed"
    ACCEPT_REFUSED = "passed on, an answer 412 is changed into 200"
    IGNORE_CONDITION = "passed on without If-None-Match"
    STALE_LISTING = "passed on, objects of the last ten seconds are taken out of the answer"


@dataclass
class Fault:
    """Breaks the next `times` requests with this method (all, if empty) whose path and query contain `path_part`.

    `share`: each of them with this probability only, and none more than `IN_A_ROW_MAX` times in a row: else luck would decide
    whether a client gives up.
    """

    method: str
    kind: Break
    path_part: str = ""
    times: float = 1
    status: int = 503
    code: str = "SlowDown"
    share: float = 1.0

    def concerns(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method in {"", method} and self.path_part in path


@dataclass
class FaultProxy:
    """Where to send requests, what to break, and what came by: method, path with query."""

    endpoint_url: str = ""
    faults: list[Fault] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)
    broken: int = 0
    """How many requests were broken so far."""
    held: threading.Event = field(default_factory=threading.Event)
    """Set while a request is held back."""
    released: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    randomness: random.Random = field(default_factory=lambda: random.Random(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _in_a_row: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often such a request was broken since one passed, of those that a share of is broken."""

    @property
    def port(self) -> int:
        return urlsplit(self.endpoint_url).port or 0

    def count(self, method: str, path_part: str = "") -> int:
        """How many such requests came by."""
        return sum(1 for seen_method, path in self.seen if seen_method == method and path_part in path)

    def hold(self, method: str, path_part: str, times: float = 1) -> None:
        """Hold such requests back until `release`."""
        self.held.clear()
        self.released.clear()
        self.faults = [Fault(method, Break.HOLD, path_part, times)]

    def release(self) -> None:
        """Pass on what is held back."""
        self.faults = []
        self.released.set()

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.seen.append((method, path))
            for fault in self.faults:
                if fault.concerns(method, path) and self._strikes(fault.share, (method, path)):
                    fault.times -= 1
                    self.broken += 1
                    return fault
        return None

    def _strikes(self, share: float, request: tuple[str, str]) -> bool:
        if share >= 1.0:
            return True
        if self._in_a_row[request] < IN_A_ROW_MAX and self.randomness.random() < share:
            self._in_a_row[request] += 1
            return True
        del self._in_a_row[request]
        return False


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
        proxy.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Else the kernel waits for an acknowledgement between head and body of an answer.
    disable_nagle_algorithm = True
    faults: FaultProxy
    address: tuple[str, int]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Quiet."""

    def _serve(self) -> None:
        fault = self.faults.next_fault(self.command, self.path)
        size_bytes = int(self.headers.get("Content-Length", 0))
        if fault is not None and fault.kind is Break.RESET_IN_BODY:
            self.rfile.read(size_bytes // 2)
            self._reset()
            return
        body = bytearray(self.rfile.read(size_bytes))
        if len(body) < size_bytes:  # Its sender is gone.
            self.close_connection = True
            return
        if fault is not None and fault.kind is Break.STATUS:
            self._refuse(fault)
            return
        if fault is not None:
            self._break_request(fault, body)
        try:
            status, headers, answer = self._forward(bytes(body))
        except OSError:  # The server is away: so is its proxy.
            self._reset()
            return
        if fault is None:
            self._answer(status, headers, answer)
        else:
            self._answer_broken(fault, status, headers, answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - http.server looks for these names

    def _break_request(self, fault: Fault, body: bytearray) -> None:
        """What is done before the request is passed on."""
        if fault.kind is Break.HOLD:
            self.faults.held.set()
            self.faults.released.wait()
        elif fault.kind is Break.FLIP_BIT and body:
            body[len(body) // 2] ^= 1
        elif fault.kind is Break.IGNORE_CONDITION and self.headers.get("If-None-Match"):
            del self.headers["If-None-Match"]
            self._sign_again()

    def _answer_broken(self, fault: Fault, status: int, headers: list[tuple[str, str]], answer: bytes) -> None:
        kind = fault.kind
        if kind is Break.STATUS_INSTEAD_OF_ANSWER:
            self._refuse(fault)
        elif kind is Break.RESET_INSTEAD_OF_ANSWER:
            self._reset()
        elif kind is Break.SILENCE:
            self.faults.ended.wait(_UPSTREAM_TIMEOUT_S)
            self._reset()
        elif kind is Break.CUT_ANSWER:
            self._answer(status, headers, answer[: len(answer) // 2])
            self._reset()
        elif kind is Break.SHORT_ANSWER and self.command != "HEAD":
            half = answer[: len(answer) // 2]
            self._answer(status, _with_length(headers, len(half)), half)
        elif kind is Break.FLIP_BIT_OF_ANSWER and answer:
            changed = bytearray(answer)
            changed[len(changed) // 2] ^= 1
            self._answer(status, headers, bytes(changed))
        elif kind is Break.ACCEPT_REFUSED and status == http.client.PRECONDITION_FAILED:
            self._answer(200, [("ETag", '"0"'), ("Content-Length", "0")], b"")
        elif kind is Break.STALE_LISTING and status == http.client.OK:
            older = _without_the_newest(answer)
            self._answer(status, _with_length(headers, len(older)), older)
        else:
            self._answer(status, headers, answer)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(*self.address, timeout=_UPSTREAM_TIMEOUT_S)
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

    def _sign_again(self) -> None:
        """The signature covers the headers: after one of them was removed the request needs another."""
        signed = re.search(r"SignedHeaders=([^,]+)", self.headers["Authorization"])
        names = (signed[1] if signed else "").split(";")
        headers = {name: self.headers[name] for name in names if name in self.headers}
        request = AWSRequest(self.command, f"http://{self.headers['Host']}{self.path}", headers)
        payload_hash = self.headers["x-amz-content-sha256"]

        class SameBody(S3SigV4Auth):
            def payload(self, _: AWSRequest) -> str:
                return str(payload_hash)

        SameBody(Credentials(ACCESS_KEY, SECRET_KEY), "s3", REGION).add_auth(request)
        for name in ("Authorization", "X-Amz-Date"):
            del self.headers[name]
            self.headers[name] = request.headers[name]

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        announced = any(name.lower() == "content-length" for name, _ in headers)
        for name, value in headers:
            if name.lower() not in {"transfer-encoding", "connection"}:
                self.send_header(name, value)
        if not announced:
            self.send_header("Content-Length", str(len(body)))
        with suppress(OSError):
            self.end_headers()
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


def _with_length(headers: list[tuple[str, str]], size_bytes: int) -> list[tuple[str, str]]:
    """The same answer's headers where its body has another size. A checksum of the whole body goes too."""
    kept = [(name, value) for name, value in headers if name.lower() not in {"content-length", "x-amz-checksum-crc32c"}]
    return [*kept, ("Content-Length", str(size_bytes))]


def _without_the_newest(listing: bytes) -> bytes:
    """A page of ListObjectsV2 without the objects that are younger than ten seconds."""
    newest = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC) - _STALE

    def kept(entry: re.Match[bytes]) -> bytes:
        modified = re.search(rb"<LastModified>([^<]+)</LastModified>", entry[0])
        is_new = modified is not None and datetime.fromisoformat(modified[1].decode()) > newest
        return b"" if is_new else entry[0]

    return re.sub(rb"<Contents>.*?</Contents>", kept, listing, flags=re.DOTALL)
