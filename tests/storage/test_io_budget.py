"""One limit for all uploads of a process and one for all its reads, divided among processes that work for it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

import pytest

from sidecar.clock import SystemClock
from sidecar.host import process_store
from sidecar.io_share import Moving, as_one_of, be_one_of, io_shares, shared_with
from sidecar.metrics import Metrics
from sidecar.model import ObjectKey
from sidecar.ports import MIB
from sidecar.storage.bandwidth import SMALL_BYTES, BandwidthLimit, IoBudget
from sidecar.storage.directory_store import DirectoryStore
from sidecar.storage.opening import open_store
from sidecar.storage.source import BytesSource
from sidecar.store_settings import StoreSettings
from tests.fakes.manual_clock import ManualClock

KEY = ObjectKey("some/key")


def test_a_process_keeps_one_share_while_workers_have_the_others() -> None:
    clock = ManualClock()
    limit = BandwidthLimit(1000, clock)
    limit.take(0)
    with shared_with(3, Moving.READS), shared_with(1, Moving.READS, Moving.UPLOADS):
        assert (io_shares(Moving.READS), io_shares(Moving.UPLOADS)) == (4, 2)
        limit.take(1000)
        limit.take(1000)
    assert clock.monotonic_s() == pytest.approx(4.0)  # a quarter of the rate, and the second 1000 still to go
    limit.take(0)
    assert (clock.monotonic_s(), io_shares(Moving.READS)) == (pytest.approx(5.0), 1)
    limit.take(1000)
    limit.take(0)
    assert clock.monotonic_s() == pytest.approx(6.0)


def test_workers_that_only_read_leave_uploads_the_whole_limit() -> None:
    clock = ManualClock()
    uploads = IoBudget.of(StoreSettings(url="/a", bandwidth_bytes_per_s=MIB, read_bytes_per_s=MIB), clock).uploads
    with shared_with(4, Moving.READS):
        for _ in range(5):
            uploads.take(MIB)
    assert clock.monotonic_s() == pytest.approx(4.0)


def test_what_nobody_waits_for_keeps_others_waiting_for_a_second_at_most() -> None:
    clock, noted = ManualClock(), list[int]()
    limit = BandwidthLimit(1000, clock)
    limit.note = lambda size_bytes, _waited_s: noted.append(size_bytes)
    for _ in range(4):
        limit.count(10**9)  # behind an open transaction
    limit.take(500)
    assert clock.monotonic_s() == pytest.approx(1.0)
    limit.count(10**9)
    limit.take(0)
    assert clock.monotonic_s() == pytest.approx(2.0)
    assert sum(noted) == 5 * 10**9 + 500, "metrics tell all of it"


class Reloading(ManualClock):
    """Something happens while somebody waits, the first time that the clock is past this moment."""

    def __init__(self, at_s: float, reload: Callable[[], None]) -> None:
        super().__init__()
        self._at_s, self._reload = at_s, reload

    def sleep_s(self, seconds: float) -> None:
        super().sleep_s(seconds)
        if self.monotonic_s() >= self._at_s:
            self._at_s = math.inf
            self._reload()


@pytest.mark.parametrize("bytes_per_s", [10**9, None])
def test_another_limit_counts_for_what_waits_already(bytes_per_s: int | None) -> None:
    clock = Reloading(10.0, lambda: limit.change(bytes_per_s))
    limit = BandwidthLimit(10**6, clock)
    limit.take(10**9)
    limit.take(1)  # 1000 s at the rate of before; after ten of them it rises
    assert clock.monotonic_s() == pytest.approx(10.0 if bytes_per_s is None else 10.99, abs=0.01)
    limit.take(10**6)
    assert clock.monotonic_s() < 11.0


def test_a_lower_limit_counts_for_what_waits_already() -> None:
    clock = ManualClock()
    limit = BandwidthLimit(2000, clock)
    limit.take(1000)
    limit.change(100)
    limit.take(0)
    assert clock.monotonic_s() == pytest.approx(10.0)


def test_a_worker_moves_one_share_of_the_limit() -> None:
    try:
        assert as_one_of(4, _rate_of, 1000) == pytest.approx(250)
    finally:
        be_one_of(1)


def _rate_of(bytes_per_s: int) -> float:
    clock = ManualClock()
    limit = BandwidthLimit(bytes_per_s, clock)
    limit.take(1000)
    limit.take(0)
    return 1000 / clock.monotonic_s()


def test_reads_of_stores_and_of_disks_share_one_limit_and_uploads_have_their_own(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = StoreSettings(url=str(tmp_path / "archive"), bandwidth_bytes_per_s=MIB, read_bytes_per_s=2 * MIB)
    budget = IoBudget.of(settings, clock)
    first, second = (open_store(settings, clock, budget) for _ in range(2))
    first.upload(KEY, BytesSource(bytes(4 * MIB)))
    uploaded_s = clock.monotonic_s()
    second.upload(ObjectKey("other"), BytesSource(bytes(1)))
    assert clock.monotonic_s() == pytest.approx(4.0)
    assert uploaded_s < 4.0
    assert first.read(KEY) == bytes(4 * MIB)
    assert b"".join(second.stream(KEY, MIB)) == bytes(4 * MIB)
    file = tmp_path / "file"
    file.write_bytes(bytes(2 * MIB))
    with file.open("rb", buffering=0) as opened:
        read_at = budget.reads.paced(lambda _position, buffer: opened.readinto(buffer))
        assert read_at(0, memoryview(bytearray(2 * MIB))) == 2 * MIB
    budget.reads.take(0)
    assert clock.monotonic_s() == pytest.approx(4.0 + (4 + 4 + 2) / 2)


def test_small_reads_count_and_do_not_wait() -> None:
    clock = ManualClock()
    limit = BandwidthLimit(1000, clock)
    limit.take_read(bytes(SMALL_BYTES + 1))
    limit.take_read(bytes(SMALL_BYTES))
    assert clock.monotonic_s() == 0.0
    limit.take(0)
    assert clock.monotonic_s() == pytest.approx((2 * SMALL_BYTES + 1) / 1000)


def test_what_was_taken_and_waited_for_is_in_the_metrics() -> None:
    clock, metrics = ManualClock(), Metrics()
    limit = BandwidthLimit(None, clock)
    limit.note = metrics.store.watch("read", lambda: limit.bytes_per_s)

    def sample(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"tiered_sidecar_{name}", {"direction": "read"})

    assert sample("io_limit_bytes_per_second") == 0
    limit.take(700)
    limit.change(100)
    limit.take(200)
    limit.take(100)
    assert sample("io_limit_bytes_per_second") == 100
    assert (sample("io_bytes_total"), sample("io_throttle_wait_seconds_total")) == (1000, pytest.approx(2.0))


def test_tasks_of_a_process_use_the_store_that_was_lent_whatever_its_limits_were(tmp_path: Path) -> None:
    settings = StoreSettings(url=str(tmp_path), read_bytes_per_s=MIB)
    reloaded = settings.model_copy(update={"read_bytes_per_s": None, "bandwidth_bytes_per_s": 64 * 1024})
    budget = IoBudget.of(settings, ManualClock())
    store = DirectoryStore(tmp_path, budget)
    with process_store.lent(settings, store, budget):
        assert process_store.store_of(settings) is store
        assert process_store.store_of(reloaded) is store
        assert process_store.disk_reads(None) is budget.reads
    assert process_store.store_of(settings) is not store
    assert process_store.disk_reads(5 * MIB) is process_store.disk_reads(5 * MIB)
    assert process_store.disk_reads(5 * MIB).bytes_per_s == 5 * MIB


class _NotedLock:
    """A lock that notes when a thread has to wait for it."""

    def __init__(self, has_waiter: Event) -> None:
        self._lock, self._has_waiter = Lock(), has_waiter

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._has_waiter.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_two_threads_that_need_the_same_store_at_once_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, second_has_come = list[DirectoryStore](), Event()

    def slow(_settings: StoreSettings) -> DirectoryStore:
        opened.append(DirectoryStore(tmp_path))
        if len(opened) > 1:
            second_has_come.set()
        assert second_has_come.wait(60)
        return opened[-1]

    monkeypatch.setattr(process_store, "open_store", slow)
    monkeypatch.setattr(process_store, "_opening", _NotedLock(second_has_come), raising=False)
    settings = StoreSettings(url=str(tmp_path))
    with ThreadPoolExecutor(2) as threads:
        first, second = (threads.submit(process_store.store_of, settings) for _ in range(2))
        assert first.result(60) is second.result(60)
    assert len(opened) == 1


def test_real_files_are_read_no_faster_than_the_limit_allows(tmp_path: Path) -> None:
    """On the machine's own clock, which can only make it slower."""
    settings = StoreSettings(url=str(tmp_path), read_bytes_per_s=8 * MIB)
    DirectoryStore(tmp_path).upload(KEY, BytesSource(bytes(4 * MIB)))
    store = open_store(settings, SystemClock())
    begun_s = time.monotonic()  # noqa: TID251 - the machine's own clock is the point
    assert sum(map(len, store.stream(KEY, MIB))) == 4 * MIB
    assert time.monotonic() - begun_s >= 3 / 8  # noqa: TID251 - as above; the last MiB has been read, and waits for nobody
