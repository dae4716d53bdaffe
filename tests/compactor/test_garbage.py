"""All that `gc` does, with death at every call and with others who commit meanwhile: what is live stays, what is not goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.archive.actions import UNDONE, Add, Lost, Reinstate, Remove
from sidecar.archive.checkpoint import encode_checkpoint
from sidecar.archive.coverage import Hole
from sidecar.archive.keys import below, checkpoint_key, indexes_key, log_key
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitLog, StateId, state_id
from sidecar.commits.commit_window import ORPHAN_MS
from sidecar.compaction.rules import CompactionRules
from sidecar.compactor import gc
from sidecar.compactor.archive.stored_parts import STAGING
from sidecar.compactor.gc import (
    Collected,
    abort_uploads,
    collect_garbage,
    collect_parts,
    orphaned_until_ms,
)
from sidecar.errors import CompactionCutOff, StoreUnsupported
from sidecar.model import ObjectKey
from sidecar.ports import UnfinishedUpload
from sidecar.storage.leftovers import list_uploads, remove_leftovers
from sidecar.storage.store_clock import read_store_clock
from sidecar.verify.verify import verify_archive
from tests.archive.builders import a_compacted, a_segment, an_id
from tests.commits.commit_logs import ROOT, a_log, filled, key_of
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import NOW_MS, WRITER, archived, compact_one, only_state, use

LATER_MS = NOW_MS + ORPHAN_MS


def littered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A compacted archive with its replaced segments, and an orphan, a work file and an upload that were given up."""
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    assert compact_one(store, only_state(store), CompactionRules(NOW_MS), tmp_path).error is None
    root = only_state(store).lineage.root
    store.put_if_absent(below(root, log_key(0, an_id("orphan"))), b"half")
    store.put_if_absent(ObjectKey(f"{STAGING}{an_id('job')}/00000001-{an_id('attempt')}.part"), b"part")
    store.unfinished = [UnfinishedUpload(below(root, log_key(0, an_id("begun"))), "begun", NOW_MS)]
    for key in store.objects:
        store.modified_ms[key] = NOW_MS
    return store


def clear(store: MemoryStore) -> tuple[Collected, int, Counter[str]]:
    """As the command does it, a day later."""
    root = ObjectKey(next(key for key in store.objects if "/commits/" in key).split("/commits/")[0])
    now_ms = read_store_clock(store, store.clock).store_ms
    until_ms = orphaned_until_ms(now_ms, 0)
    parts = collect_parts(store, until_ms)
    uploads = abort_uploads(store, list_uploads(store, "").uploads, {root}, until_ms)
    found = collect_garbage(store, root, store.clock, WRITER, store_now_ms=now_ms, grace_period_ms=0)
    return found, parts, uploads


def live_keys(state: PartitionState) -> set[str]:
    return {below(state.lineage.root, key) for s in state.segments for key in (s.log_key, s.indexes_key)}


def segment_keys(store: MemoryStore) -> set[str]:
    return {key for key in store.objects if "/segments/" in key}


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("at_once", [1, 1000])
def test_death_at_any_call_leaves_all_that_is_live_and_a_second_run_finishes(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "PURGED_AT_ONCE", at_once)
    store = littered(tmp_path, monkeypatch)
    objects, times, unfinished = dict(store.objects), dict(store.modified_ms), list(store.unfinished)
    store.clock = ManualClock(LATER_MS)
    live = live_keys(only_state(store))
    calls: list[str] = []
    store.before = lambda operation, _key: calls.append(operation)
    found, parts, uploads = clear(store)
    assert (found.removed > 3, found.orphans, parts, sum(uploads.values())) == (True, 1, 1, 1)
    assert {"delete", "put_if_absent", "abort_upload"} <= set(calls)
    for last in range(len(calls)):
        store.objects, store.modified_ms, store.unfinished = dict(objects), dict(times), list(unfinished)
        left = last

        def die(operation: str, key: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed(f"{operation} {key}")

        store.before = die
        with pytest.raises(Killed):
            clear(store)
        store.before = lambda _operation, _key: None
        assert live <= set(store.objects), f"killed at call {last}"
        # Every byte once for each kind of call; that all is there, each time.
        deep = last == 0 or calls[last] != calls[last - 1]
        assert [found.problems for found in verify_archive(store, store.clock, deep=deep)] == [()]
        clear(store)
        assert segment_keys(store) == live
        assert only_state(store).removed == ()
        assert not [key for key in store.objects if key.startswith(STAGING)]
        assert store.unfinished == []
        assert clear(store) == (Collected(), 0, Counter())


@pytest.mark.leaves_damage("corrupt_content")
def test_who_commits_at_any_moment_meanwhile_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer appends, right before each call in turn: what it names stays, and the purge comes on top of it."""
    store = littered(tmp_path, monkeypatch)
    objects, times, unfinished = dict(store.objects), dict(store.modified_ms), list(store.unfinished)
    store.clock = ManualClock(LATER_MS)
    calls = 0

    def count(_operation: str, _key: str) -> None:
        nonlocal calls
        calls += 1

    store.before = count
    clear(store)
    for moment in range(calls):
        store.objects, store.modified_ms, store.unfinished = dict(objects), dict(times), list(unfinished)
        left = moment

        def append_once(_operation: str, _key: str, name: str = f"appended at {moment}") -> None:
            nonlocal left
            left -= 1
            if left < 0:
                store.before = lambda _operation, _key: None
                append_copy(store, name, NOW_MS + ORPHAN_MS)

        store.before = append_once
        clear(store)
        store.before = lambda _operation, _key: None
        state = only_state(store)
        assert segment_keys(store) == live_keys(state), f"committed before call {moment}"
        assert state.segments[-1].segment_id == an_id(f"appended at {moment}")
        assert state.removed == ()


@pytest.mark.leaves_damage("corrupt_content")
def test_an_old_upload_that_is_committed_while_orphans_are_listed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No writer of ours commits what is so old; but if one did, nothing that it names may be deleted."""
    store = littered(tmp_path, monkeypatch)
    store.clock = ManualClock(LATER_MS)

    def late(operation: str, key: str) -> None:
        if operation == "list" and key.endswith("/segments/"):
            store.before = lambda _operation, _key: None
            append_copy(store, "late", NOW_MS)

    store.before = late
    assert clear(store)[0].orphans == 1
    assert live_keys(only_state(store)) == segment_keys(store)
    assert only_state(store).segments[-1].segment_id == an_id("late")


def append_copy(store: MemoryStore, name: str, modified_ms: int) -> None:
    """Put objects of the last segment again, at the end, as of that time; commit them after a hole, since offsets go on."""
    log = CommitLog(store, only_state(store).lineage.root, store.clock)
    state = log.read()
    last, end = state.segments[-1], state.end_offset or 0
    keys = (log_key(end + 1, an_id(name)), indexes_key(end + 1, an_id(name)))
    for old, new in ((last.log_key, keys[0]), (last.indexes_key, keys[1])):
        store.put_if_absent(below(state.lineage.root, new), store.objects[below(state.lineage.root, old)])
        store.modified_ms[below(state.lineage.root, new)] = modified_ms
    moved = replace(
        last,
        segment_id=an_id(name),
        base_offset=end + 1,
        end_offset=end + 2,
        log_key=keys[0],
        indexes_key=keys[1],
        leader_epochs=(),
        compacted_from=None,
    )
    log.append([Lost(end, end + 1, "a test"), Add(moved)], WRITER, state)


def test_uploads_that_may_go_on_and_those_of_others_are_not_ended(tmp_path: Path) -> None:
    store = MemoryStore()
    root, other = (ObjectKey(f"cluster/{topic}/0/{an_id('topic')}") for topic in ("ours", "other"))
    part = ObjectKey(f"{STAGING}{an_id('job')}/00000007-{an_id('attempt')}.part")
    old, work_file = (UnfinishedUpload(key, key, NOW_MS) for key in (below(root, indexes_key(5, an_id("one"))), part))
    kept = [
        UnfinishedUpload(old.key, "young", NOW_MS + 1),
        UnfinishedUpload(below(other, log_key(5, an_id("two"))), "another topic", NOW_MS),
        UnfinishedUpload(below(root, "segments/readme.txt"), "no segment", NOW_MS),
        UnfinishedUpload(ObjectKey("backup.tar"), "not ours", NOW_MS),
    ]
    kept.append(UnfinishedUpload(old.key, "of unknown age", None))
    store.unfinished = [old, *kept, work_file]
    until_ms = orphaned_until_ms(LATER_MS, 0)
    expected = Counter({root: 1, STAGING: 1})
    assert abort_uploads(store, list(store.unfinished), {root}, until_ms, dry_run=True) == expected
    assert len(store.unfinished) == 7
    goes_on = {"in_progress": {an_id("one")}, "dry_run": True}
    assert abort_uploads(store, list(store.unfinished), {root}, until_ms, **goes_on) == Counter({STAGING: 1})
    earlier_ms = orphaned_until_ms(LATER_MS, ORPHAN_MS + 1)
    assert abort_uploads(store, list(store.unfinished), {root}, earlier_ms) == Counter()
    assert abort_uploads(store, list(store.unfinished), {root}, until_ms) == expected
    assert store.unfinished == kept


def only_removed(store: MemoryStore) -> tuple[int, ...]:
    return tuple(found.removed_at_ms for found in only_state(store).removed)


def test_an_object_without_a_time_is_never_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`modified_ms` 0 was read as "infinitely old": uploads in progress were deleted."""
    store = littered(tmp_path, monkeypatch)
    store.clock = ManualClock(LATER_MS)
    before = set(store.objects)
    until_ms, root = orphaned_until_ms(LATER_MS, 0), only_state(store).lineage.root
    store.gives_times = False
    assert collect_parts(store, until_ms) == 0
    assert collect_garbage(store, root, store.clock, WRITER, store_now_ms=LATER_MS, grace_period_ms=0) == Collected()
    with pytest.raises(StoreUnsupported, match="no modification times"):
        clear(store)
    assert set(store.objects) == before


@pytest.mark.parametrize("ahead_ms", [-ORPHAN_MS * 365, ORPHAN_MS, ORPHAN_MS * 365])
def test_a_clock_that_is_days_off_deletes_nothing_early(
    ahead_ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = littered(tmp_path, monkeypatch)
    store.clock = ManualClock(NOW_MS + 1)
    before = set(store.objects)
    found = read_store_clock(store, ManualClock(NOW_MS + ahead_ms))
    assert found.differs
    root = only_state(store).lineage.root
    own = ManualClock(NOW_MS + ahead_ms)
    grace = {"store_now_ms": found.store_ms, "grace_period_ms": ORPHAN_MS}
    assert collect_garbage(store, root, own, WRITER, **grace) == Collected()
    assert set(store.objects) == before


def test_a_writer_whose_clock_was_a_year_behind_does_not_end_the_grace_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`removed_at_ms` is by the writer's clock. Only the commit's own time in the store counts."""
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    assert compact_one(store, only_state(store), CompactionRules(NOW_MS), tmp_path).error is None
    removed = len(only_removed(store))
    assert removed > 3
    committed_ms = max(only_removed(store)) + 365 * ORPHAN_MS  # by the store; the writer said a year earlier
    newest = max(key for key in store.objects if "/commits/" in key)
    for key in store.objects:
        store.modified_ms[key] = committed_ms if key == newest else committed_ms - 1
    root = only_state(store).lineage.root

    def collect(now_ms: int) -> Collected:
        return collect_garbage(store, root, store.clock, WRITER, store_now_ms=now_ms, grace_period_ms=ORPHAN_MS)

    assert collect(committed_ms + ORPHAN_MS - 1) == Collected()
    assert collect(committed_ms + ORPHAN_MS) == Collected(removed, 0)


def test_a_writer_whose_clock_was_a_year_ahead_does_not_lengthen_the_grace_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One such commit also makes `committed_at_ms` of all later commits too late: it never falls."""
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    assert compact_one(store, only_state(store), CompactionRules(NOW_MS), tmp_path).error is None
    committed_ms = max(only_removed(store)) - 365 * ORPHAN_MS  # by the store; the writer said a year later
    for key in store.objects:
        store.modified_ms[key] = committed_ms
    root = only_state(store).lineage.root

    def collect(now_ms: int) -> Collected:
        return collect_garbage(store, root, store.clock, WRITER, store_now_ms=now_ms, grace_period_ms=ORPHAN_MS)

    assert collect(committed_ms + ORPHAN_MS - 1) == Collected()
    assert collect(committed_ms + ORPHAN_MS).removed > 3


def test_what_probes_left_goes_after_a_day_and_a_probe_that_goes_on_stays() -> None:
    store = MemoryStore()
    for name, modified_ms in (("killed", NOW_MS), ("going-on", NOW_MS + 1)):
        key = ObjectKey(f"_probe/{name}/small")
        store.put_if_absent(key, b"probe")
        store.modified_ms[key] = modified_ms
    old, young, unknown = (
        UnfinishedUpload(ObjectKey(f"_probe/{name}/large"), name, started_ms)
        for name, started_ms in (("killed", NOW_MS), ("going-on", NOW_MS + 1), ("of unknown age", None))
    )
    store.unfinished = [old, young, unknown]
    until_ms = orphaned_until_ms(LATER_MS, 0)
    assert remove_leftovers(store, until_ms, dry_run=True) == 2
    assert len(store.objects) == 2
    assert remove_leftovers(store, until_ms) == 2
    assert (set(store.objects), store.unfinished) == ({"_probe/going-on/small"}, [young, unknown])


class Reads(MemoryStore):
    """Counts commits that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[str] = []

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        if "/commits/" in key:
            self.commits.append(key)
        return super().read(key, position, size_bytes, whole=whole)


def with_orphan(store: MemoryStore, name: str) -> ObjectKey:
    key = below(ROOT, log_key(0, an_id(name)))
    store.put_if_absent(key, b"half")
    store.modified_ms[key] = NOW_MS
    return key


def collect(store: MemoryStore, verified: dict[ObjectKey, StateId], **parameters: Any) -> Collected:
    times = {"store_now_ms": LATER_MS, "grace_period_ms": 0}
    return collect_garbage(store, ROOT, store.clock, WRITER, verified=verified, **times, **parameters)


def test_commits_that_were_all_read_once_are_not_all_read_again() -> None:
    store, verified = Reads(), dict[ObjectKey, StateId]()
    filled(store, 205)
    with_orphan(store, "first")
    store.commits.clear()
    assert collect(store, verified).orphans == 1
    assert len(set(store.commits)) == 205
    log = a_log(store)
    state = log.read()
    for _ in range(3):
        state = log.append([Add(a_segment(state.end_offset or 0))], WRITER, state)
    with_orphan(store, "second")
    store.commits.clear()
    assert collect(store, verified).orphans == 1
    assert len(set(store.commits)) < 10
    assert verified[ROOT] == state_id(state) == state_id(a_log(store).read_whole_chain())


@pytest.mark.leaves_damage("missing_object", "checkpoint", "size_mismatch")
@pytest.mark.parametrize("at", [99, 199])
def test_a_checkpoint_that_leaves_a_live_segment_out_deletes_nothing_also_where_all_was_read_before(at: int) -> None:
    store, verified = Reads(), dict[ObjectKey, StateId]()
    whole = filled(store, 205)
    with_orphan(store, "first")
    collect(store, verified)
    segment = whole.segments[50]
    live = below(ROOT, segment.log_key)
    store.put_if_absent(live, b"records")
    store.modified_ms[live] = NOW_MS
    for number in (99, 199):
        below_it = CommitLog(store, ROOT, store.clock).read_whole_chain(below_number=number + 1)
        hole = Hole(segment.base_offset, segment.end_offset, "not on disk")
        segments = tuple(found for found in below_it.segments if found != segment)
        if number >= at:
            wrong = replace(below_it, segments=segments, holes=(hole,))
            store.objects[below(ROOT, checkpoint_key(number))] = encode_checkpoint(wrong)
    assert len(a_log(store).read().segments) == 204, "readers take the checkpoint"
    with_orphan(store, "second")
    assert collect(store, verified).orphans == 1
    assert live in store.objects


def test_a_checkpoint_that_names_an_earlier_commit_ends_no_grace_period_early() -> None:
    """Commit 1 has removed the segment, a moment ago. By the checkpoint it was commit 0."""
    store, old = MemoryStore(), a_segment(0)
    log = a_log(store)
    state = log.append([Add(old)], WRITER, log.read())
    state = log.append([Remove(old.segment_id, 0, 100, "compacted"), Add(a_compacted(0, 100))], WRITER, state)
    wrong = replace(state, removed=tuple(replace(found, removed_by_commit=0) for found in state.removed))
    store.objects[below(ROOT, checkpoint_key(1))] = encode_checkpoint(wrong)
    store.modified_ms = {**dict.fromkeys(store.objects, NOW_MS), key_of(1): LATER_MS + 1}
    assert a_log(store).read().removed[0].removed_by_commit == 0, "readers take the checkpoint"
    assert collect(store, {}) == Collected()
    store.modified_ms[key_of(1)] = LATER_MS
    assert collect(store, {}) == Collected(removed=1)


@pytest.mark.parametrize("checkpoint_says", [3, 1])
def test_a_removal_after_an_undo_has_a_grace_period_of_its_own(checkpoint_says: int) -> None:
    """The clock of the first commit's writer was a year ahead: since then, all commits have its time.

    Another writer undoes the compaction right before `gc` can purge what it replaced, and then compacts in the same way.
    By its checkpoint, that was commit 3, or 1.
    """
    store, old, new, again = MemoryStore(), a_segment(0), a_compacted(0, 100), a_compacted(0, 100, name="again")
    store.clock = ManualClock(NOW_MS + 365 * ORPHAN_MS)
    log = a_log(store)
    compacted = log.append([Add(old)], WRITER, log.read())
    compacted = log.append([Remove(old.segment_id, 0, 100, "compacted"), Add(new)], WRITER, compacted)
    store.modified_ms = dict.fromkeys(store.objects, NOW_MS)
    store.clock = ManualClock(LATER_MS)

    def undo_and_compact(operation: str, key: str) -> None:
        if operation == "put_if_absent" and key == key_of(2):
            store.before = lambda _operation, _key: None
            undone = log.append([Remove(new.segment_id, 0, 100, UNDONE), Reinstate(old)], WRITER, compacted)
            state = log.append([Remove(old.segment_id, 0, 100, "compacted"), Add(again)], WRITER, undone)
            removed = [
                replace(found, removed_by_commit=checkpoint_says) if found.segment_id == old.segment_id else found
                for found in state.removed
            ]
            store.put_if_absent(
                below(ROOT, checkpoint_key(3)), encode_checkpoint(replace(state, removed=tuple(removed)))
            )

    store.before = undo_and_compact
    assert collect(store, {}) == Collected()
    state = log.read()
    assert {found.segment_id for found in state.removed} == {old.segment_id, new.segment_id}
    for key in store.objects:
        store.modified_ms[key] = NOW_MS
    assert collect(store, {}) == Collected(removed=2)


@pytest.mark.leaves_damage("missing_object")
def test_a_gc_that_is_to_stop_reads_no_further_and_deletes_nothing() -> None:
    store, answers = Reads(), iter([False] * 20)
    filled(store, 60)
    orphan = with_orphan(store, "first")
    store.commits.clear()
    with pytest.raises(CompactionCutOff):
        collect(store, {}, is_stopping=lambda: next(answers, True))
    assert len(store.commits) < 60
    assert orphan in store.objects
