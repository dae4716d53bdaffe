"""A log that was restored without producers is archived as one that nobody is known of below its end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from producer_state.snapshot import read_snapshot
from sidecar.archive.bundle import EMPTY_SNAPSHOT, cut_part
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.model import ArchivedSegment, PartName, SnapshotOrigin
from sidecar.restore.request import OpenTransactionMode, ProducerStateMode
from sidecar.runner.checks import CycleReport
from sidecar.segment.dropped_producers import NAME, dropped_producers
from tests.fakes.memory_store import MemoryStore
from tests.restore.archives import archived, other_log_dir, own_log_dir, restored
from tests.restore.dropped_log import log_written_on
from tests.runner.archives import sound
from tests.runner.rig import archive, archived_states, copy_partitions, remove_offsets, tools_for


def part_of(store: MemoryStore, state: PartitionState, segment: ArchivedSegment, name: PartName) -> bytes | None:
    part = segment.part(name)
    return part and cut_part(store.objects[below(state.lineage.root, segment.indexes_key)], part, "")


def archived_anew(
    log_dir: Path, state_dir: Path, store: MemoryStore, topic: str, rounds: int = 1, **policy: Any
) -> list[CycleReport]:
    """What the rounds report, each of a process of its own. Nothing is reported as wrong."""
    reports = []
    with capture_logs() as logs:
        for _ in range(rounds):
            with tools_for(log_dir, store, state_dir, **policy) as context:
                reports.append(archive(context, log_dir, topic))
    assert [error for report in reports for error in report.errors] == []
    assert [line for line in logs if line["log_level"] in {"warning", "error"}] == []
    return reports


@pytest.mark.parametrize(("rounds", "policy"), [(1, {}), (12, {"max_queue": 1})])
@pytest.mark.parametrize("topic", ["orders", "transactions"])
def test_its_empty_snapshots_are_right(tmp_path: Path, topic: str, rounds: int, policy: dict[str, int]) -> None:
    source, store, log_dir = archived(), MemoryStore(), other_log_dir(tmp_path)
    outcome = restored(source, log_dir, topic, open_transactions=OpenTransactionMode.ABORT)
    assert outcome.log is not None
    directory = log_dir / f"{topic}-0"
    assert dropped_producers(directory).below_offset == outcome.log.end_offset
    reports = archived_anew(log_dir, tmp_path / "state", store, topic, rounds, **policy)
    before, after = archived_states(source)[f"{topic}-0"], archived_states(store)[f"{topic}-0"]
    assert after.end_offset == outcome.log.end_offset
    outcomes = [found for report in reports for found in report.outcomes]
    undecided = 0
    for segment in after.segments:
        content = part_of(store, after, segment, PartName.PRODUCER_SNAPSHOT) or b""
        is_rebuilt = segment.snapshot.origin is SnapshotOrigin.REBUILT
        assert (content != EMPTY_SNAPSHOT) == is_rebuilt
        assert all(entry.current_txn_first_offset is not None for entry in read_snapshot(content))
        undecided += is_rebuilt
    assert (undecided > 0) == (topic == "transactions")
    assert sum(found.conformance["permissible"] for found in outcomes) == undecided
    assert sum(found.conformance["equal"] for found in outcomes) == len(after.segments) - undecided > 1
    assert len(after.segments) > 2
    # Who is not in the snapshots is followed nevertheless: their transactions span segments.
    aborted = [part_of(source, before, segment, PartName.TRANSACTION_INDEX) for segment in before.segments]
    assert aborted == [
        part_of(store, after, segment, PartName.TRANSACTION_INDEX) for segment in after.segments[: len(aborted)]
    ]


def test_new_producers_are_followed_from_its_end_on(tmp_path: Path) -> None:
    """The broker loads its empty snapshot there, and writes of the new ones only what came above."""
    store, log_dir = MemoryStore(), log_written_on(tmp_path).parent
    (report,) = archived_anew(log_dir, tmp_path / "state", store, "orders")
    assert report.outcomes[0].conformance == {"equal": 4}
    after = archived_states(store)["orders-0"]
    counts = [
        len(read_snapshot(part_of(store, after, segment, PartName.PRODUCER_SNAPSHOT) or b""))
        for segment in after.segments
    ]
    assert counts[:2] == [0, 0]
    assert counts[3] > 0


def test_a_snapshot_that_names_somebody_is_compared_as_ever(tmp_path: Path) -> None:
    """As of a replica that took its log over from another one, or of `snapshots heal`."""
    source, store, log_dir = archived(), MemoryStore(), other_log_dir(tmp_path)
    restored(source, log_dir, "orders")
    kept = own_log_dir(tmp_path)
    restored(source, kept, "orders", producer_state=ProducerStateMode.KEEP)
    assert not (kept / "orders-0" / NAME).exists()
    for path in (kept / "orders-0").glob("*.snapshot"):
        shutil.copy(path, log_dir / "orders-0")
    (report,) = archived_anew(log_dir, tmp_path / "state", store, "orders")
    before, after = archived_states(source)["orders-0"], archived_states(store)["orders-0"]
    snapshots = [part_of(store, after, segment, PartName.PRODUCER_SNAPSHOT) for segment in after.segments]
    assert snapshots == [part_of(source, before, segment, PartName.PRODUCER_SNAPSHOT) for segment in before.segments]
    assert report.outcomes[0].conformance == {"equal": len(snapshots)}


def gone_on(tmp_path: Path, rounds: int = 1, **policy: Any) -> tuple[MemoryStore, list[int], list[CycleReport]]:
    """An archive of two segments that goes on with the log that was restored from it; where segments end, and what is reported."""
    ends = [found.end_offset for found in archived_states(archived())["orders-0"].segments]
    store, before = MemoryStore(), copy_partitions(tmp_path / "before", "orders-0")
    remove_offsets(before / "orders-0", lambda offset: offset <= ends[1])
    (before / "orders-0" / f"{ends[1]:020d}.log").write_bytes(b"")
    for suffix in ("index", "timeindex"):
        (before / "orders-0" / f"{ends[1]:020d}.{suffix}").unlink()
    archived_anew(before, tmp_path / "before" / "state", store, "orders")
    assert archived_states(store)["orders-0"].end_offset == ends[1]
    log_dir = log_written_on(tmp_path, store).parent
    return store, ends, archived_anew(log_dir, tmp_path / "state", store, "orders", rounds, **policy)


@pytest.mark.parametrize(("rounds", "policy"), [(1, {}), (4, {"max_queue": 1})])
def test_an_archive_that_goes_on_with_such_a_log_knows_nobody_of_old_above_its_end(
    tmp_path: Path, rounds: int, policy: dict[str, int]
) -> None:
    """Restored in its own cluster: below, the archive has them yet."""
    store, ends, reports = gone_on(tmp_path, rounds, **policy)
    assert sum(report.outcomes[0].conformance["equal"] for report in reports) == 2
    after = archived_states(store)["orders-0"]
    assert [found.end_offset for found in after.segments] == ends[:4]
    assert [found.snapshot.origin for found in after.segments] == [SnapshotOrigin.BROKER] * 4
    sound(store)


def snapshot_at(store: MemoryStore, directory: Path, end_offset: int) -> bytes:
    """What a restore up to an offset, with producers, says of them there."""
    directory.mkdir()
    log_dir = own_log_dir(directory)
    keep = ProducerStateMode.KEEP
    outcome = restored(store, log_dir, "orders", offset_range=(0, end_offset), producer_state=keep)
    assert outcome.log is not None
    return (log_dir / "orders-0" / f"{outcome.log.added_from_offset:020d}.snapshot").read_bytes()


def test_a_restore_that_ends_inside_of_its_archive_brings_nobody_back(tmp_path: Path) -> None:
    store, log_dir = MemoryStore(), log_written_on(tmp_path).parent
    archived_anew(log_dir, tmp_path / "state", store, "orders")
    _, second, third, _ = archived_states(store)["orders-0"].segments
    assert snapshot_at(store, tmp_path / "below", second.end_offset - 1) == EMPTY_SNAPSHOT
    assert read_snapshot(snapshot_at(store, tmp_path / "above", third.base_offset + 1)) != ()


def test_nor_does_one_that_ends_behind_the_end_of_what_was_restored_before(tmp_path: Path) -> None:
    store, ends, _ = gone_on(tmp_path)
    known = read_snapshot(snapshot_at(store, tmp_path / "again", ends[1] + 1))
    assert known
    assert all(entry.last_offset >= ends[1] for entry in known)
    assert any(entry.last_offset < ends[1] for entry in read_snapshot(snapshot_at(store, tmp_path / "below", ends[1])))
