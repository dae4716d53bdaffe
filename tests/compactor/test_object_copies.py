"""Copies of archived segments in files of this machine: as they are in the store, and where the disk does not give them back."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from sidecar.compactor.archive import archived_log
from sidecar.compactor.archive.archived_log import ArchivedLog, Copy
from sidecar.errors import CorruptFile, PartitionError, StagingFull
from sidecar.logformat.window import ReadAt
from sidecar.rewriting import stages
from sidecar.rewriting.job import SurveyedSegment
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import SETTINGS, archived, log_of, only_state, use

COPIES = pytest.mark.parametrize("copy", [Copy.KEPT, Copy.SCANNED])


def first_log(store: MemoryStore, work_dir: Path, copy: Copy) -> tuple[ArchivedLog, bytes]:
    state = only_state(store)
    log = ArchivedLog(SETTINGS, state.lineage.root, state.segments[0], work_dir, copy)
    return log, log_of(store, state, state.segments[0])


def content(read_at: ReadAt, size_bytes: int) -> bytes:
    buffer = bytearray(size_bytes)
    assert read_at(0, memoryview(buffer)) == size_bytes
    return bytes(buffer)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    found = archived(tmp_path / "archive", "compacted-0")
    use(monkeypatch, found)
    monkeypatch.setattr(archived_log, "RANGE_BYTES", 1000)
    return found


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(3) as pool:
        yield pool


@COPIES
def test_a_copy_has_the_bytes_of_the_object(store: MemoryStore, tmp_path: Path, threads: Executor, copy: Copy) -> None:
    log, expected = first_log(store, tmp_path, copy)
    assert len(expected) > 2000
    with log.fetched(threads) as read_at:
        assert content(read_at, len(expected)) == expected
    assert len(list(tmp_path.glob("*.copy"))) == (copy is Copy.KEPT)
    log.forget_copy()
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.leaves_damage("size_mismatch")
@COPIES
def test_an_object_that_is_too_short_leaves_no_copy(
    store: MemoryStore, tmp_path: Path, threads: Executor, copy: Copy
) -> None:
    log, whole = first_log(store, tmp_path, copy)
    store.objects[log.name] = whole[:-1]
    with pytest.raises(CorruptFile, match="but the commit says"), log.fetched(threads):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@COPIES
def test_a_copy_that_cannot_be_read_back_is_an_error_of_one_partition(
    store: MemoryStore, tmp_path: Path, threads: Executor, monkeypatch: pytest.MonkeyPatch, copy: Copy
) -> None:
    """So that the others go on; an OSError would end the whole job."""

    def bad_sector(_descriptor: int, _buffers: object, _position: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    log, _ = first_log(store, tmp_path, copy)
    monkeypatch.setattr(os, "preadv", bad_sector)
    with pytest.raises((StagingFull, PartitionError), match="Input/output error"), log.fetched(threads) as read_at:
        read_at(0, memoryview(bytearray(100)))


class _Noted:
    """A `SegmentSurvey` that notes when it is fetched."""

    def __init__(self) -> None:
        self.is_fetched = Event()

    def fetch(self, _threads: Executor) -> None:
        self.is_fetched.set()

    def __call__(self, _threads: Executor) -> AbstractContextManager[SurveyedSegment]:
        raise AssertionError("it is not scanned here")


def test_the_next_object_is_fetched_while_one_is_scanned() -> None:
    surveys = [_Noted(), _Noted()]
    with stages._fetching(surveys) as (_, fetched):
        next(fetched)
        assert surveys[1].is_fetched.wait(60)


class _UntilShutdown(_Noted):
    """One whose fetching goes on until its threads are shut down."""

    def __init__(self, has_ended: Event) -> None:
        super().__init__()
        self.has_begun, self.has_ended = Event(), has_ended

    def fetch(self, threads: Executor) -> None:
        self.has_begun.set()
        assert self.has_ended.wait(60)
        super().fetch(threads)


def test_an_error_waits_for_the_fetching_that_has_begun_and_cancels_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    has_ended, pools = Event(), list[ThreadPoolExecutor]()

    class Pool(ThreadPoolExecutor):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            pools.append(self)

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            has_ended.set()
            super().shutdown(wait)

    monkeypatch.setattr(stages, "ThreadPoolExecutor", Pool)
    first, second, third = _Noted(), _UntilShutdown(has_ended), _Noted()

    def fail() -> None:
        with stages._fetching([first, second, third]) as (_, fetched):
            next(fetched)
            assert second.has_begun.wait(60)
            raise CorruptFile("damaged")

    with pytest.raises(CorruptFile, match="damaged"):
        fail()
    assert (second.is_fetched.is_set(), third.is_fetched.is_set()) == (True, False)
    assert [thread for pool in pools for thread in pool._threads if thread.is_alive()] == []


class _EndingThreads(ThreadPoolExecutor):
    """Ends once so many ranges were asked for. The first one runs until then, the others wait."""

    def __init__(self, ranges: int) -> None:
        super().__init__(1)
        self.asked, self.ranges, self.has_ended = list[Future[Any]](), ranges, Event()

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        self.asked.append(super().submit(function, *arguments, **named))
        if len(self.asked) == self.ranges:
            self.shutdown(wait=False, cancel_futures=True)
            self.has_ended.set()
        return self.asked[-1]


@pytest.mark.parametrize(("ends_early", "error"), [(True, RuntimeError), (False, CancelledError)])
def test_a_scan_that_fails_ends_the_fetching_of_the_next_object(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_early: bool, error: type[Exception]
) -> None:
    log, whole = first_log(store, tmp_path, Copy.KEPT)
    threads = _EndingThreads(1 if ends_early else -(-len(whole) // archived_log.RANGE_BYTES))
    read = archived_log.read_committed

    def slow(*arguments: Any) -> bytes:
        assert threads.has_ended.wait(60)
        return read(*arguments)

    monkeypatch.setattr(archived_log, "read_committed", slow)
    with pytest.raises(error):
        log.fetch(threads)
    assert threads.asked[0].result(0) is None  # It has written: none writes to a file that is closed.
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_lineages_with_the_same_segment_ids_have_copies_of_their_own(
    store: MemoryStore, tmp_path: Path, threads: Executor
) -> None:
    log, expected = first_log(store, tmp_path, Copy.KEPT)
    other = replace(log, root=f"{log.root}-copied")
    store.objects[other.name] = bytes(len(expected))
    log.fetch(threads)
    with other.fetched(threads) as read_at:
        assert content(read_at, len(expected)) == bytes(len(expected))


def test_a_copy_that_was_found_damaged_is_fetched_again(store: MemoryStore, tmp_path: Path, threads: Executor) -> None:
    log, _ = first_log(store, tmp_path, Copy.KEPT)
    with pytest.raises(CorruptFile), log.fetched(threads):
        raise CorruptFile("the answer was damaged", file=log.name)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
