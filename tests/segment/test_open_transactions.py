"""A partition behind a transaction that nobody decides costs the others nothing, and goes on when it is decided."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from producer_state.table import ProducerTable
from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.logformat.batches import scan_file
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.wait_reason import OpenTransaction
from sidecar.segment.open_transactions import look_ahead, open_transactions
from sidecar.segment.prepare import prepare_segment
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import (
    archive,
    archived_states,
    copy_partitions,
    ranges,
    rolled_ranges,
    rounds_over,
    tools_for,
)

PARTITION = "transactions-0"
"""Its high watermark is 1171; a transaction is open since offset 777, in segment [603, 848)."""


def set_stable_end(log_dir: Path, offset: int) -> None:
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (log_dir / name).write_text(f"0\n2\ntransactions 0 {offset}\norders 0 100000\n")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each segment of the transactional partition was read through, by its base offset."""
    counts: Counter[int] = Counter()

    def counted(context: Any, files: Any, archived: Any, segment: Any, *others: Any) -> Any:
        if segment.topic_partition.topic == "transactions":
            counts[segment.base_offset] += 1
        return prepare_segment(context, files, archived, segment, *others)

    monkeypatch.setattr("sidecar.runner.copy_executor.prepare_segment", counted)
    return counts


def test_a_hanging_transaction_takes_no_others_turn_and_is_not_read_again(reads: Counter[int], tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0", PARTITION), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", max_queue=2) as context:
        rounds = rounds_over(context, log_dir)
        reports = [rounds.run_once() for _ in range(12)]
        assert rounds.due_in_s() == math.inf
    states = archived_states(store)
    assert ranges(states["orders-0"]) == rolled_ranges(log_dir, "orders-0")
    assert ranges(states[PARTITION]) == [span for span in rolled_ranges(log_dir, PARTITION) if span[1] <= 777]
    assert set(reads.values()) == {1}
    (waiting,) = (found for found in reports[-1].outcomes if found.reason)
    assert isinstance(waiting.reason, OpenTransaction)
    assert waiting.reason.first_offset == 777
    assert waiting.waiting == 3


def test_one_partitions_backlog_does_not_fill_the_queue(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0", "append-time-0", PARTITION), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", max_queue=3) as context:
        rounds = rounds_over(context, log_dir)
        report = rounds.run_once()
        assert rounds.due_in_s() == 0
    assert {str(outcome.files.topic_partition): len(outcome.archived) for outcome in report.outcomes} == {
        "orders-0": 1,
        "append-time-0": 1,
        PARTITION: 1,
    }


def test_a_decided_transaction_lets_the_partition_go_on(reads: Counter[int], tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, PARTITION), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        seen = []
        for stable_end in range(100, 1172, 20):
            set_stable_end(log_dir, stable_end)
            assert rounds.run_once().errors == []
            state = archived_states(store).get(PARTITION)
            seen.append(state.end_offset if state else None)
    assert seen[-1] == 603
    assert seen == sorted(seen, key=lambda offset: offset or 0)
    # Once when its end became stable; once more where it had to wait and was let go. Never at each look.
    assert max(reads.values()) == 2
    assert reads[603] == 1


def test_a_transaction_that_outlives_every_timeout_is_reported_once(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, PARTITION)
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context, capture_logs() as logs:
        rounds = rounds_over(context, log_dir)
        for _ in range(5):
            rounds.run_once()
            context.clock.advance_ms(400_000)  # type: ignore[attr-defined]
    (reported,) = (entry for entry in logs if entry["event"] == "hanging_transaction")
    assert (reported["first_offset"], reported["open_s"]) == (777, 1200)
    assert "kafka-transactions.sh" in reported["remedy"]


def files_of(log_dir: Path) -> PartitionFiles:
    return read_partition_directory(TopicPartition("transactions", 0), log_dir, log_dir / PARTITION)


def test_what_is_read_ahead_counts_in_the_read_limit(reads: Counter[int], tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, PARTITION), MemoryStore()
    taken: list[int] = []
    with tools_for(log_dir, store, tmp_path / "state") as context:
        context.budget.reads.note = lambda size_bytes, _waited_s: taken.append(size_bytes)
        archive(context, log_dir, "transactions")
    prepared = sum(segment.size_bytes * reads[segment.base_offset] for segment in files_of(log_dir).segments)
    assert sum(taken) > prepared > 0


def test_looking_ahead_bit_by_bit_finds_what_a_look_from_the_beginning_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(copy_partitions(tmp_path, PARTITION))
    begun_at: list[int] = []

    def noted(path: Path, **options: Any) -> Any:
        begun_at.append(options["start_position"])
        return scan_file(path, **options)

    waits = 0
    for segment in files.segments:
        assert segment.snapshot is not None
        table = ProducerTable.from_snapshot(segment.end_offset, segment.snapshot.path.read_bytes())
        at_end = open_transactions(segment, table)
        if at_end is None:
            continue
        waiting = look_ahead(files, at_end, segment.end_offset)
        monkeypatch.setattr("sidecar.segment.open_transactions.scan_file", noted)
        for stable_end in range(segment.end_offset, 1172, 7):
            if waiting is None:
                break
            waits += 1
            waiting = look_ahead(files, waiting, stable_end)
            afresh = look_ahead(files, at_end, stable_end)
            assert (waiting and waiting.first_offsets) == (afresh and afresh.first_offsets)
    assert waits > 50
    assert max(begun_at) > 0
