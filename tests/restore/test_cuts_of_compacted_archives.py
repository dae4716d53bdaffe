"""A range that ends below a transaction's marker, or below where one was: if compaction took its records, it is not open there."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from producer_state.snapshot import ProducerEntry, read_snapshot
from producer_state.table import ProducerTable
from sidecar.compaction.rules import DAY_MS, CompactionRules
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.config.topic_filter import TopicFilter
from sidecar.errors import ObjectFrozen
from sidecar.model import ArchivedSegment
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.snapshots import Replay
from sidecar.snapshots.archived_partition import ArchivedPartition
from sidecar.snapshots.jobs import Forgetting
from sidecar.snapshots.rebuild import rebuild
from sidecar.snapshots.resolve_paths import archive_targets
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.oracle.client import Oracle
from tests.restore.archives import batches_of, own_log_dir, restored
from tests.runner.archives import SETTINGS, WRITER, compactor, only_state, use
from tests.runner.rig import archive, copy_partitions, tools_for
from tests.segment.made_logs import roll
from tests.segment.test_markers_that_the_cleaner_took import AT_MS, OTHER, PRODUCER, data, marker

ENDED_AT, CUT = 7, 10


@pytest.fixture(name="store")
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The records of one transaction that is open at offset 5 are superseded later, those of another are not."""
    store, log_dir = MemoryStore(ManualClock(AT_MS)), copy_partitions(tmp_path, "orders-0")
    segments = {
        0: [data(0, b"k"), data(1, b"k"), data(2, b"a", PRODUCER, 0), data(3, b"o", OTHER, 0), data(4, b"h")],
        5: [data(5, b"b"), data(6, b"c"), marker(ENDED_AT, commit=True), data(8, b"a"), data(9, b"d"), data(CUT, b"e"),
            marker(11, commit=True, producer_id=OTHER), data(12, b"l")],
        13: [data(13, b"f", PRODUCER, 1), marker(14, commit=True), data(15, b"g")],
        16: [data(16, b"m")],
        # Only what loses records is compacted again.
        17: [data(17, b"m")],
        18: [data(18, b"m")],
        19: [],
    }  # fmt: skip
    roll(log_dir, segments, 19)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir, "orders").errors == []
    use(monkeypatch, store)
    for days, end_offset in enumerate((17, 18, 19)):
        rules = CompactionRules(AT_MS + days * DAY_MS, joins_segments=False)
        request = CompactionRequest(only_state(store).lineage.root, rules, WRITER, end_offset)
        (result,) = compactor(store, tmp_path).compact([request])
        assert result.commit_number is not None
    return store


@pytest.mark.parametrize(("start", "end"), [(0, CUT), (0, 5), (3, CUT)])
def test_it_is_open_no_longer(start: int, end: int, store: MemoryStore, oracle: Oracle, tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    outcome = restored(store, log_dir, "orders", offset_range=(start, end))
    directory = log_dir / "orders-0"
    assert not {2, ENDED_AT} & {batch.first_offset for batch in batches_of(directory)}
    assert outcome.log is not None
    # Of what began below the restored range it is not known whether a batch is left.
    known = {OTHER: 3} if start == 0 else {PRODUCER: 2, OTHER: 3}
    assert set(outcome.log.open_transactions) == set(known.values())
    entries = read_snapshot((directory / f"{outcome.log.added_from_offset:020d}.snapshot").read_bytes())
    assert {entry.producer_id: entry.current_txn_first_offset for entry in entries} == {PRODUCER: None, **known}
    loaded = oracle.clean(directory, [], trust_snapshots=True, clean_shutdown=True, log_start_offset=start)
    assert loaded.last_stable_offset == 3


@pytest.mark.parametrize("replay", list(Replay))
def test_no_snapshot_that_is_rebuilt_names_it(replay: Replay, store: MemoryStore, tmp_path: Path) -> None:
    targets = archive_targets(SETTINGS, store.clock, TopicFilter())
    report = rebuild(targets, tmp_path / "out", LocalEngine(), Forgetting(AT_MS, DAY_MS), replay=replay)
    assert report.exit_code == 0
    found = {each.offset: read_snapshot(each.path.read_bytes()) for each in report.partitions[0].snapshots}
    open_at = {
        (offset, entry.producer_id)
        for offset, entries in found.items()
        for entry in entries
        if entry.current_txn_first_offset
    }
    assert open_at == {(5, OTHER)}


def test_what_was_searched_for_one_snapshot_is_not_read_again_for_the_next(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (partition,) = ArchivedPartition.stretches(SETTINGS, only_state(store))
    assert partition.bases == (5, 13, 16, 17, 18, 19)
    opened = ProducerEntry(PRODUCER, 0, 0, 2, 0, AT_MS, -1, 2)
    read: list[int] = []
    scanner = ArchivedPartition._scanner
    monkeypatch.setattr(
        ArchivedPartition, "_scanner", lambda log, each: (read.append(each.base_offset), scanner(log, each))[1]
    )
    open_at = {
        end: dict(partition.without_decided(ProducerTable.from_entries(end, [opened])).open_transactions())
        for end in (13, 16, 18, 13)
    }
    # In [13, 16) the producer has written again.
    assert open_at == {13: {}, 16: {PRODUCER: 2}, 18: {PRODUCER: 2}}
    assert read == [0, 5, 13, 13]


def test_an_object_that_the_search_cannot_read_stops_one_partition(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def frozen(_log: ArchivedPartition, segment: ArchivedSegment) -> NoReturn:
        raise ObjectFrozen(f"{segment.log_key}: in an archive class")

    monkeypatch.setattr(ArchivedPartition, "_scanner", frozen)
    targets = archive_targets(SETTINGS, store.clock, TopicFilter())
    report = rebuild(targets, tmp_path / "out", LocalEngine(), Forgetting(AT_MS, DAY_MS), replay=Replay.WINDOW)
    assert "in an archive class" in report.partitions[0].problem
    assert {5, 16, 19} <= {each.offset for each in report.partitions[0].snapshots}
