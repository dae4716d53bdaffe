"""What `run` knows of the newest commits also binds its own removal of garbage, and its compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.archive.actions import Lost
from sidecar.archive.checkpoint import encode_checkpoint
from sidecar.archive.commit import Writer
from sidecar.archive.keys import below, checkpoint_key, indexes_key, log_key
from sidecar.archive.state import CommitId, PartitionState
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.commit_window import ORPHAN_MS
from sidecar.compaction.rules import CompactionRules
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest, plan_archive
from sidecar.compactor.archive_job import ArchiveJobs
from sidecar.compactor.candidate_queue import Candidate, CandidateAssessor, LedPartition
from sidecar.compactor.gc import Collected, GcTask, collect_garbage
from sidecar.compactor.topic_rule import TopicRule
from sidecar.config import CompactionPolicy, Settings
from sidecar.errors import CorruptFile
from sidecar.host.journal import Attempt
from sidecar.model import ObjectKey
from sidecar.rewriting.local_engine import LocalEngine, LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.context import RunContext
from tests.archive.builders import an_id
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.store_at import StoreAt
from tests.runner.archives import NOW_MS, SETTINGS, WRITER, compact_one, only_state, use
from tests.runner.rig import copy_partitions, rounds_over, set_aside_last, tools_for

RULES = CompactionRules(NOW_MS)


@dataclass
class Running:
    """A process that has archived a partition, and what its last round offers to gc and to compaction."""

    context: RunContext
    rounds: ArchiveLoop
    store: MemoryStore
    log_dir: Path
    led: LedPartition

    @property
    def newest(self) -> str:
        return max(key for key in self.store.objects if "/commits/" in key)

    def lose_newest(self) -> dict[str, bytes]:
        """The store loses the newest commit, and all checkpoints; returns what is lost."""
        keys = [self.newest, *(key for key in self.store.objects if "/checkpoints/" in key)]
        return {key: self.store.objects.pop(key) for key in keys}

    def replace_newest(self) -> dict[str, bytes]:
        """And another writer commits in its place."""
        lost = self.lose_newest()
        log = CommitLog(self.store, self.led.root, self.store.clock)
        state = log.read()
        end_offset = state.end_offset or 0
        log.append([Lost(end_offset, end_offset + 1, "another history")], Writer(2, 4, "another"), state)
        return lost

    def clear_up(self) -> None:
        """What `run` does, so late that all objects are old enough to go."""
        later = StoreAt(self.store, NOW_MS + 2 * ORPHAN_MS)
        clearing = GcTask(replace(self.context, store=later), 0)
        clearing.offer([self.led])
        clearing()

    def segment_objects(self) -> set[str]:
        return {key for key in self.store.objects if "/segments/" in key}


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore(ManualClock(NOW_MS))
    use(monkeypatch, store)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        (led,) = rounds.run_once().led
        yield Running(context, rounds, store, log_dir, led)


LOSSES = pytest.mark.parametrize("lose", [Running.lose_newest, Running.replace_newest])
Lose = Callable[[Running], dict[str, bytes]]


@LOSSES
def test_gc_of_run_deletes_nothing_below_a_commit_that_is_gone(running: Running, lose: Lose) -> None:
    before = running.segment_objects()
    lost = lose(running)
    with capture_logs() as logs:
        running.clear_up()
    assert [entry["event"] for entry in logs] == ["unused_objects_not_deleted"]
    assert running.segment_objects() == before
    running.store.objects.update(lost)
    running.clear_up()
    assert running.segment_objects() == before, "all of it is live"


@LOSSES
def test_compaction_in_run_neither_weighs_nor_plans_nor_commits_below_a_commit_that_is_gone(
    running: Running, lose: Lose, tmp_path: Path
) -> None:
    store, led = running.store, running.led
    work = Candidate(led, CompactionPolicy(), CandidateAssessor(store, store.clock)(led, CompactionPolicy()))
    before = only_state(store)
    lost = lose(running)
    objects = dict(store.objects)
    with pytest.raises(CorruptFile, match=r"this sidecar(?: read)?,"):
        CandidateAssessor(store, store.clock)(led, CompactionPolicy())
    request = CompactionRequest(led.root, RULES, WRITER, newest_commit=led.newest_commit)
    with pytest.raises(CorruptFile, match=r"this sidecar(?: read)?,"):
        plan_archive(store, request, store.clock)
    at = {"url": str(tmp_path / "archive")}
    settings = Settings.model_validate({"store": at, "compaction": {"staging_dir": str(tmp_path / "work")}})
    (refused,) = ArchiveJobs(settings, running.context, LocalEngines(), lambda _: TopicRule(work.policy))([work])
    assert isinstance(refused.error, CorruptFile)
    assert store.objects == objects
    store.objects.update(lost)
    assert only_state(store) == before


def test_a_compaction_does_not_commit_below_what_was_committed_and_lost_while_it_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It planned on commit n; the uploader committed n+1; the store lost that."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore(ManualClock(NOW_MS))
    use(monkeypatch, store)
    set_aside_last(log_dir / "orders-0", tmp_path / "aside")
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        (led,) = rounds.run_once().led
        running = Running(context, rounds, store, log_dir, led)
        planned = only_state(store)

        def meanwhile(_request: CompactionRequest, decided: PartitionState) -> None:
            assert decided.last_commit == planned.last_commit
            for file in (tmp_path / "aside").iterdir():
                file.rename(log_dir / "orders-0" / file.name)
            assert rounds.run_once().errors == []
            lost.update(running.lose_newest())

        lost: dict[str, bytes] = {}
        compacting = ArchiveCompactor(SETTINGS, LocalEngine(), store.clock, tmp_path / "work", confirm=meanwhile)
        (result,) = compacting.compact([CompactionRequest(led.root, RULES, WRITER, newest_commit=led.newest_commit)])
    assert isinstance(result.error, CorruptFile)
    assert not result.is_unknown
    assert next(iter(lost)) not in store.objects
    assert only_state(store) == planned
    store.objects.update(lost)


def test_what_is_known_outlives_an_error_and_is_of_one_lineage(running: Running) -> None:
    (archiver,) = running.rounds.checks.archivers
    state = only_state(running.store)
    assert running.led.newest_commit() == state.last_commit == CommitId(state.next_number - 1, state.last_sha256 or "")
    archiver.known.forget()
    assert running.led.newest_commit() == state.last_commit
    assert archiver.newest_commit(ObjectKey(f"{running.led.root}x")) is None


def test_objects_of_an_upload_that_the_journal_knows_stay_however_old_they_are(running: Running) -> None:
    """A slow upload: its `.log` is a day old, and its `.indexes` is on its way."""
    keys = log_key(10**6, an_id("slow")), indexes_key(10**6, an_id("slow"))
    objects = {below(running.led.root, key) for key in keys}
    for key in objects:
        running.store.put_if_absent(key, b"bytes")
    attempt = Attempt(
        an_id("slow"), running.led.root, 10**6, 10**6 + 1, *keys, inode=1, size_bytes=1, mtime_ns=1, begun_ms=1
    )
    running.context.journal.begin(attempt)
    running.clear_up()
    assert objects <= running.segment_objects()
    running.context.journal.end(attempt.segment_id)
    running.clear_up()
    assert not objects & running.segment_objects()


def collect(store: MemoryStore, *, dry_run: bool = False) -> Collected:
    """As the command does it, with no memory, and so late that all objects are old enough to go."""
    (root,) = {key.split("/commits/")[0] for key in store.objects if "/commits/" in key}
    later_ms = NOW_MS + 2 * ORPHAN_MS
    gc = partial(collect_garbage, store, ObjectKey(root), store.clock, WRITER)
    return gc(store_now_ms=later_ms, grace_period_ms=0, dry_run=dry_run)


def leave(store: MemoryStore, state: PartitionState) -> None:
    """Put this in the place of all checkpoints."""
    for key in [key for key in store.objects if "/checkpoints/" in key]:
        del store.objects[key]
    store.put_if_absent(below(state.lineage.root, checkpoint_key(state.next_number - 1)), encode_checkpoint(state))


def test_a_checkpoint_that_leaves_segments_out_makes_gc_delete_nothing_that_commits_name(running: Running) -> None:
    store, state = running.store, only_state(running.store)
    before = running.segment_objects()
    leave(store, replace(state, segments=state.segments[5:]))
    for dry_run in (True, False):
        assert collect(store, dry_run=dry_run) == Collected()
    assert running.segment_objects() == before
    leave(store, state)


def test_a_checkpoint_that_calls_segments_removed_earlier_makes_gc_delete_nothing_early(
    running: Running, tmp_path: Path
) -> None:
    """Commits decide that a segment is removed, since when, and for how long it is kept."""
    store = running.store
    raw = only_state(store)
    assert compact_one(store, raw, RULES, tmp_path).error is None
    state = only_state(store)
    assert state.removed
    store.modified_ms[running.newest] = NOW_MS + 3 * ORPHAN_MS
    before = running.segment_objects()
    leave(store, replace(state, removed=tuple(replace(found, removed_by_commit=0) for found in state.removed)))
    assert collect(store) == Collected()
    assert running.segment_objects() == before
    leave(store, state)


@pytest.mark.parametrize("dry_run", [False, True])
def test_gc_by_hand_stops_where_a_checkpoint_shows_that_the_newest_commit_is_missing(
    running: Running, dry_run: bool
) -> None:
    store, state = running.store, only_state(running.store)
    leave(store, state)
    newest = running.newest
    commit = store.objects.pop(newest)
    objects = dict(store.objects)
    with pytest.raises(CorruptFile, match="is missing, although this sidecar, a checkpoint or"):
        collect(store, dry_run=dry_run)
    assert store.objects == objects
    store.objects[newest] = commit
