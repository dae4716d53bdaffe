"""`compact --undo`: the segments that a compaction replaced are live again, and no `gc` may take them away meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.archive.actions import (
    UNDONE,
    Add,
    Clean,
    DeleteRecords,
    Lost,
    Purge,
    Reinstate,
    Remove,
    compacted_by,
)
from sidecar.archive.checkpoint import encode_checkpoint
from sidecar.archive.commit import decode_commit
from sidecar.archive.keys import below, checkpoint_key, commit_key
from sidecar.archive.replacement import (
    UNDO_SEGMENTS_MAX,
    NoUndo,
    Obstacle,
    newest_replacement,
    obstacle_to_undo,
)
from sidecar.archive.state import PartitionState
from sidecar.commits import commit_log
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive import undo as archive_undo
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.compactor.archive.undo import Undone, undo_compaction
from sidecar.compactor.candidate_queue import CandidateAssessor, LedPartition
from sidecar.compactor.gc import Collected, collect_garbage
from sidecar.config import CompactionPolicy
from sidecar.errors import (
    CommitRefused,
    CorruptFile,
    Fenced,
    PartitionError,
    SidecarError,
    StoreDenied,
    StoreUnsupported,
)
from sidecar.model import ArchivedSegment, ObjectKey
from sidecar.ports import ObjectFacts
from sidecar.restore.request import LeaderEpochMode
from sidecar.verify.status import archive_status, undo_until_ms
from sidecar.verify.verify import verify_archive
from tests.archive.builders import a_segment
from tests.commits.commit_logs import ROOT, checkpoints_every
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.seeded_randomness import SeededRandomness
from tests.restore.archives import restored
from tests.runner.archives import NOW_MS, WRITER, archived, compact_one, compactor, only_state, use

DAY_MS = 86_400_000
RULES = CompactionRules(NOW_MS)


def root_of(store: MemoryStore) -> ObjectKey:
    return ObjectKey(only_state(store).lineage.root)


def undo(store: MemoryStore, **options: Any) -> Undone:
    return undo_compaction(store, root_of(store), store.clock, **options)


def collect(store: MemoryStore, after_ms: int = 2 * DAY_MS) -> Collected:
    """What `gc` deletes so long after the archive was compacted."""
    now_ms = NOW_MS + after_ms
    root = root_of(store)
    return collect_garbage(store, root, ManualClock(now_ms), WRITER, store_now_ms=now_ms, grace_period_ms=DAY_MS)


@pytest.fixture
def compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryStore, PartitionState]:
    """The archive after a compaction, and its state before."""
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    before = only_state(store)
    assert compact_one(store, before, RULES, tmp_path).error is None
    assert only_state(store).segments != before.segments
    return store, before


def is_sound(store: MemoryStore) -> bool:
    return [found.problems for found in verify_archive(store, store.clock, deep=True)] == [()]


def test_an_undo_makes_the_segments_live_again_that_were_replaced(
    compacted: tuple[MemoryStore, PartitionState],
) -> None:
    store, before = compacted
    after, objects = only_state(store), dict(store.objects)
    found = undo(store)
    state = only_state(store)
    assert found.commit_number == after.next_number == state.next_number - 1
    assert found.to_json()["undone_commit"] == after.next_number - 1
    assert state.segments == before.segments
    assert (state.clean, state.holes, state.end_offset) == (before.clean, before.holes, before.end_offset)
    assert {key for key in store.objects if "/segments/" in key} == {key for key in objects if "/segments/" in key}
    gone = {segment.segment_id for segment in after.segments} - {segment.segment_id for segment in before.segments}
    assert {removed.segment_id for removed in state.removed} == gone
    assert {removed.reason for removed in state.removed} == {UNDONE}
    assert is_sound(store)
    assert collect(store).removed == len(gone)
    assert is_sound(store)
    assert only_state(store).segments == before.segments


def test_a_restore_after_the_undo_gives_what_one_before_the_compaction_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    logs = []
    for name in ("before", "compacted", "undone"):
        if name == "compacted":
            assert compact_one(store, only_state(store), RULES, tmp_path).error is None
        elif name == "undone":
            undo(store)
        log_dir = tmp_path / name
        restored(store, log_dir, "orders", leader_epochs=LeaderEpochMode.KEEP)
        logs.append({path.name: path.read_bytes() for path in (log_dir / "orders-0").iterdir()})
    assert logs[0] == logs[2] != logs[1]


@pytest.mark.parametrize("partition", ["orders-0", "transactions-0", "compacted-0"])
def test_a_second_compaction_that_drops_no_record_keeps_the_undo(
    partition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second pass finds markers without data of their transaction: it would do no more than set their delete horizon."""
    store = archived(tmp_path, partition)
    use(monkeypatch, store)
    before = only_state(store)
    assert compact_one(store, before, RULES, tmp_path).commit_number is not None
    after, objects = only_state(store), dict(store.objects)
    for staging in (tmp_path, None):
        again = compact_one(store, after, RULES, staging)
        assert (again.error, again.commit_number) == (None, None)
        assert all(output.unchanged for output in again.outputs)
        assert [output.end_offset for output in again.outputs] == [
            live.end_offset for live in after.segments if live.generation
        ]
        assert again.bytes_after == again.bytes_before
        assert again.records_after == again.records_before
        assert {key for key in store.objects if "_probe/" not in key} == set(objects)
    undo(store)
    assert only_state(store).segments == before.segments


@pytest.mark.parametrize("partition", ["orders-0", "transactions-0", "compacted-0"])
def test_another_strategy_that_drops_no_record_is_noted_and_keeps_the_undo(
    partition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right strategy after the wrong one: what the wrong one dropped comes back by the undo, and by nothing else."""
    store = archived(tmp_path, partition)
    use(monkeypatch, store)
    before = only_state(store)
    assert compact_one(store, before, replace(RULES, strategy=Strategy.TIMESTAMP), tmp_path).commit_number is not None
    after, segments = only_state(store), {key for key in store.objects if "/segments/" in key}
    found = compact_one(store, after, RULES, tmp_path)
    state = only_state(store)
    assert (found.error, found.commit_number) == (None, after.next_number)
    assert found.records_after == found.records_before
    assert found.bytes_after == found.bytes_before
    assert state.clean is not None
    assert state.clean.strategy == "offset"
    assert state.segments == after.segments
    assert {key for key in store.objects if "/segments/" in key} == segments
    assert undo(store).commit_number is not None
    assert only_state(store).segments == before.segments
    assert is_sound(store)


def test_markers_get_their_horizon_once_the_undo_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = archived(tmp_path, "transactions-0")
    use(monkeypatch, store)
    first = compact_one(store, only_state(store), RULES, tmp_path)
    assert compact_one(store, only_state(store), RULES, tmp_path).commit_number is None
    assert collect(store).removed
    second = compact_one(store, only_state(store), RULES, tmp_path)
    assert second.commit_number is not None
    assert second.records_after == second.records_before == first.records_after
    later = replace(RULES, now_ms=NOW_MS + 2 * DAY_MS)
    third = compact_one(store, only_state(store), later, tmp_path)
    assert third.commit_number is not None
    assert third.records_after < third.records_before


def test_a_dry_run_commits_nothing(compacted: tuple[MemoryStore, PartitionState]) -> None:
    store, before = compacted
    objects = dict(store.objects)
    found = undo(store, dry_run=True)
    assert found.live_again == tuple(s for s in before.segments if s not in only_state(store).segments)
    assert found.commit_number is None
    assert store.objects == objects


@pytest.mark.leaves_damage("corrupt_content")
def test_what_came_after_the_compaction_stays(compacted: tuple[MemoryStore, PartitionState], tmp_path: Path) -> None:
    store, before = compacted
    log = CommitLog(store, root_of(store), store.clock)
    state = log.read()
    later = replace_ids(store, before)
    deleted_before = before.segments[0].end_offset - 1
    log.append([Add(later), DeleteRecords(deleted_before)], WRITER, state)
    undo(store)
    state = only_state(store)
    assert state.segments == (*before.segments, later)
    assert (state.deleted_before_offset, state.end_offset) == (deleted_before, later.end_offset)
    assert state.clean == before.clean


def replace_ids(store: MemoryStore, state: PartitionState) -> Any:
    """A made-up segment behind the last one. Its objects are a copy of another's."""
    from sidecar.archive.keys import fresh_id, indexes_key, log_key

    last, segment_id = state.segments[-1], fresh_id(SeededRandomness(1))
    end = last.end_offset
    keys = {"log_key": log_key(end, segment_id), "indexes_key": indexes_key(end, segment_id)}
    for name, key in keys.items():
        store.objects[below(state.lineage.root, key)] = store.objects[below(state.lineage.root, getattr(last, name))]
    return replace(last, segment_id=segment_id, base_offset=end, end_offset=end + 10, leader_epochs=(), **keys)


def test_the_mark_of_what_was_clean_before_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    before = only_state(store)
    half = CompactionRequest(before.lineage.root, RULES, WRITER, before.segments[len(before.segments) // 2].base_offset)
    (first,) = compactor(store, tmp_path).compact([half])
    assert first.error is None
    middle = only_state(store)
    assert isinstance(middle.clean, Clean)
    assert compact_one(store, middle, replace(RULES, strategy=Strategy.TIMESTAMP), tmp_path).error is None
    undo(store)
    state = only_state(store)
    assert (state.segments, state.clean) == (middle.segments, middle.clean)
    assert is_sound(store)
    # The compaction before it is another's business: an undo whose answer was lost may be repeated.
    # What it replaced exists for as long as `gc` lets it; the obstacle names it.
    again = undo(store)
    assert again == Undone(obstacle=obstacle_to_undo(state))
    assert again.obstacle is not None
    assert (again.obstacle.reason, again.obstacle.undone_by_commit) == (NoUndo.UNDONE, state.next_number - 1)
    older = {found.segment_id for found in again.obstacle.older}
    assert older == {old.segment_id for old in before.segments} - {live.segment_id for live in middle.segments}
    assert again.obstacle.older_until_ms(DAY_MS) == NOW_MS + DAY_MS
    assert only_state(store) == state


def test_what_was_undone_can_be_compacted_and_undone_again(
    compacted: tuple[MemoryStore, PartitionState], tmp_path: Path
) -> None:
    store, before = compacted
    for _ in range(2):
        undo(store)
        assert only_state(store).segments == before.segments
        assert undo(store).obstacle == Obstacle(NoUndo.UNDONE, only_state(store).next_number - 1)
        assert compact_one(store, only_state(store), RULES, tmp_path).error is None
        assert is_sound(store)


def test_status_says_until_when(compacted: tuple[MemoryStore, PartitionState]) -> None:
    store, before = compacted
    state = only_state(store)
    removed_at_ms = state.removed[0].removed_at_ms
    assert undo_until_ms(store, state, DAY_MS) == removed_at_ms + DAY_MS
    assert undo_until_ms(store, before, DAY_MS) is None
    assert [row.undo_until_ms for row in archive_status(store, store.clock)] == [None]
    assert [row.undo_until_ms for row in archive_status(store, store.clock, grace_period_ms=DAY_MS)] == [
        removed_at_ms + DAY_MS
    ]
    longer = replace(state, removed=(*(replace(found, keep_ms=5) for found in state.removed),))
    assert undo_until_ms(store, longer, DAY_MS) == removed_at_ms + DAY_MS + 5
    undo(store)
    assert undo_until_ms(store, only_state(store), DAY_MS) is None


def test_what_gc_has_deleted_cannot_come_back(compacted: tuple[MemoryStore, PartitionState]) -> None:
    store, _ = compacted
    after = only_state(store)
    assert collect(store).removed == len(after.removed)
    assert undo_until_ms(store, only_state(store), DAY_MS) is None
    assert undo(store) == Undone(obstacle=Obstacle(NoUndo.PURGED))
    assert only_state(store).segments == after.segments


def test_nothing_is_undone_where_only_some_of_it_is_left(compacted: tuple[MemoryStore, PartitionState]) -> None:
    store, _ = compacted
    state = only_state(store)
    assert len(state.removed) > 1
    assert newest_replacement(replace(state, removed=state.removed[1:])) is None


@pytest.mark.parametrize(
    "how", ["missing log", "missing indexes", "shorter", "another byte", "another byte, no checksums"]
)
def test_objects_that_are_not_what_was_committed_keep_the_compacted_ones_live(
    how: str, compacted: tuple[MemoryStore, PartitionState], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = compacted
    state = only_state(store)
    found = newest_replacement(state)
    assert found is not None
    root, old = root_of(store), found.replaced[-1]
    name = f"{old.base_offset:020d}-{old.segment_id}"
    key = below(root, f"segments/{name}.{'indexes' if how == 'missing indexes' else 'log'}")
    content = store.objects[key]
    if how.startswith("missing"):
        del store.objects[key]
    elif how == "shorter":
        store.objects[key] = content[:-1]
    else:
        store.objects[key] = content[:-1] + bytes([content[-1] ^ 1])
    if how.endswith("no checksums"):
        head = store.head

        def without_checksum(key: str) -> ObjectFacts | None:
            facts = head(ObjectKey(key))
            return None if facts is None else replace(facts, crc32c=None)

        monkeypatch.setattr(store, "head", without_checksum)
    with pytest.raises(PartitionError, match=r"(?i)nothing was undone"):
        undo(store)
    assert only_state(store) == state


def test_a_later_leader_fences_the_undo_and_another_compaction_stops_it(
    compacted: tuple[MemoryStore, PartitionState], tmp_path: Path
) -> None:
    store, before = compacted
    state, objects = only_state(store), dict(store.objects)
    log = CommitLog(store, root_of(store), store.clock)

    def by(act: Any) -> None:
        def once(operation: str, key: str) -> None:
            if operation == "put_if_absent" and "/commits/" in key:
                store.before = lambda _operation, _key: None
                act()

        store.before = once

    highest = replace(WRITER, leader_epoch=2**31 - 1)
    if state.highest_leader_epoch < highest.leader_epoch:
        by(lambda: log.append([Add(replace_ids(store, before))], highest, state))
        with pytest.raises(Fenced):
            undo(store)
    store.objects = dict(objects)
    by(lambda: compact_one(store, only_state(store), replace(RULES, strategy=Strategy.TIMESTAMP), tmp_path))
    changed: SidecarError | None = None
    try:
        undo(store)
    except SidecarError as error:
        changed = error
    assert changed is None or isinstance(changed, CommitConflict)
    assert is_sound(store)


def test_of_an_undo_and_gc_at_any_moment_only_one_comes_first(
    compacted: tuple[MemoryStore, PartitionState],
) -> None:
    """Each runs as a whole before each call of the other. Whatever is live afterwards, all of it exists."""
    store, before = compacted
    objects, times = dict(store.objects), dict(store.modified_ms)
    raw = {segment.segment_id for segment in before.segments}
    outcomes: set[tuple[str, bool]] = set()
    for outer, inner in ((undo, collect), (collect, undo)):
        calls: list[str] = []
        store.before = lambda operation, _key, calls=calls: calls.append(operation)
        outer(store)
        store.before = lambda _operation, _key: None
        for moment in range(len(calls)):
            store.objects, store.modified_ms = dict(objects), dict(times)
            left = moment

            def step_in(_operation: str, _key: str, inner: Any = inner) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    store.before = lambda _operation, _key: None
                    inner(store)

            store.before = step_in
            try:
                outer(store)
            except (CommitConflict, PartitionError) as error:
                assert "nothing was undone" in str(error).lower()  # noqa: PT017
            store.before = lambda _operation, _key: None
            assert is_sound(store), (outer.__name__, moment)
            live = {segment.segment_id for segment in only_state(store).segments}
            outcomes.add((outer.__name__, live == raw))
            collect(store)
            assert is_sound(store), (outer.__name__, moment)
        store.objects, store.modified_ms = dict(objects), dict(times)
    assert outcomes == {("undo", True), ("undo", False), ("collect", True), ("collect", False)}


def test_death_at_any_call_leaves_the_compacted_segments_or_those_before(
    compacted: tuple[MemoryStore, PartitionState],
) -> None:
    store, before = compacted
    objects, after = dict(store.objects), only_state(store)
    calls: list[str] = []
    store.before = lambda operation, _key: calls.append(operation)
    undo(store)

    class Killed(BaseException):
        pass

    for last in range(len(calls)):
        store.objects = dict(objects)
        left = last

        def die(operation: str, key: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed(f"{operation} {key}")

        store.before = die
        with pytest.raises(Killed):
            undo(store)
        store.before = lambda _operation, _key: None
        assert only_state(store).segments in (before.segments, after.segments)
        undo(store)
        assert only_state(store).segments == before.segments


def test_the_commit_has_an_action_of_its_own_which_earlier_releases_refuse(
    compacted: tuple[MemoryStore, PartitionState],
) -> None:
    store, _ = compacted
    number = undo(store).commit_number
    assert number is not None
    key = below(root_of(store), commit_key(number))
    body = store.objects[key]
    assert b'"type":"reinstate"' in body
    commit = decode_commit(body, key)
    assert sum(isinstance(action, Reinstate) for action in commit.actions) > 1
    assert CommitLog(store, root_of(store), store.clock).read_whole_chain() == only_state(store)


def test_an_undo_stops_where_the_newest_commit_is_missing_and_its_checkpoint_is_not(
    compacted: tuple[MemoryStore, PartitionState],
) -> None:
    store, before = compacted
    log = CommitLog(store, root_of(store), store.clock)
    with checkpoints_every(1):
        state = log.append([DeleteRecords(1)], WRITER, log.read())
    key = below(root_of(store), commit_key(state.next_number - 1))
    newest = store.objects.pop(key)
    objects = dict(store.objects)
    with pytest.raises(CorruptFile, match="is missing"):
        undo(store)
    assert store.objects == objects
    store.objects[key] = newest
    undo(store)
    assert only_state(store).segments == before.segments


def test_an_undo_that_gc_overtakes_does_not_call_the_objects_lost(
    compacted: tuple[MemoryStore, PartitionState], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _before = compacted
    required = archive_undo._require_objects

    def after_gc(*arguments: Any) -> None:
        assert collect(store).removed
        required(*arguments)

    monkeypatch.setattr(archive_undo, "_require_objects", after_gc)
    with pytest.raises(CommitConflict, match="another writer changed the compacted segments; nothing was undone"):
        undo(store)


@pytest.mark.leaves_damage("checkpoint")
def test_an_undo_does_not_believe_a_checkpoint_that_calls_purged_segments_removed(
    compacted: tuple[MemoryStore, PartitionState],
) -> None:
    """`gc` commits and deletes right before the undo's put. By the checkpoint, nothing was purged."""
    store, _before = compacted
    state = only_state(store)

    def purge(operation: str, key: str) -> None:
        if operation == "put_if_absent" and "/commits/" in key:
            store.before = lambda _operation, _key: None
            assert collect(store).removed
            purged = CommitLog(store, root_of(store), store.clock).read_whole_chain()
            wrong = replace(purged, removed=state.removed)
            store.objects[below(root_of(store), checkpoint_key(purged.next_number - 1))] = encode_checkpoint(wrong)

    store.before = purge
    with pytest.raises(CommitConflict, match="another writer changed the compacted segments; nothing was undone"):
        undo(store)
    log = CommitLog(store, root_of(store), store.clock)
    assert newest_replacement(log.read()) is not None, "readers take the checkpoint"
    assert log.read_whole_chain().segments == state.segments


def test_an_undo_needs_no_bytes_of_objects_whose_checksums_the_store_has(
    compacted: tuple[MemoryStore, PartitionState], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule of the bucket has moved them to Glacier. They are kept so, and `gc` would delete them."""
    store, before = compacted
    head = MemoryStore.head

    def frozen(self: MemoryStore, key: ObjectKey) -> ObjectFacts | None:
        facts = head(self, key)
        return facts and replace(facts, frozen_in="GLACIER")

    monkeypatch.setattr(MemoryStore, "head", frozen)
    undo(store)
    assert only_state(store).segments == before.segments


def a_late_fill(monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryStore, CommitLog]:
    """Two compactions over lost offsets [100, 200); then another broker's copy fills these."""
    monkeypatch.setattr(archive_undo, "_require_objects", lambda *_: None)
    store = MemoryStore(ManualClock(NOW_MS))
    log = CommitLog(store, ROOT, store.clock)
    a, b, c = a_segment(0, 100), a_segment(200, 300), a_segment(300, 400)
    state = log.append([Add(a), Lost(100, 200, "not on disk"), Add(b)], WRITER, log.read())
    first = [made_of(old.base_offset, old.end_offset, "first", generation=1) for old in (a, b)]
    state = log.append([*map(removal, (a, b)), *map(Add, first), Clean(0, 300, "offset", {})], WRITER, state)
    state = log.append([Add(c)], WRITER, state)
    second = made_of(200, 400, "second", generation=2)
    state = log.append([*map(removal, (first[1], c)), Add(second), Clean(0, 400, "offset", {})], WRITER, state)
    state = log.append([Add(a_segment(100, 200))], WRITER, state)
    assert state.clean == Clean(0, 100, "offset", {})
    return store, log


def made_of(base_offset: int, end_offset: int, name: str, *, generation: int) -> ArchivedSegment:
    raw = a_segment(base_offset, end_offset, name)
    no_source = {"source_path": None, "source_mtime_ns": None, "source_size_bytes": None}
    return replace(raw, generation=generation, strategy="offset", **no_source)  # type: ignore[arg-type]


def removal(old: ArchivedSegment) -> Remove:
    return Remove(old.segment_id, old.base_offset, old.end_offset, compacted_by("offset"))


def test_an_undo_does_not_call_clean_what_was_archived_since(monkeypatch: pytest.MonkeyPatch) -> None:
    store, log = a_late_fill(monkeypatch)
    undo_compaction(store, ROOT, store.clock)
    state = log.read()
    assert [segment.base_offset for segment in state.segments] == [0, 100, 200, 300]
    assert state.clean == Clean(0, 100, "offset", {})


def test_status_shows_no_undo_that_does_not_fit_one_commit(compacted: tuple[MemoryStore, PartitionState]) -> None:
    state = only_state(compacted[0])
    found = newest_replacement(state)
    assert found is not None
    many = replace(found, replaced=found.replaced[:1] * (UNDO_SEGMENTS_MAX - len(found.compacted)))
    assert many.until_ms(DAY_MS) is not None
    more = replace(many, replaced=(*many.replaced, *many.replaced[:1]))
    assert more.until_ms(DAY_MS) is None


def test_an_undo_says_that_gc_has_begun_to_delete_what_was_replaced() -> None:
    store = MemoryStore(ManualClock(NOW_MS))
    log = CommitLog(store, ROOT, store.clock)
    a, b = a_segment(0, 100), a_segment(200, 300)
    state = log.append([Add(a), Lost(100, 200, "not on disk"), Add(b)], WRITER, log.read())
    new = [made_of(old.base_offset, old.end_offset, "new", generation=1) for old in (a, b)]
    state = log.append([*map(removal, (a, b)), *map(Add, new), Clean(0, 300, "offset", {})], WRITER, state)
    assert undo_until_ms(store, state, DAY_MS) is not None
    state = log.append([Purge((a.segment_id,))], WRITER, state)
    assert newest_replacement(state) is not None, "the state alone does not tell"
    assert undo_until_ms(store, state, DAY_MS) is None
    with pytest.raises(PartitionError, match="gc has begun to delete"):
        undo_compaction(store, ROOT, store.clock)


def test_nothing_is_undone_where_only_the_sources_of_an_older_compaction_exist() -> None:
    """`keep_raw_ms` keeps them longer than what the newest compaction replaced."""
    store = MemoryStore(ManualClock(NOW_MS))
    log = CommitLog(store, ROOT, store.clock)
    raw = a_segment(0, 100)
    first, second = (made_of(0, 100, name, generation=n) for n, name in ((1, "first"), (2, "second")))
    state = log.append([Add(raw)], WRITER, log.read())
    assert undo_compaction(store, ROOT, store.clock) == Undone(obstacle=Obstacle(NoUndo.NEVER_COMPACTED))
    state = log.append([removal(raw), Add(first), Clean(0, 100, "offset", {})], WRITER, state)
    state = log.append([removal(first), Add(second), Clean(0, 100, "offset", {})], WRITER, state)
    state = log.append([Purge((first.segment_id,))], WRITER, state)
    assert newest_replacement(state) is not None, "the state alone does not tell"
    assert undo_until_ms(store, state, DAY_MS) is None
    assert undo_compaction(store, ROOT, store.clock) == Undone(obstacle=Obstacle(NoUndo.PURGED, older=state.removed))
    assert log.read() == state


def test_status_shows_no_undo_where_the_commit_of_the_compaction_cannot_be_read(
    compacted: tuple[MemoryStore, PartitionState],
) -> None:
    store, _ = compacted
    state = only_state(store)
    key = below(root_of(store), commit_key(state.removed[0].removed_by_commit))
    body = store.objects.pop(key)
    assert undo_until_ms(store, state, DAY_MS) is None
    store.objects[key] = body[:-1]
    assert undo_until_ms(store, state, DAY_MS) is None
    store.objects[key] = body
    assert undo_until_ms(store, state, DAY_MS) is not None


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_undo_that_does_not_fit_one_commit_is_refused_in_a_dry_run_as_well(
    dry_run: bool, compacted: tuple[MemoryStore, PartitionState], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = compacted
    objects = dict(store.objects)
    monkeypatch.setattr(commit_log, "COMMIT_BYTES_MAX", 1000)
    with pytest.raises(CommitRefused, match="at most 1000 bytes"):
        undo(store, dry_run=dry_run)
    assert store.objects == objects


def test_a_look_sees_the_newest_undo(compacted: tuple[MemoryStore, PartitionState]) -> None:
    store, before = compacted
    partition = before.lineage.topic_partition
    led = LedPartition(partition, root_of(store), 0, before.end_offset or 0)
    look = CandidateAssessor(store, store.clock)
    assert look(led, CompactionPolicy()).undone_by_commit == -1
    number = undo(store).commit_number
    assert look(led, CompactionPolicy()).undone_by_commit == number


def test_gc_that_may_not_delete_commits_nothing_and_the_undo_stays_possible(
    compacted: tuple[MemoryStore, PartitionState],
) -> None:
    """The bucket takes puts and refuses deletions."""
    store, before = compacted
    after = only_state(store)

    def refuse(operation: str, key: str) -> None:
        if operation == "delete":
            raise StoreDenied(f"{key}: 403")

    store.before = refuse
    for _ in range(2):
        with pytest.raises(StoreDenied):
            collect(store)
    assert only_state(store) == after
    assert not undo(store, dry_run=True).obstacle
    store.before = lambda _operation, _key: None
    assert collect(store).removed == len(after.removed) == len(before.segments)
    state = only_state(store)
    live = {below(state.lineage.root, key) for s in state.segments for key in (s.log_key, s.indexes_key)}
    assert {key for key in store.objects if "/segments/" in key} == live


def test_gc_that_may_delete_no_batch_commits_nothing(
    compacted: tuple[MemoryStore, PartitionState], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store without DeleteObjects, or a gateway that blocks it."""
    store, _ = compacted
    after, delete = only_state(store), store.delete

    def one_at_a_time(keys: Iterable[ObjectKey]) -> None:
        wanted = list(keys)
        if len(wanted) > 1:
            raise StoreUnsupported("DeleteObjects: 501")
        delete(wanted)

    monkeypatch.setattr(store, "delete", one_at_a_time)
    with pytest.raises(StoreUnsupported):
        collect(store)
    assert only_state(store) == after
