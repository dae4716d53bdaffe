"""The probe's race against a store that takes the lock of a key before it reads the body: safe, and soon found to be."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sidecar.clock import SystemClock
from sidecar.model import ObjectKey
from sidecar.storage.probe_race import WRITERS, Race
from tests.storage.s3_servers import s3_store

READ_TIMEOUT_S = 120.0
"""Nothing else would end a put that waits for one which waits for it."""


class LockingServer(ThreadingHTTPServer):
    """PutObject with `If-None-Match: *`. `is_locking`: a key is taken by one put at a time, else it only looks as it begins."""

    daemon_threads = True

    def __init__(self, *, is_locking: bool) -> None:
        super().__init__(("127.0.0.1", 0), Putting)
        self.locks: dict[str, Any] = defaultdict(threading.Lock if is_locking else lambda: threading.Semaphore(WRITERS))
        self.keys: set[str] = set()


class Putting(BaseHTTPRequestHandler):
    """Asks for the body when it is about to read it, as servers written in Go do."""

    protocol_version = "HTTP/1.1"
    server: LockingServer

    def log_message(self, *_: object) -> None:
        """Silent."""

    def handle_expect_100(self) -> bool:
        """Said later."""
        return True

    def do_PUT(self) -> None:
        """One winner for each key, if the key is locked."""
        with self.server.locks[self.path]:
            is_taken = self.path in self.server.keys
            if self.headers.get("Expect"):
                self.send_response_only(100)
                self.end_headers()
            self.rfile.read(int(self.headers["Content-Length"]))
            self.server.keys.add(self.path)
            self._answer(
                412 if is_taken else 200, b"<Error><Code>PreconditionFailed</Code></Error>" if is_taken else b""
            )

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"x"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def locking_server(*, is_locking: bool) -> Iterator[str]:
    server = LockingServer(is_locking=is_locking)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def winners_of(endpoint_url: str) -> list[int]:
    with (
        s3_store(endpoint_url, "bucket", read_timeout_s=READ_TIMEOUT_S) as store,
        ThreadPoolExecutor(WRITERS) as pool,
    ):
        return [turn(ObjectKey(f"race-{number}")) for number, turn in enumerate(Race(store, pool).turns())]


def test_a_store_that_locks_a_key_before_it_reads_the_body_is_soon_found_safe() -> None:
    with locking_server(is_locking=True) as endpoint_url:
        clock = SystemClock()
        began_s = clock.monotonic_s()
        winners = winners_of(endpoint_url)
        took_s = clock.monotonic_s() - began_s
    assert winners == [1] * (1 + 8), "one turn with puts that are held, and all turns without"
    assert took_s < READ_TIMEOUT_S / 2


def test_without_the_lock_the_held_puts_win_beside_the_one_that_passes() -> None:
    with locking_server(is_locking=False) as endpoint_url:
        winners = winners_of(endpoint_url)
    assert winners[:3] == [WRITERS] * 3
