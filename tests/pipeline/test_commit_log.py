"""The commit log in a store that fails, lies, and has several writers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from sidecar.archive.actions import Add, AdoptTopicId, Lost
from sidecar.archive.checkpoint import encode_checkpoint
from sidecar.archive.commit import Writer, decode_commit, digest, encode_commit
from sidecar.archive.keys import below, checkpoint_key, commit_key
from sidecar.archive.sealed import seal, unseal
from sidecar.archive.state import PartitionState, empty_state
from sidecar.clock import ManualClock
from sidecar.errors import (
    CommitRefused,
    CorruptFile,
    CoverageHole,
    Fenced,
    OutcomeUnknown,
    StoreDenied,
    StoreError,
    StoreUnsafe,
)
from sidecar.model import ArchivedSegment
from sidecar.pipeline.commit_log import CommitConflict, CommitLog
from sidecar.pipeline.lineages import find_all_lineages, find_lineages
from tests.archive.builders import CLUSTER_ID, LINEAGE, NAMELESS, PARTITION, WRITER, a_commit, a_segment, after
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore

ROOT = LINEAGE.root
CHECKPOINT_9 = below(ROOT, checkpoint_key(9))
CHECKPOINT_19 = below(ROOT, checkpoint_key(19))


def a_log(store: MemoryStore, checkpoint_every: int = 100) -> CommitLog:
    """The commit log of the lineage under test."""
    return CommitLog(store, ROOT, store.clock, checkpoint_every=checkpoint_every)


def key_of(number: int) -> str:
    """Full key of a commit."""
    return below(ROOT, commit_key(number))


def filled(store: MemoryStore, count: int, checkpoint_every: int = 100) -> PartitionState:
    """Append so many commits of one segment each."""
    log = a_log(store, checkpoint_every)
    state = log.read()
    for _ in range(count):
        state = log.append([Add(a_segment(state.end_offset or 0))], WRITER, state)
    return state


def test_what_was_appended_is_read() -> None:
    store = MemoryStore()
    state = filled(store, 3)
    assert (state.next_number, state.end_offset) == (3, 300)
    assert a_log(store).read() == state
    first, second = (store.objects[key_of(number)] for number in (0, 1))
    assert decode_commit(second).previous_sha256 == digest(first)


def test_an_empty_store_has_an_empty_state() -> None:
    assert a_log(MemoryStore()).read() == empty_state(LINEAGE)


def test_ten_thousand_requests_are_spared_by_checkpoints() -> None:
    store = MemoryStore()
    state = filled(store, 25, checkpoint_every=10)
    assert {key for key in store.objects if "/checkpoints/" in key} == {CHECKPOINT_9, CHECKPOINT_19}
    store.calls.clear()
    assert a_log(store).read() == state
    assert store.calls["read"] == 1 + 5


def test_every_damaged_checkpoint_is_passed_over_with_a_warning() -> None:
    store = MemoryStore()
    state = filled(store, 25, checkpoint_every=10)
    for damaged, reads in (([CHECKPOINT_19], 2 + 15), ([CHECKPOINT_9], 2 + 25)):
        for key in damaged:
            store.damage(key, lambda data: data[:-9] + b"!" + data[-8:])
        store.calls.clear()
        with capture_logs() as logs:
            assert a_log(store).read() == state
        assert {entry["event"] for entry in logs} == {"checkpoint_passed_over"}
        assert store.calls["read"] == reads


def test_a_checkpoint_of_another_history_is_passed_over() -> None:
    store = MemoryStore()
    state = filled(store, 12, checkpoint_every=10)
    other = after(empty_state(LINEAGE), *[[Add(a_segment(number * 7, number * 7 + 7))] for number in range(10)])
    store.objects[CHECKPOINT_9] = encode_checkpoint(other)
    with capture_logs() as logs:
        assert a_log(store).read() == state
    assert "contradicts itself" in logs[0]["reason"]


def test_a_checkpoint_that_fails_does_not_fail_the_commit() -> None:
    store = MemoryStore(faults=[Fault("put_if_absent", 0, FaultKind.DENIED, "/checkpoints/")])
    with capture_logs() as logs:
        state = filled(store, 11, checkpoint_every=10)
    assert [entry["event"] for entry in logs] == ["checkpoint_not_written"]
    assert below(ROOT, checkpoint_key(10)) in store.objects, "the next commit makes up for it"
    assert a_log(store).read() == state


@pytest.mark.parametrize("missing", [0, 3, 6])
def test_a_missing_commit_is_an_error(missing: int) -> None:
    store = MemoryStore()
    filled(store, 8)
    del store.objects[key_of(missing)]
    with pytest.raises(CorruptFile, match=f"commit {missing} is missing") as caught:
        a_log(store).read()
    assert caught.value.file == key_of(missing)


def test_a_lost_end_shows_as_soon_as_it_was_seen_before() -> None:
    store = MemoryStore()
    state = filled(store, 10, checkpoint_every=10)
    del store.objects[key_of(9)]
    with capture_logs() as logs:
        assert a_log(store).read().next_number == 9
    assert "commit 9 is missing, though it was seen before" in logs[0]["reason"]
    with pytest.raises(CorruptFile, match="commit 9 is missing, though it was seen before"):
        a_log(store).refresh(state)


def test_an_altered_commit_is_an_error() -> None:
    store = MemoryStore()
    filled(store, 4)
    store.damage(key_of(1), lambda data: data.replace(b'"batch_count":7', b'"batch_count":8'))
    with pytest.raises(CorruptFile, match="damaged or was edited"):
        a_log(store).read()


def test_the_newest_commit_vouches_for_itself() -> None:
    store = MemoryStore()
    filled(store, 4)
    store.damage(key_of(3), lambda data: data.replace(b'"batch_count":7', b'"batch_count":8'))
    with pytest.raises(CorruptFile, match="damaged or was edited"):
        a_log(store).read()


def test_a_commit_that_was_edited_and_sealed_again_breaks_the_chain() -> None:
    store = MemoryStore()
    filled(store, 4)

    def edit(data: bytes) -> bytes:
        return seal("commit", unseal("commit", data).replace(b'"batch_count":7', b'"batch_count":8'))

    store.damage(key_of(1), edit)
    with pytest.raises(CorruptFile, match="altered or replaced"):
        a_log(store).read()


@pytest.mark.parametrize("data", [b"", b"{}", b"\0" * 1000, b"[" * 100_000])
def test_a_commit_that_is_none_is_an_error_with_its_key(data: bytes) -> None:
    store = MemoryStore()
    filled(store, 3)
    store.objects[key_of(2)] = data
    with pytest.raises(CorruptFile) as caught:
        a_log(store).read()
    assert caught.value.file == key_of(2)


def test_a_huge_commit_is_not_even_read() -> None:
    store = MemoryStore()
    filled(store, 2)
    store.objects[key_of(1)] = b" " * (16 * 1024 * 1024 + 1)
    store.calls.clear()
    with pytest.raises(CorruptFile, match="no writer of ours exceeds"):
        a_log(store).read()
    assert store.calls["read"] == 0


def test_a_commit_under_another_number_is_an_error() -> None:
    store = MemoryStore()
    filled(store, 3)
    store.objects[key_of(2)] = store.objects[key_of(1)]
    with pytest.raises(CorruptFile, match="holds commit 1"):
        a_log(store).read()


def test_foreign_objects_among_the_commits_are_ignored() -> None:
    store = MemoryStore()
    state = filled(store, 2)
    store.objects[f"{ROOT}/commits/README.txt"] = b"hello"
    assert a_log(store).read() == state


@pytest.mark.parametrize(
    "kind", [FaultKind.UNAVAILABLE, FaultKind.LOST_REQUEST, FaultKind.LOST_ANSWER], ids=lambda kind: kind.name
)
def test_an_unknown_outcome_is_settled_by_reading_back(kind: FaultKind) -> None:
    store = MemoryStore(faults=[Fault("put_if_absent", 1, kind)])
    state = filled(store, 3)
    assert (state.next_number, state.end_offset) == (3, 300)
    assert a_log(store).read() == state


def test_an_answer_lost_to_another_writers_commit_is_a_conflict() -> None:
    store = MemoryStore()
    state = filled(store, 1)
    other = a_log(store).append

    def overtake(operation: str, key: str) -> None:
        if operation == "put_if_absent":
            store.before = lambda operation, key: None
            other([Add(a_segment(100, 150, "other"))], WRITER, state)

    store.before = overtake
    store.faults = [Fault("put_if_absent", 1, FaultKind.LOST_REQUEST)]
    with pytest.raises(CommitConflict) as caught:
        a_log(store).append([Add(a_segment(100, 200))], WRITER, state)
    assert caught.value.state.end_offset == 150
    assert caught.value.retryable


def test_a_store_that_stays_silent_leaves_the_outcome_unknown() -> None:
    clock = ManualClock()
    store = MemoryStore(clock, faults=[Fault("put_if_absent", nth, FaultKind.LOST_REQUEST) for nth in range(4)])
    with pytest.raises(OutcomeUnknown, match="it is not known whether this object stands") as caught:
        filled(store, 1)
    assert caught.value.retryable
    assert store.objects == {}
    assert 1 < clock.monotonic_s() < 10


def test_a_lower_leader_epoch_is_fenced_before_and_after_the_race() -> None:
    store = MemoryStore()
    stale = filled(store, 2)
    newer = a_log(store).append([Add(a_segment(200))], Writer(2, 6, "new leader"), stale)
    for expected in (stale, newer):
        with pytest.raises(Fenced):
            a_log(store).append([Add(a_segment(200))], WRITER, expected)
    assert a_log(store).read() == newer


def test_a_conflict_carries_the_state_to_decide_on() -> None:
    store = MemoryStore()
    stale = filled(store, 2)
    newer = filled(store, 1)
    with pytest.raises(CommitConflict) as caught:
        a_log(store).append([Add(a_segment(200))], WRITER, stale)
    assert caught.value.state == newer


def test_a_store_that_lies_about_success_is_unsafe() -> None:
    with pytest.raises(StoreUnsafe, match="confirmed the put, but has no such object"):
        filled(MemoryStore(faults=[Fault("put_if_absent", 0, FaultKind.LIE)]), 1)


def test_a_store_that_overwrites_is_unsafe() -> None:
    store = MemoryStore(ignore_if_none_match=True)
    state = filled(store, 1)

    def overtake(operation: str, key: str) -> None:
        if operation == "read":
            store.before = lambda operation, key: None
            a_log(store).append([Add(a_segment(100, 150, "other"))], WRITER, state)

    store.before = overtake
    with pytest.raises(StoreUnsafe, match="If-None-Match"):
        a_log(store).append([Add(a_segment(100, 200))], WRITER, state)


def test_a_store_that_denies_says_so() -> None:
    with pytest.raises(StoreDenied):
        filled(MemoryStore(faults=[Fault("put_if_absent", 0, FaultKind.DENIED)]), 1)


def test_a_confirmed_commit_stands_even_if_it_cannot_be_read_back_now() -> None:
    store = MemoryStore(faults=[Fault("read", 0, FaultKind.UNAVAILABLE)])
    with capture_logs() as logs:
        state = filled(store, 1)
    assert logs[0]["event"] == "put_not_read_back"
    assert a_log(store).read() == state


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        ([], CommitRefused),
        ([Add(a_segment(500))], CoverageHole),
        ([Add(a_segment(0, name="again"))], CommitRefused),
        ([Lost(100, 200, "x" * 5000)], CommitRefused),
        ([Lost(100, 200, "\ud800")], CommitRefused),
        ([Add(a_segment(100, max_timestamp_ms=2**70))], CommitRefused),
        ([Lost(100 + number, 101 + number, "y" * 4000) for number in range(4500)], CommitRefused),
    ],
    ids=["empty", "hole", "overlap", "long", "surrogate", "range", "large"],
)
def test_what_could_not_be_read_back_is_never_written(actions: list[Add | Lost], error: type[Exception]) -> None:
    store = MemoryStore()
    state = filled(store, 1)
    with pytest.raises(error):
        a_log(store).append(actions, WRITER, state)
    assert a_log(store).read() == state


def test_a_nameless_lineage_adopts_an_id() -> None:
    store = MemoryStore()
    log = CommitLog(store, NAMELESS.root, store.clock)
    state = log.append([Add(a_segment(0))], WRITER, log.read())
    state = log.append([AdoptTopicId(LINEAGE.incarnation), Add(a_segment(100))], WRITER, state)
    assert log.read().topic_id == LINEAGE.incarnation


def test_time_never_goes_back_in_the_log() -> None:
    clock = ManualClock(5000)
    store = MemoryStore(clock)
    state = filled(store, 1)
    clock.advance_ms(-3000)
    state = a_log(store).append([Add(a_segment(100))], WRITER, state)
    assert state.last_committed_at_ms == 5000


class Archiver:
    """A writer as the pipeline is one: it archives what is not covered yet, and decides again when it loses."""

    def __init__(self, store: MemoryStore, name: str, step: int, end_offset: int) -> None:
        self.log = CommitLog(store, ROOT, ManualClock(), checkpoint_every=3)
        self.name = name
        self.step = step
        self.end_offset = end_offset
        self.attempts = 0
        self.conflicts = 0
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
                self.conflicts += 1
                state = conflict.state
            except (OutcomeUnknown, StoreError):
                state = self.log.read()


def check_once_each(store: MemoryStore, archivers: list[Archiver], end_offset: int) -> None:
    """Each offset is covered by one live segment, and whatever a writer was told is committed is there."""
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
        thread.join(60)
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
@settings(deadline=None, max_examples=150)
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


@pytest.mark.parametrize("nth", range(25))
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


def test_lineages_are_found_and_foreign_folders_passed_over() -> None:
    store = MemoryStore()
    for key in (
        f"{ROOT}/commits/x",
        f"{NAMELESS.root}/segments/y",
        f"{CLUSTER_ID}/orders/3/nonsense/z",
        f"{CLUSTER_ID}/orders/03/0/z",
        f"{CLUSTER_ID}/..x y/0/0/z",
        f"{CLUSTER_ID}/other/0/0/z",
        "stray.txt",
    ):
        store.objects[key] = b""
    assert find_lineages(store, CLUSTER_ID, PARTITION) == (NAMELESS, LINEAGE)
    assert [str(lineage) for lineage in find_all_lineages(store)] == [
        f"{CLUSTER_ID}/orders/3/0",
        ROOT,
        f"{CLUSTER_ID}/other/0/0",
    ]
    assert find_all_lineages(store, include=lambda topic: topic == "orders") == (NAMELESS, LINEAGE)


def test_the_bytes_that_stand_are_those_of_the_commit() -> None:
    store = MemoryStore()
    state = filled(store, 1)
    data = store.objects[key_of(0)]
    assert digest(data) == state.last_sha256
    assert encode_commit(decode_commit(data)) == data
    assert decode_commit(data).actions == a_commit(empty_state(LINEAGE), Add(a_segment(0))).actions
