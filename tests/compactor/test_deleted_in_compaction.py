"""Compaction of an archive of which records were deleted (DeleteRecords): these neither win nor stay, and no live one is lost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from sidecar.archive.actions import DeleteRecords
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.compactor.archive_job import ArchiveJobs
from sidecar.compactor.candidate_queue import Candidate, CandidateAssessor, DeletionUnnoted
from sidecar.compactor.topic_rule import TopicRules
from sidecar.config import CompactionPolicy, Settings
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.engine_ports import StageEngine
from sidecar.model import ObjectKey
from sidecar.rewriting.local_engine import LocalEngine, LocalEngines
from sidecar.rewriting.what_if import what_if
from sidecar.runner.archive_loop import ArchiveLoop
from tests.compaction.reference.batches import decode_segment
from tests.compactor.test_groups_before_upload import LogStart
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import (
    NOW_MS,
    SETTINGS,
    WRITER,
    archived,
    compact_one,
    compactor,
    log_of,
    only_state,
    reference_logs,
    sound,
    use,
)
from tests.runner.rig import archive, copy_partitions, tools_for
from tests.segment.made_logs import VERSION, random_segments, records_in, roll, winners


def delete_before(store: MemoryStore, offset: int) -> PartitionState:
    state = only_state(store)
    log = CommitLog(store, ObjectKey(state.lineage.root), store.clock)
    return log.append([DeleteRecords(offset)], WRITER, log.read())


def borders(state: PartitionState) -> list[int]:
    """Log starts: at a segment's base, inside one and inside a batch of it, and one offset below the archive's end."""
    first, second = state.segments[:2]
    return [
        second.base_offset,
        second.base_offset + 1,
        (first.base_offset + first.end_offset) // 2,
        first.end_offset - 1,
    ]


@pytest.mark.parametrize(
    ("partition", "strategy"),
    [
        ("orders-0", Strategy.TIMESTAMP),
        ("append-time-0", Strategy.OFFSET),
        ("transactions-0", Strategy.OFFSET),
        ("compacted-0", Strategy.HEADER),
        ("codecs-java-0", Strategy.TIMESTAMP),
    ],
)
def test_what_was_deleted_neither_competes_nor_stays(
    partition: str, strategy: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = archived(tmp_path, partition)
    for turn, offset in enumerate(borders(only_state(whole))):
        store = MemoryStore(whole.clock)
        store.objects, store.modified_ms = dict(whole.objects), dict(whole.modified_ms)
        use(monkeypatch, store)
        before = delete_before(store, offset)
        rules = CompactionRules(NOW_MS, strategy=strategy, header="version")
        staging = tmp_path / f"{turn}"
        staging.mkdir()
        result = compact_one(store, before, rules, staging)
        assert result.error is None
        after = only_state(store)
        groups = [len(output.sources) for output in result.outputs]
        assert [log_of(store, after, found) for found in after.segments[: len(groups)]] == reference_logs(
            store, before, rules, groups
        )
        assert after.deleted_before_offset == offset
        assert (after.start_offset, after.end_offset) == (before.start_offset, before.end_offset)
        sound(store)


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("seed", range(3))
def test_what_stays_is_what_a_dictionary_keeps_of_the_live_records(
    seed: int, strategy: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletions go on between compactions."""
    random, store = Random(seed), MemoryStore(ManualClock(NOW_MS))
    log_dir = copy_partitions(tmp_path, "orders-0")
    segments = random_segments(random, 4)
    roll(log_dir, segments, max(segments))
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    use(monkeypatch, store)
    rules = CompactionRules(NOW_MS, strategy=strategy, header=VERSION, segment_bytes=random.choice([1, 10**6]))
    for start_offset in sorted(random.sample(range(1, max(segments)), 3)):
        before = delete_before(store, start_offset)
        held = records_in(log_of(store, before, found) for found in before.segments)
        expected = winners([found for found in held if found.offset >= start_offset], strategy)
        result = compact_one(store, before, rules, tmp_path)
        assert result.error is None
        after = only_state(store)
        assert {found.offset for found in records_in(log_of(store, after, s) for s in after.segments)} == expected
        assert result.deleted == sum(found.offset < start_offset for found in held)
        sound(store)


def test_the_report_counts_what_was_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = archived(tmp_path, "append-time-0")
    use(monkeypatch, store)
    before = delete_before(store, only_state(store).segments[1].base_offset)
    gone = len(decode_records(store, before, 0))
    request = CompactionRequest(before.lineage.root, CompactionRules(NOW_MS), WRITER)
    (dry,) = compactor(store).compact([request], dry_run=True)
    assert dry.figures_as_json()["deleted_records"] == gone
    job = compactor(store).job_of(request)
    assert job is not None
    engine: StageEngine = LocalEngine()
    for outlook in what_if(job, list(Strategy), engine):  # type: ignore[arg-type]
        assert outlook.deleted == gone
        for other in outlook.others:
            assert min(other.by_offset.offset, other.by_strategy.offset) >= before.deleted_before_offset


def decode_records(store: MemoryStore, state: PartitionState, number: int) -> list[object]:
    return [r for batch in decode_segment(log_of(store, state, state.segments[number])) for r in batch.records]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_deletion_that_is_noted_during_a_compaction_keeps_it_from_committing(
    strategy: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    state = only_state(store)
    rules = CompactionRules(NOW_MS, strategy=strategy)
    offset = state.segments[1].base_offset + 1
    meanwhile = [offset]

    def confirm(_request: CompactionRequest, _decided: PartitionState) -> None:
        if meanwhile:
            delete_before(store, meanwhile.pop())

    slow = ArchiveCompactor(SETTINGS, LocalEngine(), store.clock, tmp_path, confirm=confirm)
    (result,) = slow.compact([CompactionRequest(state.lineage.root, rules, WRITER)])
    assert isinstance(result.error, CommitConflict)
    assert "DeleteRecords" in str(result.error)
    assert only_state(store).segments == state.segments
    sound(store)
    (again,) = slow.compact([CompactionRequest(state.lineage.root, rules, WRITER)])
    assert again.error is None
    assert again.deleted > 0
    sound(store)


def test_a_deletion_between_the_check_and_the_commit_is_met_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    state = only_state(store)

    def uploader(operation: str, key: str) -> None:
        if operation == "put_if_absent" and "/commits/" in key:
            store.before = lambda _operation, _key: None
            delete_before(store, state.segments[1].base_offset + 1)

    store.before = uploader
    result = compact_one(store, state, CompactionRules(NOW_MS, strategy=Strategy.TIMESTAMP), tmp_path)
    assert isinstance(result.error, CommitConflict)
    assert only_state(store).segments == state.segments
    sound(store)


def test_a_log_start_that_moves_into_a_segment_during_a_job_keeps_it_from_committing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No scan has seen it, and no commit notes it. Retention moves the start to a border, which stops nothing."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore(ManualClock(NOW_MS))
    use(monkeypatch, store)
    facts = LogStart([log_dir], assume_leader=True)
    facts.planned = 0
    store_at = {"url": str(tmp_path / "archive")}
    settings = Settings.model_validate(
        {"store": store_at, "compaction": {"topics": [".*"], "staging_dir": str(tmp_path / "work")}}
    )
    with tools_for(log_dir, store, tmp_path / "state") as context:
        context = replace(context, facts=facts)
        rounds = ArchiveLoop(context, partial(scan_log_dirs, [log_dir], TopicFilter((".*",))))
        (led,) = rounds.run_once().led
        state = only_state(store)
        work = Candidate(led, CompactionPolicy(), CandidateAssessor(store, store.clock)(led, CompactionPolicy()))
        facts.confirmed = state.segments[1].base_offset + 5
        (refused,) = ArchiveJobs(
            settings, context, LocalEngines(), TopicRules(settings.compaction, facts.policy).rule_of
        )([work])
        assert isinstance(refused.error, DeletionUnnoted)
        assert refused.error.before_offset == facts.confirmed
        assert only_state(store) == state
        sound(store)
        facts.confirmed = state.segments[1].base_offset
        (done,) = ArchiveJobs(settings, context, LocalEngines(), TopicRules(settings.compaction, facts.policy).rule_of)(
            [work]
        )
        assert done.error is None
    assert only_state(store).segments != state.segments
    sound(store)
