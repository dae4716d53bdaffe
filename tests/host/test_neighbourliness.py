"""What the broker has in the page cache stays there, what only we read goes; and readers take turns."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sidecar.host.disk_readers import PAUSE_S_MAX, DiskReaders, io_pressure_percent
from sidecar.host.page_cache import NO_FOOTPRINT, footprint_before, give_back, resident_pages
from tests.descriptors import open_below
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archive, copy_partitions, tools_for

PAGES = 512
SIZE_BYTES = PAGES * mmap.PAGESIZE


@pytest.fixture
def cold_file() -> Iterator[int]:
    """A file on a real disk of which nothing is in the page cache. Not below /tmp, which may be memory."""
    path = Path(__file__).with_name(f".cold-{os.getpid()}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    path.unlink()
    os.write(descriptor, bytes(SIZE_BYTES))
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    yield descriptor
    os.close(descriptor)


def test_only_what_was_not_there_before_is_given_back(cold_file: int) -> None:
    if resident_pages(cold_file, SIZE_BYTES).any():
        pytest.skip("this file system keeps its pages whatever it is advised (tmpfs, or a network file system)")
    os.posix_fadvise(cold_file, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead: single pages
    warm = [0, 1, 2, 100, PAGES - 1]
    for page in warm:
        os.pread(cold_file, 1, page * mmap.PAGESIZE)
    before = resident_pages(cold_file, SIZE_BYTES)
    assert np.flatnonzero(before).tolist() == warm
    footprint = footprint_before(cold_file, SIZE_BYTES)
    assert sum(end - start for start, end in footprint) == (PAGES - len(warm)) * mmap.PAGESIZE
    assert len(os.pread(cold_file, SIZE_BYTES, 0)) == SIZE_BYTES
    assert resident_pages(cold_file, SIZE_BYTES).all()
    give_back(cold_file, footprint)
    after = resident_pages(cold_file, SIZE_BYTES)
    assert after[warm].all()
    assert after.sum() < PAGES // 4


def test_an_empty_file_and_what_is_no_file_have_no_footprint() -> None:
    reading, writing = os.pipe()
    try:
        assert footprint_before(reading, 0) == NO_FOOTPRINT
        assert footprint_before(reading, 4096) == NO_FOOTPRINT
    finally:
        os.close(reading)
        os.close(writing)


def test_readers_of_one_disk_take_turns_and_those_of_others_do_not_wait() -> None:
    turns = DiskReaders(ManualClock(), readers_per_disk=1)
    entered, waited = threading.Event(), threading.Event()

    def second() -> None:
        with turns.reading(7, beat=waited.set, is_urgent=False):
            entered.set()

    thread = threading.Thread(target=second)
    with turns.reading(7, beat=lambda: None, is_urgent=False):
        thread.start()
        assert waited.wait(120)
        assert not entered.is_set()
        with turns.reading(8, beat=lambda: None, is_urgent=False):
            assert not entered.is_set()
    thread.join(120)
    assert entered.is_set()


def test_who_gives_way_lets_all_others_read_first_and_urgent_ones_besides() -> None:
    clock = ManualClock()
    turns, order = DiskReaders(clock, readers_per_disk=1), list[str]()
    both_wait = threading.Barrier(3)

    def read(name: str, *, gives_way: bool) -> None:
        is_first = [True]

        def beat() -> None:
            if is_first.pop() if is_first else False:
                both_wait.wait(120)

        with turns.reading(7, beat=beat, is_urgent=False, gives_way=gives_way):
            order.append(name)

    threads = [
        threading.Thread(target=read, args=("compaction",), kwargs={"gives_way": True}),
        threading.Thread(target=read, args=("upload",), kwargs={"gives_way": False}),
    ]
    with turns.reading(7, beat=lambda: None, is_urgent=False, gives_way=True):
        for thread in threads:
            thread.start()
        both_wait.wait(120)
        with turns.reading(7, beat=lambda: None, is_urgent=True):
            assert order == []
    for thread in threads:
        thread.join(120)
    assert order == ["upload", "compaction"]


def test_who_gives_way_gets_on_after_a_while() -> None:
    clock = ManualClock()
    turns = DiskReaders(clock, readers_per_disk=1)
    turns._waiting[7] = 1
    with turns.reading(7, beat=lambda: clock.sleep_s(PAUSE_S_MAX), is_urgent=False, gives_way=True):
        assert clock.monotonic_s() == PAUSE_S_MAX


def test_a_bound_of_pressure_that_is_taken_away_meanwhile_ends_the_pause() -> None:
    clock = ManualClock()

    def pressure() -> float:
        turns.pause_above_percent = None
        return 99.0

    turns = DiskReaders(clock, 1, 50.0, pressure)
    with turns.reading(7, beat=lambda: None, is_urgent=False):
        assert clock.monotonic_s() < 1


def test_pressure_holds_a_reader_up_for_a_while_but_not_where_retention_is_near() -> None:
    clock, pressures = ManualClock(), iter([90.0, 80.0, 20.0])
    turns = DiskReaders(clock, 1, 50.0, lambda: next(pressures))
    with turns.reading(7, beat=lambda: None, is_urgent=False):
        assert clock.monotonic_s() == 1.0
    always = DiskReaders(clock, 1, 50.0, lambda: 99.0)
    with always.reading(7, beat=lambda: None, is_urgent=False, gives_way=True, goes_on=True):
        assert clock.monotonic_s() == 1.0
    with always.reading(7, beat=lambda: None, is_urgent=True):
        assert clock.monotonic_s() == 1.0
    with always.reading(7, beat=lambda: None, is_urgent=False):
        assert clock.monotonic_s() == 1.0 + PAUSE_S_MAX


def test_the_pressure_is_read_as_the_kernel_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "io"
    assert io_pressure_percent(file) == 0.0
    file.write_text("some avg10=12.34 avg60=1.00 avg300=0.10 total=1\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=1\n")
    assert io_pressure_percent(file) == 12.34


def test_archiving_gives_back_every_descriptor(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        assert archive(context, log_dir, "orders").errors == []
    assert open_below(tmp_path) == []
