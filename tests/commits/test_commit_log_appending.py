"""Appending to a commit log in a store that fails, lies, and has other writers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from sidecar.archive.actions import Add, AdoptTopicId, Lost
from sidecar.archive.commit import Writer
from sidecar.archive.state import empty_state, newest_part
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.commits.stored_commits import SETTLE_S_PATIENT, proves_not_committed
from sidecar.errors import (
    CommitRefused,
    CorruptFile,
    CoverageHole,
    Fenced,
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    SettingsError,
    SidecarError,
    StoreDenied,
    StoreError,
    StoreMissing,
    StoreUnavailable,
    StoreUnsafe,
)
from sidecar.model import ObjectKey
from tests.archive.builders import LINEAGE, NAMELESS, WRITER, a_segment
from tests.commits.commit_logs import CHECKPOINT_9, ROOT, a_log, checkpoints_every, filled, key_of
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore


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
    with pytest.raises(OutcomeUnknown, match="the outcome of this write is unknown") as caught:
        filled(store, 1)
    assert caught.value.retryable
    assert store.objects == {}
    assert not proves_not_committed(caught.value)
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
        if operation == "read" and key == key_of(1):
            store.before = lambda operation, key: None
            a_log(store).append([Add(a_segment(100, 150, "other"))], WRITER, state)

    store.before = overtake
    with pytest.raises(StoreUnsafe, match="If-None-Match"):
        a_log(store).append([Add(a_segment(100, 200))], WRITER, state)


ERRORS = [
    StoreError("418"),
    StoreUnavailable("503"),
    OutcomeUnknown("no answer"),
    StoreDenied("403: expired credentials"),
    SettingsError("301: another region"),
    StoreMissing("no such bucket"),
    StoreUnsafe("501"),
    ObjectDamaged("another checksum"),
    ObjectMissing("404"),
    ObjectExists("412"),
]


class Failing(MemoryStore):
    """From the first put on, `times` calls of one operation end with this error. A put may have taken hold all the same."""

    def __init__(self, error: SidecarError, operation: str, times: int, *, is_done: bool) -> None:
        super().__init__()
        self.error, self.operation, self.left, self.is_done = error, operation, times, is_done
        self.is_sent = False

    def fail(self, operation: str) -> None:
        if self.is_sent and operation == self.operation and self.left:
            self.left -= 1
            raise self.error

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        self.is_sent = True
        if self.is_done and key not in self.objects:
            super().put_if_absent(key, body)
        self.fail("put_if_absent")
        super().put_if_absent(key, body)

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        self.fail("read")
        return super().read(key, position, size_bytes, whole=whole)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("times", [1, 3, 100])
@pytest.mark.parametrize(("operation", "is_done"), [("put_if_absent", True), ("put_if_absent", False), ("read", False)])
def test_after_the_put_was_sent_no_class_of_error_proves_an_outcome(
    error: SidecarError, times: int, operation: str, is_done: bool
) -> None:
    store = Failing(error, operation, times, is_done=is_done)
    is_contradiction = isinstance(error, ObjectExists) and operation == "put_if_absent" and not is_done
    if is_contradiction or (times == 100 and not is_done):
        with pytest.raises((OutcomeUnknown, StoreUnsafe), match="No object was deleted") as caught:
            filled(store, 1)
        assert not proves_not_committed(caught.value)
    else:
        assert filled(store, 1) == a_log(store).read()


@pytest.mark.parametrize("times", [3, 100])
def test_damaged_bytes_are_not_taken_for_another_writers_commit(times: int) -> None:
    """A proxy flips a byte of our own commit while it is read back."""
    store = MemoryStore()
    read, left = store.read, [times]

    def flipped(key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        data = read(key, position, size_bytes, whole=whole)
        left[0] -= 1
        return data if left[0] < 0 else data[:100] + bytes([data[100] ^ 1]) + data[101:]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "read", flipped)
        if times == 3:
            assert filled(store, 1).next_number == 1
        else:
            with pytest.raises(OutcomeUnknown, match="damaged or was edited"):
                filled(store, 1)
    assert a_log(store).read().next_number == 1


def test_a_patient_writer_asks_for_a_minute() -> None:
    clock = ManualClock()
    store = Failing(StoreDenied("403"), "read", 9, is_done=False)
    log = CommitLog(store, ROOT, clock, settle_s=SETTLE_S_PATIENT)
    state = log.append([Add(a_segment(0))], WRITER, empty_state(LINEAGE))
    assert state == a_log(store).read()
    assert 30 < clock.monotonic_s() < 60


def test_errors_before_the_put_and_lost_races_prove_that_nothing_was_committed() -> None:
    store = MemoryStore()
    stale = filled(store, 2)
    filled(store, 1)
    for actions, writer, kind in (
        ([Add(a_segment(500))], WRITER, CoverageHole),
        ([], WRITER, CommitRefused),
        ([Add(a_segment(200))], Writer(1, 0, "old leader"), Fenced),
        ([Add(a_segment(200))], WRITER, CommitConflict),
    ):
        with pytest.raises(kind) as caught:
            a_log(store).append(actions, writer, stale)
        assert proves_not_committed(caught.value)


def test_who_loses_waits_longer_each_time_and_reads_the_winner_by_key() -> None:
    """Listings are 10 s stale. Another writer commits before each put of ours."""
    store = MemoryStore(ManualClock(1_700_000_000_000))
    store.listings_stale_ms = 10_000
    winner, log = a_log(store), a_log(store)
    state, known, waits = log.read(), filled(store, 1), list[float]()
    assert state.next_number == 0
    for lost in range(6):
        begun_s = store.clock.monotonic_s()
        with pytest.raises(CommitConflict) as caught:
            log.append([Add(a_segment(state.end_offset or 0, name=f"late {lost}"))], WRITER, state)
        waits.append(round(store.clock.monotonic_s() - begun_s, 3))
        state = caught.value.state
        assert state == known, "decides on what the winner has committed, though no listing shows it"
        known = winner.append([Add(a_segment(known.end_offset or 0))], WRITER, known)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]


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


def replaced(store: MemoryStore, key: str) -> None:
    """As after a rollback of the bucket: another writer has committed under the same number."""
    del store.objects[key]
    log = a_log(store)
    state = log.read()
    log.append([Lost(state.end_offset or 0, (state.end_offset or 0) + 1, "another history")], WRITER, state)


LOST: dict[str, Callable[[MemoryStore], None]] = {
    "its commit": lambda store: store.objects.pop(key_of(4)) and None,
    "everything": lambda store: store.objects.clear(),
    "replaced": lambda store: replaced(store, key_of(4)),
}


@pytest.mark.parametrize("lost", LOST)
def test_nothing_is_put_on_top_of_a_commit_that_is_gone(lost: str) -> None:
    store = MemoryStore()
    log = a_log(store)
    state = filled(store, 5)
    LOST[lost](store)
    left = dict(store.objects)
    for _ in range(2):
        with pytest.raises(CorruptFile, match=r"commit 4 (is missing|has SHA-256)") as caught:
            log.append([Add(a_segment(500))], WRITER, state)
        assert caught.value.file == key_of(4)
        assert proves_not_committed(caught.value)
    assert store.objects == left


def test_a_resumed_writer_sees_by_a_checkpoint_that_newer_commits_are_missing() -> None:
    """What it remembers is commit 4. Another writer's commits went up to 9, with a checkpoint, and the last ones are lost."""
    store = MemoryStore()
    state = filled(store, 5)
    log = a_log(store)
    newer = filled(store, 5, checkpoint_every=10)
    assert CHECKPOINT_9 in store.objects
    gone = {key_of(number): store.objects.pop(key_of(number)) for number in range(5, 10)}
    assert log.resume(state, -1) == state
    left = dict(store.objects)
    for _ in range(2):
        with pytest.raises(CorruptFile, match="commit 9 is missing, although this sidecar, a checkpoint or") as caught:
            log.append([Add(a_segment(500))], WRITER, state)
        assert proves_not_committed(caught.value)
    assert store.objects == left
    store.objects |= gone
    with pytest.raises(CommitConflict) as conflict:
        log.append([Add(a_segment(500))], WRITER, state)
    assert conflict.value.state == newer
    assert log.append([Add(a_segment(1000))], WRITER, newer) == a_log(store).read_whole_chain()


def test_a_commit_that_was_lost_to_and_then_disappears_is_not_made_again() -> None:
    """The store fails while the winner's commits are read: what the writer expects is no longer the newest it has seen."""
    store = MemoryStore()
    log, state = a_log(store), filled(store, 5)
    filled(store, 1)
    store.faults = [Fault("list", nth, FaultKind.DENIED) for nth in range(9)]
    with pytest.raises(StoreDenied):
        log.append([Add(a_segment(500))], WRITER, state)
    store.faults = []
    del store.objects[key_of(5)]
    left = dict(store.objects)
    with pytest.raises(CorruptFile, match="commit 5 is missing") as caught:
        log.append([Add(a_segment(500))], WRITER, state)
    assert proves_not_committed(caught.value)
    assert store.objects == left


def test_a_resumed_writer_lists_checkpoints_once_and_reads_none_that_it_knows() -> None:
    store = MemoryStore()
    state = filled(store, 11, checkpoint_every=10)
    log = a_log(store)
    log.resume(state, 10)
    for expected in ({"read": 2, "put_if_absent": 1, "list": 1}, {"read": 2, "put_if_absent": 1}):
        store.calls.clear()
        state = log.append([Add(a_segment(state.end_offset or 0))], WRITER, state)
        assert store.calls == expected, "commit n-1, and commit n back"


@pytest.mark.parametrize("at_rest", [False, True])
def test_an_archive_that_cannot_be_read_for_a_checkpoint_ends_its_writer(at_rest: bool) -> None:
    """The commit that was due for one stays: it is proven to be stored."""
    store = MemoryStore()
    whole = filled(store, 9)
    log = a_log(store)
    state = newest_part(whole, 850)
    log.resume(state, -1)
    del store.objects[key_of(3)]
    with checkpoints_every(10), capture_logs() as logs:
        state = log.append([Add(a_segment(900))], WRITER, state)
    assert [entry["event"] for entry in logs] == []
    assert key_of(9) in store.objects
    for _ in range(2):
        with pytest.raises(CorruptFile, match="commit 3 is missing"):
            log.leave_checkpoint(state) if at_rest else log.append([Add(a_segment(1000))], WRITER, state)
    assert key_of(10) not in store.objects


def test_a_writer_goes_on_when_the_archive_can_be_read_again() -> None:
    store = MemoryStore()
    whole = filled(store, 9)
    log = a_log(store)
    state = newest_part(whole, 850)
    log.resume(state, -1)
    lost = store.objects.pop(key_of(3))
    with checkpoints_every(10):
        state = log.append([Add(a_segment(900))], WRITER, state)
    store.objects[key_of(3)] = lost
    log.leave_checkpoint(state)
    assert log.append([Add(a_segment(1000))], WRITER, state).next_number == 11


def test_a_delayed_put_that_replaces_a_later_commit_stops_the_next_one() -> None:
    """A store without conditions. A proxy holds the first put of commit 1 until the same writer has committed another one."""
    store = MemoryStore()
    log, state = a_log(store), filled(store, 1)
    delayed: list[bytes] = []
    put = store.put_if_absent

    def lost(key: ObjectKey, body: bytes) -> None:
        delayed.append(body)
        raise OutcomeUnknown("no answer")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "put_if_absent", lost)
        with pytest.raises(OutcomeUnknown):
            log.append([Add(a_segment(100))], WRITER, state)
    assert store.put_if_absent == put
    state = log.append([Add(a_segment(100, name="again"))], WRITER, log.read())
    store.objects[key_of(1)], replaced_commit = delayed[0], store.objects[key_of(1)]
    with pytest.raises(CorruptFile, match="commit 1 has SHA-256"):
        log.append([Add(a_segment(200))], WRITER, state)
    store.objects[key_of(1)] = replaced_commit
    assert log.append([Add(a_segment(200))], WRITER, state) == a_log(store).read_whole_chain()
