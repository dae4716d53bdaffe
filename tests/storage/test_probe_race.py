"""The probe's race: against stores that lock a key, that check too early, and that ignore the condition now and then."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import pytest

from sidecar.clock import SystemClock
from sidecar.errors import ObjectExists, OutcomeUnknown, StoreUnavailable, TwoWriters
from sidecar.model import ObjectKey
from sidecar.storage.race import TURNS, WRITERS, Race
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
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
        self.puts = 0


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


def race(endpoint_url: str) -> int:
    numbers = count()
    with s3_store(endpoint_url, "bucket", read_timeout_s=READ_TIMEOUT_S) as store:
        return Race(store, SystemClock(), lambda name: ObjectKey(f"{name}-{next(numbers)}")).run()


def test_a_store_that_locks_a_key_before_it_reads_the_body_is_soon_found_safe() -> None:
    with locking_server(is_locking=True) as endpoint_url:
        clock = SystemClock()
        began_s = clock.monotonic_s()
        turns = race(endpoint_url)
        took_s = clock.monotonic_s() - began_s
    assert turns == 1 + TURNS, "one turn with puts that are held, and all turns without"
    assert took_s < READ_TIMEOUT_S / 2


def test_without_the_lock_the_held_puts_win_beside_the_one_that_passes() -> None:
    with locking_server(is_locking=False) as endpoint_url, pytest.raises(TwoWriters, match=r"4 puts .* 4 succeeded"):
        race(endpoint_url)


class Careless(MemoryStore):
    """Lets a second writer of a key win in one of ten races, by dice; and refuses in the others, as it should."""

    def __init__(self, seed: int, failure_rate: float = 0.1) -> None:
        super().__init__()
        self._dice = random.Random(seed)
        self._guard = threading.Lock()
        self._fails: dict[str, bool] = {}
        self._rate = failure_rate

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        """See `ObjectStore`. Dice are thrown once for each key: for each race."""
        with self._guard:
            fails = self._fails.setdefault(key, self._dice.random() < self._rate)
            if not fails and key in self.objects:
                raise ObjectExists(key)
            self.objects[key] = body


def raced(store: MemoryStore) -> int:
    numbers = count()
    return Race(store, ManualClock(), lambda name: ObjectKey(f"{name}-{next(numbers)}")).run()


def test_a_store_that_fails_in_one_of_ten_races_is_missed_in_less_than_one_of_a_million_starts() -> None:
    assert 0.9**TURNS < 1e-6 < 0.9 ** (TURNS - 1)


def test_a_store_that_fails_in_one_of_ten_races_is_found_at_every_start() -> None:
    """With eleven turns, as before, three of ten starts would have let it pass: 0.9^11 = 0.31."""
    for seed in range(40):
        with pytest.raises(TwoWriters):
            raced(Careless(seed))


def test_the_number_of_turns_is_what_finds_it() -> None:
    """How often a start misses a store that fails in one of 100 races: 0.99^132 = 0.27. The dice decide, and they are fair."""
    missed, starts = 0, 60
    for seed in range(starts):
        try:
            raced(Careless(seed, failure_rate=0.01))
        except TwoWriters:
            continue
        missed += 1
    expected = starts * 0.99**TURNS
    assert abs(missed - expected) < 4 * (expected * (1 - 0.99**TURNS)) ** 0.5


class Forgetful(MemoryStore):
    """Loses answers: of each key the first put's answer, after it took hold, or before, by turns."""

    def __init__(self, *, replaces: bool = False) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._seen: set[str] = set()
        self._replaces = replaces

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        """See `ObjectStore`. `replaces`: the put whose answer is lost takes hold in any case."""
        with self._guard:
            is_lost = key not in self._seen if not self._replaces else key in self.objects and key not in self._seen
            if is_lost:
                self._seen.add(key)
                if self._replaces or len(self._seen) % 2:
                    self.objects[key] = body
                raise OutcomeUnknown(f"{key}: the answer was lost")
            if key in self.objects:
                raise ObjectExists(key)
            self.objects[key] = body


def test_lost_answers_are_settled_and_decide_nothing() -> None:
    assert raced(Forgetful()) == TURNS


def test_a_put_without_an_answer_that_replaced_the_winner_is_seen() -> None:
    with pytest.raises(TwoWriters, match="2 succeeded"):
        raced(Forgetful(replaces=True))


def test_a_store_that_throttles_puts_of_every_race_is_found_safe() -> None:
    """There are hundreds of puts: if one that is throttled began the probe again, it would never end."""
    store, guard = MemoryStore(), threading.Lock()
    calls = defaultdict[str, int](int)

    def throttle(_operation: str, key: str) -> None:
        with guard:
            calls[key] += 1
            fails = calls[key] in {1, 3}  # Of a turn with two writers never more than two attempts of one put.
        if fails:
            raise StoreUnavailable("503")

    store.before = throttle
    assert raced(store) == TURNS


@pytest.mark.parametrize("error", [StoreUnavailable("503"), OutcomeUnknown("lost")])
def test_a_store_that_does_not_answer_is_neither_safe_nor_unsafe(error: Exception) -> None:
    store = MemoryStore()

    def fail(_operation: str, _key: str) -> None:
        raise error

    store.before = fail
    with pytest.raises(type(error)):
        raced(store)
