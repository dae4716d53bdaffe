"""Whatever is wrong with an archive is found and named; what is only beside it is counted."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c
from structlog.testing import capture_logs

from sidecar.archive.actions import Add, Purge, Remove
from sidecar.archive.bundle import assemble_indexes, log_part
from sidecar.archive.commit import digest
from sidecar.archive.keys import COMMITS, SEGMENTS, below, checkpoint_key, commit_key, indexes_key, log_key
from sidecar.archive.state import PartitionState
from sidecar.archive.strict_json import canonical
from sidecar.commits.commit_log import CommitLog
from sidecar.errors import StoreUnavailable
from sidecar.model import ObjectKey, PartName
from sidecar.ports import MIB, ObjectFacts, UnfinishedUpload
from sidecar.verify.segments import ProblemKind
from sidecar.verify.verify import PartitionVerification, SegmentState, verify_archive
from tests.archive.builders import an_id
from tests.archive.example import (
    FIRST,
    LINEAGE,
    SECOND,
    WRITER,
    Bundle,
    a_batch,
    a_bundle,
    example,
    many_partitions,
    write_example,
)
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.verifying import verify_partition

ROOT = LINEAGE.root
FIRST_LOG = below(ROOT, FIRST.segment.log_key)
FIRST_INDEXES = below(ROOT, FIRST.segment.indexes_key)
CHECKPOINT = below(ROOT, checkpoint_key(2))
MINUTE_MS = 60_000


def verified(store: MemoryStore, *, deep: bool) -> PartitionVerification:
    """The finding about the example's lineage."""
    return verify_partition(store, ROOT, store.clock, deep=deep)


def flip(position: int) -> Callable[[bytes], bytes]:
    """Change one byte."""
    return lambda data: data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def findings(found: PartitionVerification) -> set[tuple[str, str]]:
    """Kind and key of each problem."""
    return {(problem.kind.value, problem.key) for problem in found.problems}


def states(found: PartitionVerification) -> list[tuple[int, int | None, str]]:
    """Range and state of each segment."""
    return [(segment.base_offset, segment.end_offset, segment.state.value) for segment in found.segments]


@pytest.mark.parametrize("deep", [False, True])
def test_a_whole_archive_is_sound(deep: bool) -> None:
    found = verified(example(), deep=deep)
    assert found.problems == ()
    assert found.is_sound
    assert states(found) == [(0, 5, "FOUND"), (5, 7, "LOST"), (7, 9, "FOUND")]
    assert found.orphans == ()
    assert found.row.segments == 2


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    ("key", "change", "kind"),
    [
        (FIRST_LOG, None, "missing_object"),
        (FIRST_INDEXES, None, "missing_object"),
        (FIRST_LOG, lambda data: data[:-1], "size_mismatch"),
        (FIRST_INDEXES, lambda data: data + b"\0", "size_mismatch"),
        (FIRST_LOG, flip(200), "checksum_mismatch"),
        (FIRST_INDEXES, flip(0), "checksum_mismatch"),
        (FIRST_INDEXES, flip(97), "checksum_mismatch"),
    ],
)
def test_damaged_objects_are_lost(
    key: ObjectKey,
    change: Callable[[bytes], bytes] | None,
    kind: str,
    deep: bool,
    expect_damage: Callable[[str], None],
) -> None:
    expect_damage(kind)
    store = example()
    if change:
        store.damage(key, change)
    else:
        store.delete([key])
    found = verified(store, deep=deep)
    assert findings(found) == {(kind, key)}
    assert states(found) == [(0, 5, "LOST"), (5, 7, "LOST"), (7, 9, "FOUND")]
    assert not found.is_sound


@pytest.mark.parametrize(("operation", "suffix"), [("stream", ".log"), ("read", ".indexes")])
def test_a_damaged_answer_is_no_damaged_object(operation: str, suffix: str) -> None:
    store = example()
    store.faults = [Fault(operation, 0, FaultKind.DAMAGED_ANSWER, suffix)]
    with capture_logs() as logs:
        assert verified(store, deep=True).is_sound
    assert [(entry["event"], entry["key"].endswith(suffix)) for entry in logs] == [("answer_damaged", True)]
    assert store.calls["stream"] == 3


def freeze(monkeypatch: pytest.MonkeyPatch, key: ObjectKey) -> None:
    """The store says of an object that its storage class has no immediate reads."""
    head = MemoryStore.head

    def frozen(self: MemoryStore, asked: ObjectKey) -> ObjectFacts | None:
        facts = head(self, asked)
        return facts and replace(facts, frozen_in="GLACIER" if asked == key else "")

    monkeypatch.setattr(MemoryStore, "head", frozen)


def test_a_log_without_immediate_reads_is_not_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    store = example()
    freeze(monkeypatch, FIRST_LOG)
    (found,) = verify_archive(store, store.clock)
    assert (found.is_unread, found.differs) == (True, False)
    (problem,) = found.problems
    assert f"{FIRST_LOG}: it is in GLACIER; the object's storage class has no immediate reads" in problem.what


def test_verify_deep_asks_for_the_bytes_of_a_log_without_immediate_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all stores mean the same by the name of a class."""
    store = example()
    freeze(monkeypatch, FIRST_LOG)
    assert [found.problems for found in verify_archive(store, store.clock, deep=True)] == [()]
    store = example()
    store.faults = [Fault("stream", 0, FaultKind.FROZEN, FIRST_LOG)]
    (found,) = verify_archive(store, store.clock, deep=True)
    assert (found.is_unread, found.differs) == (True, False)


@pytest.mark.leaves_damage("size_mismatch")
def test_a_log_without_immediate_reads_hides_no_damage_that_its_size_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    store = example()
    store.damage(FIRST_LOG, lambda data: data + b"x")
    freeze(monkeypatch, FIRST_LOG)
    (found,) = verify_archive(store, store.clock)
    assert (found.is_unread, found.differs) == (True, True)
    assert [problem.kind for problem in found.problems] == [ProblemKind.SIZE_MISMATCH, ProblemKind.UNREADABLE]


@pytest.mark.leaves_damage("size_mismatch")
@pytest.mark.parametrize(
    ("deep", "operation", "frozen", "damaged"),
    [
        (True, "stream", FIRST_LOG, FIRST_INDEXES),
        (True, "read", FIRST_INDEXES, FIRST_LOG),
        (False, "read", FIRST_INDEXES, FIRST_LOG),
    ],
)
def test_one_object_without_immediate_reads_hides_no_damage_of_the_other(
    deep: bool, operation: str, frozen: ObjectKey, damaged: ObjectKey
) -> None:
    store = example()
    store.damage(damaged, lambda data: data + b"x")
    store.faults = [Fault(operation, n, FaultKind.FROZEN, frozen) for n in range(2)]
    (found,) = verify_archive(store, store.clock, deep=deep)
    assert (found.is_unread, found.differs) == (True, True)
    assert [problem.key for problem in found.problems] == [damaged, ROOT]


def test_the_coverage_is_checked_whatever_the_fold_has_let_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    read = CommitLog.read_whole_chain

    def without_the_newest(log: CommitLog) -> PartitionState:
        state = read(log)
        return replace(state, segments=state.segments[:-1])

    monkeypatch.setattr(CommitLog, "read_whole_chain", without_the_newest)
    found = verified(example(), deep=True)
    assert ("coverage", ROOT) in findings(found)
    assert not found.is_sound


class NoChecksums(MemoryStore):
    """A store that keeps no checksums: only reading tells."""

    def __init__(self) -> None:
        super().__init__()
        self.lists_etags = False

    def _facts(self, key: str) -> ObjectFacts:
        return replace(super()._facts(key), crc32c=None)


@pytest.mark.leaves_damage("checksum_mismatch")
def test_only_deep_reads_the_log_where_the_store_keeps_no_checksum() -> None:
    store = NoChecksums()
    write_example(store)
    store.damage(FIRST_LOG, flip(200))
    assert verified(store, deep=False).is_sound
    found = verified(store, deep=True)
    assert {kind for kind, _ in findings(found)} == {"checksum_mismatch", "corrupt_content"}
    assert any("at byte" in problem.what for problem in found.problems)


class AnnouncesMore(NoChecksums):
    """A store whose object ends before the size that it announces."""

    def _facts(self, key: str) -> ObjectFacts:
        facts = super()._facts(key)
        return replace(facts, size_bytes=facts.size_bytes + 5) if key == FIRST_LOG else facts


@pytest.mark.leaves_damage("size_mismatch")
@pytest.mark.parametrize("chunk_bytes", [MIB, 64])
def test_an_object_that_is_damaged_and_too_short_is_called_too_short(
    chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.verify.segments._CHUNK_BYTES", chunk_bytes)
    store = AnnouncesMore()
    write_example(store)
    store.damage(FIRST_LOG, flip(20))
    store.damage(FIRST_LOG, lambda data: data[:-5])
    found = verified(store, deep=True)
    assert findings(found) == {("size_mismatch", FIRST_LOG)}
    (problem,) = found.problems
    assert re.search(rf"\b{len(store.objects[FIRST_LOG])}\b", problem.what)


class SaysOtherwise(MemoryStore):
    """A store whose words of a sound object contradict the commit."""

    def __init__(self, **words: int) -> None:
        super().__init__()
        self.words: dict[str, Any] = words

    def _facts(self, key: str) -> ObjectFacts:
        facts = super()._facts(key)
        return replace(facts, **self.words) if key == FIRST_LOG else facts


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    ("words", "kind", "what"),
    [
        ({"size_bytes": 7}, "size_mismatch", "has 7 bytes in the store"),
        ({"crc32c": 7}, "checksum_mismatch", "has CRC-32C 00000007 as the store reports"),
    ],
)
def test_what_the_store_says_of_a_sound_object_is_compared(
    words: dict[str, int], kind: str, what: str, deep: bool
) -> None:
    store = SaysOtherwise(**words)
    write_example(store)
    found = verified(store, deep=deep)
    assert findings(found) == {(kind, FIRST_LOG)}
    (problem,) = found.problems
    assert problem.what.startswith(what)


@pytest.mark.leaves_damage("missing_object")
def test_a_vanished_object_is_missing_even_between_two_requests() -> None:
    store = NoChecksums()
    write_example(store)
    for key in (FIRST_LOG, FIRST_INDEXES):
        store.before = lambda operation, read_key, key=key: (  # type: ignore[misc]
            store.objects.pop(key, None) if operation in {"read", "stream"} and read_key == key else None
        )
        assert ("missing_object", key) in findings(verified(store, deep=True))


def committed(bundle: Bundle, **changes: object) -> MemoryStore:
    """An archive of one bundle whose entry was changed before it was committed."""
    store = MemoryStore()
    store.objects[below(ROOT, bundle.segment.log_key)] = bundle.log
    store.objects[below(ROOT, bundle.segment.indexes_key)] = bundle.indexes
    log = CommitLog(store, ROOT, store.clock)
    log.append([Add(replace(bundle.segment, **changes))], WRITER, log.read())  # type: ignore[arg-type]
    return store


def bad_part(name: PartName, content: bytes) -> str:
    """What a deep check says, and only a deep one, about a part that was committed with this content."""
    contents = {
        PartName.OFFSET_INDEX: b"",
        PartName.TIME_INDEX: b"",
        PartName.PRODUCER_SNAPSHOT: bytes.fromhex("000148674bc700000000"),
        PartName.LEADER_EPOCHS: b"0\n1\n0 0\n",
        PartName.TRANSACTION_INDEX: b"",
    } | {name: content}
    indexes, parts = assemble_indexes(*contents.values())
    store = committed(replace(FIRST, indexes=indexes), parts=(FIRST.segment.parts[0], *parts))
    assert verified(store, deep=False).is_sound
    found = verified(store, deep=True)
    assert findings(found) == {("corrupt_content", FIRST_INDEXES)}
    return found.problems[0].what


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_count": 4},
        {"highest_batch_leader_epoch": 4},
        {"first_batch_crc": 1},
        {"last_batch_crc": 1},
        {"end_offset": 4, "leader_epochs": FIRST.segment.leader_epochs[:1]},
    ],
    ids=str,
)
@pytest.mark.leaves_damage("corrupt_content")
def test_a_log_that_is_not_the_committed_one_is_found_by_reading_its_batches(changes: dict[str, object]) -> None:
    store = committed(FIRST, **changes)
    assert verified(store, deep=False).is_sound
    found = verified(store, deep=True)
    assert findings(found) == {("corrupt_content", FIRST_LOG)}


@pytest.mark.leaves_damage("corrupt_content")
def test_a_committed_tail_that_is_no_batch_is_found() -> None:
    log = FIRST.log + bytes(5)
    bundle = replace(FIRST, log=log)
    parts = (log_part(len(log), crc32c(log)), *FIRST.segment.parts[1:])
    found = verified(committed(bundle, parts=parts), deep=True)
    assert findings(found) == {("corrupt_content", FIRST_LOG)}
    assert "at byte 238" in found.problems[0].what


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (PartName.OFFSET_INDEX, b"123"),
        (PartName.TIME_INDEX, b"\xff" * 5),
        (PartName.PRODUCER_SNAPSHOT, b"\0\2" + bytes(8)),
        (PartName.LEADER_EPOCHS, b"7\n0\n"),
        (PartName.TRANSACTION_INDEX, b"\1" * 34),
    ],
)
@pytest.mark.leaves_damage("corrupt_content")
def test_parts_that_do_not_parse_are_found(name: PartName, content: bytes) -> None:
    assert name.value in bad_part(name, content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (PartName.OFFSET_INDEX, struct.pack(">ii", 1, 3)),
        (PartName.OFFSET_INDEX, struct.pack(">iiii", 1, 70, 2, -(2**31))),
        (PartName.TIME_INDEX, struct.pack(">qi", 2**60, 1)),
        (PartName.TRANSACTION_INDEX, struct.pack(">hqqqq", 0, 7, 0, 1, 1)),
    ],
)
@pytest.mark.leaves_damage("corrupt_content")
def test_indexes_that_contradict_the_batches_are_found_by_reading_these(name: PartName, content: bytes) -> None:
    assert f"part {name.value} contradicts the batches" in bad_part(name, content)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.leaves_damage("commit_log")
def test_a_broken_commit_log_is_the_one_problem(deep: bool) -> None:
    store = example()
    store.delete([CHECKPOINT])
    store.damage(below(ROOT, commit_key(1)), lambda data: data.replace(b"deleted", b"removed"))
    found = verified(store, deep=deep)
    assert {kind for kind, _ in findings(found)} == {"commit_log"}
    assert found.row.problem is not None
    assert "damaged or was edited" in found.row.problem


@pytest.mark.leaves_damage("commit_log")
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_missing_or_empty_commit_below_the_checkpoint_is_a_problem(is_empty: bool, deep: bool) -> None:
    store = example()
    if is_empty:
        store.damage(below(ROOT, commit_key(0)), lambda _: b"")
    else:
        store.delete([below(ROOT, commit_key(0))])
    assert findings(verified(store, deep=deep)) == {("commit_log", below(ROOT, commit_key(0)))}


@pytest.mark.leaves_damage("commit_log")
def test_only_deep_reads_the_commits_below_the_checkpoint() -> None:
    store = example()
    store.damage(below(ROOT, commit_key(0)), flip(100))
    assert verified(store, deep=False).is_sound
    assert findings(verified(store, deep=True)) == {("commit_log", below(ROOT, commit_key(0)))}


def test_a_commit_that_a_stale_listing_leaves_out_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = example()
    listing, left_out = store.list, below(ROOT, commit_key(0))
    monkeypatch.setattr(store, "list", lambda *a, **k: (f for f in listing(*a, **k) if f.key != left_out))
    assert left_out in {facts.key for facts in listing(ROOT)}
    assert verified(store, deep=False).is_sound


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.leaves_damage("checkpoint")
def test_a_damaged_checkpoint_is_a_problem_but_hides_nothing(deep: bool) -> None:
    store = example()
    store.damage(CHECKPOINT, flip(100))
    with capture_logs():
        found = verified(store, deep=deep)
    assert findings(found) == {("checkpoint", CHECKPOINT)}
    assert [state for _, _, state in states(found)] == ["FOUND", "LOST", "FOUND"]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.leaves_damage("commit_log")
def test_a_checkpoint_without_its_commit_is_a_problem(deep: bool) -> None:
    """Deep, the chain of the commits that are left looks whole."""
    store = example()
    store.delete([below(ROOT, commit_key(2))])
    assert findings(verified(store, deep=deep)) == {("commit_log", below(ROOT, commit_key(2)))}


@pytest.mark.leaves_damage("checkpoint")
def test_a_checkpoint_that_tells_another_story_is_found_by_deep() -> None:
    other = MemoryStore()
    write_example(other)
    inner = json.loads(other.objects[CHECKPOINT])["checkpoint"]
    inner["segments"][0]["batch_count"] = 99
    body = canonical(inner)
    other.objects[CHECKPOINT] = b'{"checkpoint":' + body + b',"sha256":"' + digest(body).encode() + b'"}'
    assert ("checkpoint", ROOT) in findings(verified(other, deep=True))


def test_what_lies_beside_is_counted_with_its_age() -> None:
    store = example()
    clock = store.clock
    old, young, inside = (an_id(name) for name in ("old", "young", "inside"))
    store.put_if_absent(below(ROOT, log_key(9, old)), b"abc")
    clock.sleep_s(3600)
    store.put_if_absent(below(ROOT, log_key(9, young)), b"abcd")
    store.put_if_absent(below(ROOT, indexes_key(9, young)), b"")
    store.put_if_absent(below(ROOT, log_key(3, inside)), b"x")
    store.put_if_absent(below(ROOT, "segments/README"), b"hello")
    store.unfinished = [
        UnfinishedUpload(below(ROOT, log_key(9, young)), "1", 0),
        UnfinishedUpload(ObjectKey("elsewhere"), "2", 0),
    ]
    clock.sleep_s(60)
    found = verified(store, deep=False)
    assert found.is_sound
    assert sorted(orphan.size_bytes for orphan in found.orphans) == [0, 1, 3, 4, 5]
    ages = {orphan.key: orphan.age_ms for orphan in found.orphans}
    assert ages[below(ROOT, log_key(9, old))] == 61 * MINUTE_MS
    assert ages[below(ROOT, log_key(3, inside))] == MINUTE_MS
    beyond = {segment.segment_id: segment.state for segment in found.segments if segment.end_offset is None}
    assert beyond == {old: SegmentState.DELAYED, young: SegmentState.UPLOADING}
    assert found.unfinished_uploads == 1


@pytest.mark.parametrize("gives_times", [True, False])
def test_ages_are_by_this_hosts_clock(*, gives_times: bool) -> None:
    store = example()
    store.put_if_absent(below(ROOT, log_key(9, an_id("young"))), b"abc")
    store.gives_times = gives_times
    for later_ms, state in ((MINUTE_MS, SegmentState.UPLOADING), (60 * MINUTE_MS, SegmentState.DELAYED)):
        found = verify_partition(store, ROOT, ManualClock(store.clock.now_ms() + later_ms))
        assert [orphan.age_ms for orphan in found.orphans] == [later_ms if gives_times else None]
        shown = [segment.state for segment in found.segments if segment.end_offset is None]
        assert shown == [state if gives_times else SegmentState.UPLOADING]


def test_nothing_is_written_with_commits_or_without_any() -> None:
    store, uploads = example(), MemoryStore()
    for place in (store, uploads):
        place.put_if_absent(below(ROOT, log_key(9, an_id("young"))), b"abc")
        before, puts = dict(place.objects), place.calls["put_if_absent"]
        (found,) = verify_archive(place, place.clock)
        assert [orphan.size_bytes for orphan in found.orphans] == [3]
        assert (place.objects, place.calls["put_if_absent"], place.calls["delete"]) == (before, puts, 0)


@pytest.mark.parametrize("kind", [FaultKind.DENIED, FaultKind.UNSUPPORTED])
def test_a_store_that_lists_no_unfinished_uploads_is_no_problem(kind: FaultKind) -> None:
    store = example()
    store.faults = [Fault("unfinished_uploads", 0, kind)]
    found = verified(store, deep=False)
    assert found.is_sound
    assert found.unfinished_uploads is None


def test_removed_segments_wait_for_their_grace_period() -> None:
    store = example()
    log = CommitLog(store, ROOT, store.clock)
    gone = FIRST.segment
    state = log.append([Remove(gone.segment_id, 0, 5, "expired")], WRITER, log.read())
    found = verified(store, deep=True)
    assert found.is_sound
    assert (found.removed_objects, found.orphans) == (2, ())
    assert found.row.start_offset == 7
    log.append([Purge((gone.segment_id,))], WRITER, state)
    assert len(verified(store, deep=False).orphans) == 2


def test_a_store_that_fails_gives_no_verdict() -> None:
    store = example()
    store.faults = [Fault("head", 1, FaultKind.UNAVAILABLE)]
    with pytest.raises(StoreUnavailable):
        verified(store, deep=False)


@pytest.mark.leaves_damage("missing_object")
def test_what_is_found_is_reported_though_another_segment_cannot_be_read() -> None:
    """As of an object that a lifecycle rule has moved to a class that must be restored first."""
    store = example()
    store.delete([FIRST_LOG])
    store.faults = [Fault("head", 0, FaultKind.DENIED, key_part=SECOND.segment.segment_id)]
    (found,) = verify_archive(store, store.clock)
    assert findings(found) == {("missing_object", FIRST_LOG), ("unreadable", ROOT)}
    assert (found.is_unread, found.differs) == (True, True)


def test_a_partition_about_which_the_store_gave_no_answer_is_not_read_further() -> None:
    """Each attempt at a store that is gone takes minutes."""
    store, tried = example(), list[str]()

    def gone(operation: str, key: str) -> None:
        if operation in {"head", "read"} and f"/{SEGMENTS}" in key:
            tried.append(key)
            raise StoreUnavailable("no answer")

    store.before = gone
    with pytest.raises(StoreUnavailable):
        verify_partition(store, ROOT, store.clock, workers=1)
    assert len(tried) == 1


def test_the_json_form() -> None:
    rows = [found.to_json() for found in verify_archive(example(), MemoryStore().clock)]
    row = json.loads(json.dumps(rows[0]))
    assert {
        key: row[key] for key in ("topic", "partition", "topic_id", "start_offset", "end_offset", "leader_epoch")
    } == {
        "topic": "orders",
        "partition": 3,
        "topic_id": LINEAGE.incarnation,
        "start_offset": 0,
        "end_offset": 9,
        "leader_epoch": 5,
    }
    assert row["segments"][0] == {
        "base_offset": 0,
        "end_offset": 5,
        "segment_id": FIRST.segment.segment_id,
        "generation": 0,
        "state": "FOUND",
    }
    assert row["problems"] == []
    assert row["bytes"] == FIRST.segment.size_bytes + SECOND.segment.size_bytes


@pytest.mark.leaves_damage("missing_object")
def test_every_partition_of_an_archive_is_verified() -> None:
    store = many_partitions(20)
    broken = replace(LINEAGE, topic_partition=replace(LINEAGE.topic_partition, partition=15))
    store.delete([below(broken.root, FIRST.segment.log_key)])
    found = list(verify_archive(store, store.clock, deep=True))
    assert [one.row.partition for one in found] == [3, *range(10, 30)]
    assert [one.row.partition for one in found if not one.is_sound] == [15]
    assert list(verify_archive(store, store.clock, include=lambda topic: False)) == []


def test_partitions_without_an_answer_between_others_do_not_end_it() -> None:
    store = many_partitions(20)

    def sometimes_silent(operation: str, key: str) -> None:
        if operation == "head" and f"/{SEGMENTS}" in key and int(key.split("/")[2]) % 2 == 0:
            raise StoreUnavailable("no answer")

    store.before = sometimes_silent
    found = list(verify_archive(store, store.clock))
    assert [one.row.partition for one in found if one.is_unread] == list(range(10, 30, 2))
    assert [one.row.partition for one in found if one.is_sound] == [3, *range(11, 30, 2)]


def test_a_deep_check_of_a_larger_log_takes_one_request_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.segment.log_check.WINDOW_BYTES", 4096)
    monkeypatch.setattr("sidecar.verify.segments._CHUNK_BYTES", 1000)
    bundle = a_bundle(0, 2000, [a_batch(offset, 10) for offset in range(0, 2000, 10)], [(0, 0)])
    store = committed(bundle)
    store.calls.clear()
    assert verified(store, deep=True).problems == ()
    assert store.calls["stream"] == 1
    assert store.calls["head"] == 0, "its size and checksum come with it"
    assert store.calls["read"] < 5


def test_a_deep_check_streams_on_after_a_batch_larger_than_any_window() -> None:
    batches = [
        a_batch(0, 1, padding_bytes=17 * MIB),
        *(a_batch(offset, 1, padding_bytes=MIB) for offset in range(1, 5)),
    ]
    store = committed(a_bundle(0, 5, batches, [(0, 0)]))
    store.calls.clear()
    assert verified(store, deep=True).problems == ()
    assert store.calls["stream"] == 1
    assert store.calls["read"] < 6


@pytest.mark.leaves_damage("size_mismatch")
def test_a_deep_check_names_an_object_that_is_cut_while_it_is_read_behind_a_damaged_batch() -> None:
    bundle = a_bundle(0, 6, [a_batch(offset, 1, padding_bytes=MIB) for offset in range(6)], [(0, 0)])
    store, key = committed(bundle), below(ROOT, bundle.segment.log_key)
    cut = bytearray(bundle.log[: len(bundle.log) // 2])
    cut[1000] ^= 1

    def cut_it(operation: str, used: str) -> None:
        if (operation, used) == ("stream", key):
            store.objects[key] = bytes(cut)

    store.before = cut_it
    (problem,) = verified(store, deep=True).problems
    assert problem.key == key
    assert f"has {len(cut)} bytes in the store, but the commit says {len(bundle.log)}" in problem.what


def test_a_deep_check_reads_each_commit_once_where_no_checkpoint_is() -> None:
    store = example()
    del store.objects[CHECKPOINT]
    commits = [key for key in store.objects if key.startswith(below(ROOT, COMMITS))]
    read: list[str] = []
    store.before = lambda operation, key: read.append(key) if operation == "read" and key in commits else None
    assert verified(store, deep=True).is_sound
    assert sorted(read) == sorted(commits)


def test_the_example_is_what_it_says() -> None:
    store = MemoryStore()
    state: PartitionState = write_example(store)
    assert (state.start_offset, state.end_offset, len(state.holes)) == (0, 9, 1)
