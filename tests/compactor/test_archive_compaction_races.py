"""Compaction of an archive that is killed, overtaken or joined by an uploader: the old archive is there, or the new one."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.archive.actions import UNDONE, Add, Lost, Reinstate, Remove, compacted_by
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.commits.commit_window import CommitWindow
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rewrite import RewriteCounts
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive.archived_log import ArchivedLog
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.finishing import commit
from sidecar.compactor.archive.plan import ArchivePlan, CompactionRequest, PartitionInWork
from sidecar.errors import Fenced
from sidecar.model import ObjectKey
from sidecar.rewriting.job import CompactedOutput
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.packing import COPIES
from tests.archive.builders import a_compacted, a_segment
from tests.commits.commit_logs import ROOT, a_log
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import (
    NOW_MS,
    SETTINGS,
    WRITER,
    archived,
    compact_one,
    compactor,
    only_state,
    records_of,
    sound,
    use,
)
from tests.runner.rig import ranges
from tests.verifying import verify_partition


class Killed(BaseException):
    """The process is gone."""


class Left:
    """So many calls of the store are made; the next one, and whatever comes after, is not."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self._guard = threading.Lock()

    def __call__(self, operation: str, key: str) -> None:
        with self._guard:
            self.calls -= 1
            if self.calls < 0:
                raise Killed(f"{operation} {key}")


@pytest.mark.parametrize("in_steps", [False, True], ids=["at once", "in steps"])
@pytest.mark.parametrize("local", [True, False], ids=["staged here", "staged in the store"])
def test_death_at_any_call_leaves_the_old_archive_or_the_new_one(
    local: bool, in_steps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between two steps of a job that is larger than `compaction.max_staging_bytes`: nothing is committed before the last."""
    store = archived(tmp_path, "append-time-0")
    use(monkeypatch, store)
    objects, modified_ms = dict(store.objects), dict(store.modified_ms)
    before = only_state(store)
    staging = tmp_path / "staging" if local else None
    request = CompactionRequest(before.lineage.root, CompactionRules(NOW_MS, segment_bytes=20_000), WRITER)
    largest = max(segment.parts[0].size_bytes for segment in before.segments)
    steps: list[str] = []
    bounded = ArchiveCompactor(
        SETTINGS,
        LocalEngine(),
        store.clock,
        staging,
        split_bytes=4096,
        max_staging_bytes=COPIES * largest if in_steps else 2**62,
        tell=steps.append,
    )
    left = Left(10**9)
    store.before = left
    (done,) = bounded.compact([request])
    assert done.error is None
    assert (steps.count("uploading") > 1) == in_steps
    total = 10**9 - left.calls
    store.before = lambda _operation, _key: None
    new = only_state(store)
    assert total > 10
    # Steps do not join their results. Joining alone is not worth the undo.
    (repeated,) = bounded.compact([request])
    assert (repeated.error, repeated.commit_number) == (None, None)
    assert only_state(store) == new
    records = records_of(store, only_state(store))
    outcomes = set()
    for last in range(total):
        store.objects, store.modified_ms = dict(objects), dict(modified_ms)
        store.before = Left(last)
        with pytest.raises(Killed):
            bounded.compact([request])
        store.before = lambda _operation, _key: None
        state = only_state(store)
        outcomes.add(state.next_number)
        assert ranges(state) == (ranges(before) if state.next_number == before.next_number else ranges(new))
        found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(NOW_MS), deep=True)
        assert found.problems == ()
        (again,) = bounded.compact([request])
        assert again.error is None
        assert ranges(only_state(store)) == ranges(new)
        assert records_of(store, only_state(store)) == records
    assert outcomes == {before.next_number, before.next_number + 1}


def test_an_uploader_that_appends_meanwhile_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    before = only_state(store)
    last = before.segments[-1]
    log = CommitLog(store, ObjectKey(before.lineage.root), store.clock)
    # The archive as it was before its last segment came.
    tail = {
        key: store.objects.pop(key) for key in [*store.objects] if key.endswith(f"{before.next_number - 1:020d}.json")
    }
    shorter = only_state(store)
    assert shorter.end_offset == last.base_offset

    def uploader(operation: str, key: str) -> None:
        if operation == "put_if_absent" and "/commits/" in key:
            store.objects.update(tail)
            store.before = lambda _operation, _key: None

    store.before = uploader
    result = compact_one(store, shorter, CompactionRules(NOW_MS), tmp_path)
    assert result.error is None
    after = log.read_whole_chain()
    assert after.end_offset == before.end_offset
    assert after.segments[-1] == last
    assert after.clean_end_offset == last.base_offset
    sound(store)


def test_a_compaction_that_was_overtaken_gives_up_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    state = only_state(store)
    rules = CompactionRules(NOW_MS)
    overtaken = []

    def other(_request: CompactionRequest, _decided: PartitionState) -> None:
        if not overtaken:
            overtaken.append(True)
            assert compact_one(store, state, rules, tmp_path).error is None

    slow = ArchiveCompactor(SETTINGS, LocalEngine(), store.clock, tmp_path, confirm=other)
    (result,) = slow.compact([CompactionRequest(state.lineage.root, rules, WRITER)])
    assert isinstance(result.error, CommitConflict)
    assert "another compaction or an undo committed first" in str(result.error)
    sound(store)


def test_who_was_overtaken_by_a_later_leader_commits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    state = only_state(store)
    log = CommitLog(store, ObjectKey(state.lineage.root), store.clock)
    log.append(
        [Lost(state.end_offset or 0, (state.end_offset or 0) + 1, "a test")], replace(WRITER, leader_epoch=9), state
    )
    rules = CompactionRules(NOW_MS)
    (result,) = compactor(store, tmp_path).compact(
        [CompactionRequest(state.lineage.root, rules, replace(WRITER, leader_epoch=8))]
    )
    assert isinstance(result.error, Fenced)
    (by_hand,) = compactor(store, tmp_path).compact([CompactionRequest(state.lineage.root, rules)])
    assert by_hand.error is None


def test_a_source_that_stays_must_still_be_live_too() -> None:
    """The compaction leaves the first segment as it is. Its raw one is live again, and was never compared with the second."""
    store = MemoryStore()
    raw, first, second = a_segment(0), a_compacted(0, 100), a_segment(100)
    log, rules = a_log(store), CompactionRules(NOW_MS)
    state = log.append([Add(raw), Add(second)], WRITER, log.read())
    state = log.append([Remove(raw.segment_id, 0, 100, compacted_by(Strategy.OFFSET)), Add(first)], WRITER, state)
    found = PartitionInWork(CompactionRequest(ROOT, rules), ArchivePlan(state, WRITER, 2, LastBatches()))
    found.outputs = tuple(
        CompactedOutput((ArchivedLog(SETTINGS, ROOT, source),), (), stays, 1, 0, RewriteCounts(), ())
        for source, stays in ((first, True), (second, False))
    )
    found.finished = {1: a_compacted(100, 200)}
    state = log.append([Remove(first.segment_id, 0, 100, UNDONE), Reinstate(raw)], WRITER, state)
    with pytest.raises(CommitConflict, match="live segments below offset 200 are no longer those that were compacted"):
        commit(log, found, CommitWindow.begin(store, store.clock), lambda: None)
    assert log.read() == state


def test_what_is_being_deleted_can_no_longer_be_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may come while a pool waits for its threads after a fault of ours: then one may still go on to its commit."""
    store, seen = MemoryStore(), list[int]()
    use(monkeypatch, store)
    found = PartitionInWork(CompactionRequest(ROOT, CompactionRules(NOW_MS)), finished={0: a_segment(0, 10)})
    store.before = lambda _operation, _key: seen.append(len(found.finished))
    ArchiveCompactor(SETTINGS, LocalEngine(), store.clock, tmp_path)._discard(found)
    assert seen == [0, 0]
