"""Several writers of one commit log, in any order and with any faults: each range is archived once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.archive.actions import Add
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.errors import (
    OutcomeUnknown,
    StoreError,
)
from sidecar.model import ArchivedSegment
from tests.archive.builders import WRITER, a_segment
from tests.commits.commit_logs import ROOT, a_log, checkpoints_every
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore


@pytest.fixture(autouse=True, scope="module")
def _often_with_a_checkpoint() -> Iterator[None]:
    with checkpoints_every(3):
        yield


class Archiver:
    """A writer as the pipeline is one: it archives what is not covered yet, and decides again when it loses."""

    def __init__(self, store: MemoryStore, name: str, step: int, end_offset: int) -> None:
        self.log = CommitLog(store, ROOT, ManualClock())
        self.name = name
        self.step = step
        self.end_offset = end_offset
        self.attempts = 0
        self.confirmed: list[ArchivedSegment] = []

    def next_segment(self, state: PartitionState) -> ArchivedSegment | None:
        base = state.end_offset or 0
        self.attempts += 1
        if base >= self.end_offset:
            return None
        return a_segment(base, min(base + self.step, self.end_offset), (self.name, self.attempts))

    def run(self) -> None:
        state = self.log.read()
        while segment := self.next_segment(state):
            try:
                state = self.log.append([Add(segment)], WRITER, state)
                self.confirmed.append(segment)
            except CommitConflict as conflict:
                state = conflict.state
            except (OutcomeUnknown, StoreError):
                state = self.log.read()


def check_once_each(store: MemoryStore, archivers: list[Archiver], end_offset: int) -> None:
    """Each offset is covered by one live segment, and whatever a writer knows to be committed is there."""
    state = CommitLog(store, ROOT, ManualClock()).read_whole_chain()
    assert state.end_offset == end_offset
    assert [segment.base_offset for segment in state.segments[1:]] == [
        segment.end_offset for segment in state.segments[:-1]
    ]
    live = {segment.segment_id for segment in state.segments}
    confirmed = [segment.segment_id for archiver in archivers for segment in archiver.confirmed]
    assert len(confirmed) == len(set(confirmed))
    assert set(confirmed) <= live
    assert CommitLog(store, ROOT, ManualClock()).read() == state


def test_racing_threads_archive_each_range_once() -> None:
    store = MemoryStore()
    archivers = [Archiver(store, name, step, 4000) for name, step in (("a", 50), ("b", 70), ("c", 50), ("d", 30))]
    start = threading.Barrier(len(archivers))
    failures: list[BaseException] = []

    def race(archiver: Archiver) -> None:
        start.wait()
        try:
            archiver.run()
        except BaseException as error:  # noqa: BLE001 - shown to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=race, args=(archiver,)) for archiver in archivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert failures == []
    check_once_each(store, archivers, 4000)
    assert sum(len(archiver.confirmed) for archiver in archivers) == a_log(store).read().next_number


kinds = st.sampled_from([FaultKind.UNAVAILABLE, FaultKind.LOST_REQUEST, FaultKind.LOST_ANSWER])


@given(
    interruptions=st.lists(st.integers(0, 2), max_size=60),
    faults=st.lists(
        st.builds(Fault, st.sampled_from(["put_if_absent", "read"]), st.integers(0, 25), kinds), max_size=8
    ),
    steps=st.tuples(*[st.integers(5, 40)] * 3),
)
@settings(deadline=None, max_examples=40)
def test_any_interleaving_and_any_faults_leave_each_range_once(
    interruptions: list[int], faults: list[Fault], steps: tuple[int, ...]
) -> None:
    """Writer 0 runs; before each of its store calls another writer may make one whole attempt."""
    store = MemoryStore(ManualClock(), faults=faults)
    archivers = [Archiver(store, str(number), step, 200) for number, step in enumerate(steps)]
    turns = iter(interruptions)

    def interrupt(operation: str, key: str) -> None:
        turn = next(turns, 0)
        if turn:
            store.before = lambda operation, key: None
            with suppress(StoreError, CommitConflict):
                one_attempt(archivers[turn])
            store.before = interrupt

    store.before = interrupt
    for archiver in archivers:
        retrying(archiver.run)
    store.before = lambda operation, key: None
    store.faults = []
    check_once_each(store, archivers, 200)


def one_attempt(archiver: Archiver) -> None:
    """Read, and append one segment."""
    state = archiver.log.read()
    segment = archiver.next_segment(state)
    if segment is not None:
        archiver.log.append([Add(segment)], WRITER, state)
        archiver.confirmed.append(segment)


def retrying(work: Callable[[], None]) -> None:
    """As the daemon does: again after every store error; the faults of a test are finite."""
    for _ in range(40):
        try:
            return work()
        except StoreError:
            continue
    pytest.fail("40 attempts were not enough")


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("nth", range(24))
def test_a_crash_between_any_two_calls_loses_and_doubles_nothing(nth: int) -> None:
    """The process ends before its n-th call to the store, hence after its n-1st took effect; another one goes on."""
    store = MemoryStore()
    calls = itertools.count()

    def kill(operation: str, key: str) -> None:
        if next(calls) == nth:
            raise Killed

    store.before = kill
    first = Archiver(store, "first", 20, 200)
    with pytest.raises(Killed):
        first.run()
    store.before = lambda operation, key: None
    second = Archiver(store, "second", 20, 200)
    second.run()
    check_once_each(store, [first, second], 200)
