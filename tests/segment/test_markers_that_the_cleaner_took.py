"""The broker's cleaner took markers before they were archived: what they aborted is archived already, and must stay hidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog

from producer_state.facts import MARKER_ABORT
from producer_state.replay import CompletedTransaction, replay
from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable
from sidecar.archive.keys import below
from sidecar.archive.state import empty_state, newest_part
from sidecar.broker.files import FileBrokerFacts
from sidecar.compaction.rules import CompactionRules
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.errors import CorruptFile, PartitionError
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch, build_empty_batch, build_marker
from sidecar.logformat.bodies.legacy import build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.indexes.transaction_index import TransactionIndex, read_transaction_index
from sidecar.model import PartName, TopicPartition
from sidecar.segment.added_markers import markers_may_be_gone
from sidecar.segment.archived_objects import read_parts, table_at_end
from sidecar.segment.bundle import CompactedCopy, fresh_attempt, with_copy
from sidecar.segment.dropped_producers import NOTHING_DROPPED
from sidecar.segment.open_transactions import OpenTransactions, undecided
from sidecar.segment.prepare import LogPosition, prepare_segment
from sidecar.segment.producer_snapshot import state_at_archive_end
from sidecar.segment.transaction_batches import batches_left
from tests.archive.builders import LINEAGE, a_segment
from tests.compaction.reference.batches import decode_segment
from tests.fakes.memory_store import MemoryStore
from tests.retention.test_pinned_logs import Answering
from tests.runner.archives import compact_one, only_state, use
from tests.runner.rig import archive, archived_states, copy_partitions, ranges, tools_for
from tests.segment.made_logs import LEADER_EPOCH, NOW_MS, roll
from tests.snapshot_files import write_snapshot
from tests.verifying import verify_partition

PRODUCER, OTHER, AT_MS = 7, 8, NOW_MS - 90_000


def data(
    offset: int,
    key: bytes = b"k",
    producer_id: int = -1,
    sequence: int = -1,
    epoch: int = 0,
    *,
    leader_epoch: int = LEADER_EPOCH,
) -> bytes:
    return build_batch(
        [Record(offset, AT_MS, key, b"v%d" % offset, ())],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=producer_id >= 0,
    )


def marker(
    offset: int, *, commit: bool, producer_id: int = PRODUCER, epoch: int = 0, coordinator_epoch: int = 1
) -> bytes:
    return build_marker(
        offset,
        commit=commit,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=AT_MS,
        leader_epoch=LEADER_EPOCH,
    )


def emptied_marker(offset: int) -> bytes:
    fields: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": 0, "leader_epoch": LEADER_EPOCH}
    return build_empty_batch(base_offset=offset, last_offset=offset, transactional=True, control=True, **fields)


@dataclass
class Seen:
    """What readers of an archive see. `committed`: visible records, by key the newest. `open_offsets`: of open transactions.

    `aborted`: first and last offsets in the transaction indexes.
    """

    committed: dict[bytes, int] = field(default_factory=dict)
    visible: set[int] = field(default_factory=set)
    aborted: set[tuple[int, int, int]] = field(default_factory=set)
    markers: list[int] = field(default_factory=list)


def replayed(logs: Sequence[bytes]) -> tuple[ProducerTable, list[CompletedTransaction]]:
    table, completed = ProducerTable.blank(), list[CompletedTransaction]()
    for log in logs:
        for columns in scan_bytes(log):
            table, ended = replay(table, columns.facts())
            completed += ended
    return table, completed


def seen_in(logs: Sequence[bytes], aborted: set[tuple[int, int, int]], table: ProducerTable) -> Seen:
    """Judge records as a reader of committed records does: by transaction indexes, and by what is open at the end."""
    seen = Seen(aborted=aborted)
    still_open = {entry.producer_id: entry.current_txn_first_offset for entry in table.in_transaction().entries()}
    for batch in (batch for log in logs for batch in decode_segment(log)):
        if batch.is_control:
            seen.markers.append(batch.base_offset)
            continue
        hidden = any(number == batch.producer_id and a <= batch.base_offset <= b for number, a, b in aborted)
        begun = still_open.get(batch.producer_id)
        if hidden or (begun is not None and batch.base_offset >= begun):
            continue
        for record in batch.records:
            seen.visible.add(record.offset)
            seen.committed[record.key or b""] = record.offset
    return seen


def read_archive(store: MemoryStore) -> Seen:
    """Raises AssertionError where the archive contradicts itself."""
    state = archived_states(store)["orders-0"]
    root, logs, aborted = state.lineage.root, list[bytes](), set[tuple[int, int, int]]()
    for segment in state.segments:
        logs.append(store.read(below(root, segment.log_key)))
        index = read_transaction_index(read_parts(store, root, segment).get(PartName.TRANSACTION_INDEX, b""))
        aborted |= set(
            zip(index.producer_id.tolist(), index.first_offset.tolist(), index.last_offset.tolist(), strict=True)
        )
        table, completed = replayed(logs)
        archived, begun = table_at_end(store, root, segment).in_transaction(), table.in_transaction()
        assert archived.rows["producer_id"].tolist() == begun.rows["producer_id"].tolist()
        # The broker may know of an earlier beginning.
        assert (archived.rows["current_txn_first_offset"] <= begun.rows["current_txn_first_offset"]).all()
        for ended in (ended for ended in completed if ended.aborted):
            found = [a for number, a, b in aborted if (number, b) == (ended.producer_id, ended.last_offset)]
            assert found
            assert min(found) <= ended.first_offset
    with_clock = FixedClock()
    assert verify_partition(store, root, with_clock, deep=True).is_sound
    return seen_in(logs, aborted, table)


class FixedClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_s(self) -> float:
        return 0.0

    def sleep_s(self, seconds: float) -> None:
        raise AssertionError(seconds)


def archived_then(
    tmp_path: Path,
    before: Mapping[int, Sequence[bytes]],
    after: Mapping[int, Sequence[bytes]],
    end_offset: int,
    *,
    asks_leader: bool = False,
    snapshots: Mapping[int, bytes] | None = None,
    retention_ms: int | None = None,
    archived_end_offset: int | None = None,
    edit: Callable[[Path], object] = lambda _log_dir: None,
) -> tuple[MemoryStore, list[str], list[str]]:
    """Archive a log, then what a cleaner left of it. Returns the archive, events and errors of the second time.

    `retention_ms`: the topic's `delete.retention.ms`, None: not known. All files are a minute old.
    `archived_end_offset`: end of the log at the first time. `edit`: changes the log directory before the second time.
    """
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        policies = [TopicPolicySettings(pattern="orders", cleanup_policy="compact", delete_retention_ms=retention_ms)]
        facts = FileBrokerFacts([log_dir], assume_leader=True, policies=policies)
        context = replace(context, facts=Answering(facts, cluster_start_offset=0) if asks_leader else facts)
        roll(log_dir, before, archived_end_offset or end_offset)
        assert archive(context, log_dir, "orders").errors == []
        roll(log_dir, after, end_offset)
        edit(log_dir)
        for offset, content in (snapshots or {}).items():
            (log_dir / "orders-0" / f"{offset:020d}.snapshot").write_bytes(content)
        (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {max(after)}\n")
        with structlog.testing.capture_logs() as logs:
            report = archive(context, log_dir, "orders")
    events = [entry["event"] for entry in logs if entry["log_level"] in {"warning", "error"}]
    return store, events, [str(error) for error in report.errors]


ABORTED = [data(0, b"k", PRODUCER, 0), data(1, b"x")]
"""The archived segment. The transaction of its first record is open at its end."""
NEXT = [data(4, b"k", PRODUCER, 1), marker(5, commit=True)]
"""The producer's next transaction, which is committed."""
NEXT_AT_5 = [data(5, b"k", PRODUCER, 2), marker(6, commit=True)]
"""Likewise, but it does not continue the sequence numbers of the first one."""


@pytest.mark.parametrize("has_snapshot", [False, True], ids=["no snapshot", "the broker's snapshot"])
@pytest.mark.parametrize("asks_leader", [False, True], ids=["files", "leader"])
def test_aborted_records_do_not_come_back(tmp_path: Path, asks_leader: bool, has_snapshot: bool) -> None:
    entry = ProducerEntry(PRODUCER, 0, 0, 0, 0, AT_MS, 1)
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [marker(2, commit=False), data(3, b"y")]},
        {0: [data(1, b"x")], 2: [data(3, b"y")], 4: NEXT, 6: []},
        6,
        asks_leader=asks_leader,
        snapshots={4: write_snapshot([entry])} if has_snapshot else {},
    )
    assert errors == []
    assert "abort_marker_added" in events
    state = archived_states(store)["orders-0"]
    assert ranges(state) == [(0, 2), (2, 4), (4, 6)]
    assert [segment.snapshot.exact for segment in state.segments] == [True, False, False]
    seen = read_archive(store)
    assert (PRODUCER, 0, 2) in seen.aborted
    assert seen.committed == {b"x": 1, b"y": 3, b"k": 4}


@pytest.mark.parametrize("retention_ms", [0, 60_000, 60_001])
def test_a_marker_that_is_too_young_to_be_gone_is_not_replaced(tmp_path: Path, retention_ms: int) -> None:
    """The cleaner took the superseded record, and another one below the marker, which is in the next segment."""
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [data(2, b"y"), data(3, b"y"), marker(4, commit=True), *NEXT_AT_5]},
        {0: [data(1, b"x")], 2: [data(3, b"y")], 4: [marker(4, commit=True), *NEXT_AT_5], 7: []},
        7,
        retention_ms=retention_ms,
    )
    is_young = retention_ms > 60_000
    assert (events.count("abort_marker_added"), errors) == (0 if is_young else 1, [])
    seen = read_archive(store)
    assert (0 in seen.visible) == is_young
    assert seen.committed == {b"x": 1, b"y": 3, b"k": 5}


@pytest.mark.parametrize(
    ("first_offset", "mtimes_ns", "may_be_gone"),
    [
        (1, (5_000_000, 5_000_001), True),
        (1, (5_000_001, 5_000_000), False),
        (2, (5_000_000, 5_000_001), False),
        (2, (5_000_001, 5_000_000), True),
        (4, (5_000_000, 5_000_001), False),
        (4, (5_000_001, 5_000_000), True),
        (4, (5_000_001, None), True),
    ],
)
def test_a_marker_is_younger_than_the_file_in_which_its_transaction_begins(
    first_offset: int, mtimes_ns: tuple[int | None, ...], may_be_gone: bool
) -> None:
    """Two segments, up to offsets 2 and 4. Behind the archive's end, the newest one counts."""
    segments = tuple(
        a_segment(base_offset, base_offset + 2, source_mtime_ns=mtime_ns)
        for base_offset, mtime_ns in zip((0, 2), mtimes_ns, strict=True)
    )
    archived = replace(empty_state(LINEAGE), segments=segments)
    table = ProducerTable.from_entries(4, [ProducerEntry(PRODUCER, 0, 0, 0, 0, AT_MS, 1, first_offset)])
    assert bool(len(markers_may_be_gone(table, archived, 5).in_transaction())) == may_be_gone


def test_of_a_transaction_that_began_below_the_known_segments_the_marker_may_be_gone() -> None:
    """A process knows the newest segments. A replica may have fetched them later, already cleaned."""
    segments = tuple(a_segment(base_offset, base_offset + 2, source_mtime_ns=5_000_001) for base_offset in (0, 2))
    archived = newest_part(replace(empty_state(LINEAGE), segments=segments), 2)
    assert [segment.base_offset for segment in archived.segments] == [2]
    entries = [ProducerEntry(number, 0, 0, 0, 0, AT_MS, 1, number) for number in (1, 2)]
    table = markers_may_be_gone(ProducerTable.from_entries(4, entries), archived, 5)
    assert list(table.open_transactions()) == [1]


def test_of_a_transaction_that_began_in_a_gap_the_marker_may_be_gone() -> None:
    segments = tuple(a_segment(base_offset, base_offset + 2, source_mtime_ns=5_000_001) for base_offset in (0, 4))
    archived = replace(empty_state(LINEAGE), segments=segments)
    entries = [ProducerEntry(number, 0, 0, 0, 0, AT_MS, 1, number) for number in (1, 3, 5)]
    table = markers_may_be_gone(ProducerTable.from_entries(6, entries), archived, 5)
    assert list(table.open_transactions()) == [3]


def test_the_snapshot_of_a_roll_below_the_marker_does_not_open_the_transaction_again(tmp_path: Path) -> None:
    """The marker was at 3, above the roll at 3. When it was archived, the cleaner had taken offset 2, too."""
    is_open = ProducerEntry(PRODUCER, 0, 0, 0, 0, AT_MS, 1, 0)
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [data(2, b"y"), marker(3, commit=False)]},
        {0: [data(1, b"x")], 2: [], 3: [], 4: NEXT, 6: []},
        6,
        snapshots={3: write_snapshot([is_open])},
    )
    assert errors == []
    assert events.count("abort_marker_added") == 1
    assert read_archive(store).committed == {b"x": 1, b"k": 4}


def test_what_a_transaction_wrote_above_an_added_marker_began_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's snapshot has the transaction's own beginning. With it, no compaction of the archive would succeed."""
    began_at_0 = ProducerEntry(PRODUCER, 0, 1, 3, 0, AT_MS, -1, 0)
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [data(2, b"y"), data(3, b"z", PRODUCER, 1), data(4, b"y"), marker(5, commit=False)]},
        {0: [data(1, b"x")], 2: [data(3, b"z", PRODUCER, 1)], 4: [data(4, b"y")], 5: [marker(5, commit=False)], 6: []},
        6,
        snapshots={4: write_snapshot([began_at_0]), 5: write_snapshot([began_at_0])},
    )
    assert (events, errors) == (["abort_marker_added"], [])
    state = only_state(store)
    assert [
        [
            (entry.current_txn_first_offset)
            for entry in table_at_end(store, state.lineage.root, archived).in_transaction().entries()
        ]
        for archived in state.segments
    ] == [[0], [3], [3], []]
    use(monkeypatch, store)
    assert compact_one(store, state, CompactionRules(NOW_MS)).error is None
    assert read_archive(store).committed == {b"x": 1, b"y": 4}


def test_an_emptied_marker_is_replaced(tmp_path: Path) -> None:
    """The cleaner keeps the last batch of its range, and a producer's last marker, without the record."""
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [marker(2, commit=False), data(3, b"y")]},
        {0: [data(1, b"x")], 2: [emptied_marker(2), data(3, b"y")], 4: NEXT, 6: []},
        6,
    )
    assert errors == []
    assert "abort_marker_added" in events
    assert read_archive(store).committed == {b"x": 1, b"y": 3, b"k": 4}


def test_a_superseded_transaction_that_was_committed_costs_nothing(tmp_path: Path) -> None:
    """Its record went because the next transaction wrote the key; which of both outcomes it had does not show any more."""
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [marker(2, commit=True), data(3, b"y")]},
        {0: [data(1, b"x")], 2: [data(3, b"y")], 4: NEXT, 6: []},
        6,
    )
    assert errors == []
    assert "abort_marker_added" in events
    assert read_archive(store).committed == {b"x": 1, b"y": 3, b"k": 4}


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_a_transaction_with_a_batch_in_the_log_has_its_marker_there(tmp_path: Path, commit: bool) -> None:
    """It spans the border. Another producer's record below its marker is gone, so that an offset is free there."""
    before = {0: ABORTED, 2: [data(2, b"y"), data(3, b"z", PRODUCER, 1), marker(4, commit=commit), data(5, b"y")]}
    after = {0: ABORTED, 2: [data(3, b"z", PRODUCER, 1), marker(4, commit=commit), data(5, b"y")], 6: []}
    store, events, errors = archived_then(tmp_path, before, after, 6)
    assert (events.count("abort_marker_added"), errors) == (0, [])
    assert read_archive(store).committed == ({b"k": 0, b"z": 3} if commit else {}) | {b"x": 1, b"y": 5}


def test_what_a_transaction_wrote_above_the_border_ends_as_its_marker_says(tmp_path: Path) -> None:
    """Of a committed transaction, the record below is superseded, and that above is not."""
    store, _events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [data(2, b"y"), data(3, b"z", PRODUCER, 1), marker(4, commit=True), data(5, b"k")]},
        {0: [data(1, b"x")], 2: [data(3, b"z", PRODUCER, 1), marker(4, commit=True), data(5, b"k")], 6: []},
        6,
    )
    assert errors == []
    assert read_archive(store).committed == {b"x": 1, b"z": 3, b"k": 5}


def test_a_transaction_whose_producer_never_writes_again_is_ended_too(tmp_path: Path) -> None:
    store, _events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [marker(2, commit=False), data(3, b"y")]},
        {0: [data(1, b"x")], 2: [data(3, b"y")], 4: []},
        4,
    )
    assert errors == []
    state = archived_states(store)["orders-0"]
    assert not len(table_at_end(store, state.lineage.root, state.segments[-1]).in_transaction())
    assert read_archive(store).committed == {b"x": 1, b"y": 3}


@pytest.mark.parametrize(
    ("last_sequence", "sequence", "epoch", "is_own"),
    [
        (0, 1, 0, True),
        (2**31 - 1, 0, 0, True),
        (0, 2, 0, False),
        (0, 1, 1, False),
        (0, 0, 1, False),
    ],
)
def test_a_commit_marker_is_the_transactions_own_if_the_producer_wrote_nothing_in_between(
    tmp_path: Path, last_sequence: int, sequence: int, epoch: int, is_own: bool
) -> None:
    """Offset 2 is free. Else the marker may be that of another transaction, of which nothing is left."""
    ours = [data(0, b"k", PRODUCER, last_sequence), data(1, b"x")]
    left = [marker(3, commit=True), data(4, b"k", PRODUCER, sequence, epoch), marker(5, commit=True, epoch=epoch)]
    store, events, errors = archived_then(
        tmp_path, {0: ours, 2: [data(2, b"y"), *left]}, {0: [data(1, b"x")], 2: left, 6: []}, 6
    )
    assert (events.count("abort_marker_added"), errors) == (0 if is_own else 1, [])
    seen = read_archive(store)
    assert (0 in seen.visible) == is_own
    assert seen.committed == {b"x": 1, b"k": 4}


def test_data_without_a_marker_before_it_shows_that_the_marker_is_gone(tmp_path: Path) -> None:
    left = [data(3, b"k", PRODUCER, 1), marker(4, commit=True)]
    store, events, errors = archived_then(
        tmp_path, {0: ABORTED, 2: [marker(2, commit=False), *left]}, {0: [data(1, b"x")], 2: left, 5: []}, 5
    )
    assert (events, errors) == (["abort_marker_added"], [])
    assert read_archive(store).committed == {b"x": 1, b"k": 3}


@pytest.mark.parametrize("sequence", [1, 2])
def test_the_marker_of_records_that_retention_took_may_be_left(tmp_path: Path, sequence: int) -> None:
    """If it is not known whose abort marker it is, it hides records that may be committed."""
    left = [marker(3, commit=False), data(4, b"k", PRODUCER, sequence), marker(5, commit=True)]
    store, events, errors = archived_then(tmp_path, {0: ABORTED, 2: [data(2, b"y"), *left]}, {2: left, 6: []}, 6)
    assert (events, errors) == (["hidden_transaction_may_be_committed"] if sequence > 1 else [], [])
    assert read_archive(store).committed == {b"x": 1, b"k": 4}


def test_an_abort_marker_that_is_left_suffices(tmp_path: Path) -> None:
    """Offset 2 is free. Whichever transaction the marker ended, no reader misses what it hides."""
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [data(2, b"y"), marker(3, commit=False), data(4, b"y")]},
        {0: [data(1, b"x")], 2: [marker(3, commit=False), data(4, b"y")], 5: []},
        5,
    )
    assert (events.count("abort_marker_added"), errors) == (0, [])
    seen = read_archive(store)
    assert (PRODUCER, 0, 3) in seen.aborted
    assert seen.committed == {b"x": 1, b"y": 4}


def test_where_no_offset_is_free_below_the_next_batch_no_marker_is_lost(tmp_path: Path) -> None:
    """The commit marker is the transaction's own: retention took its records, and the cleaner one above."""
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [marker(2, commit=True), data(3, b"y"), data(4, b"y")]},
        {2: [marker(2, commit=True), data(4, b"y")], 5: []},
        5,
    )
    assert (events, errors) == ([], [])
    assert read_archive(store).committed == {b"k": 0, b"x": 1, b"y": 4}


def test_an_emptied_marker_above_the_next_batch_is_of_another_transaction(tmp_path: Path) -> None:
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [marker(2, commit=True), emptied_marker(3), data(4, b"y")]},
        {2: [marker(2, commit=True), emptied_marker(3), data(4, b"y")], 5: []},
        5,
    )
    assert (events, errors) == ([], [])
    assert read_archive(store).committed == {b"k": 0, b"x": 1, b"y": 4}


def test_records_that_retention_took_are_hidden_with_an_error(tmp_path: Path) -> None:
    """It is unknown whether they were committed: they may be the newest of their keys, and must not be read if aborted."""
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [marker(2, commit=True), data(3, b"y")]},
        {2: [data(3, b"y")], 4: NEXT, 6: []},
        6,
    )
    assert errors == []
    assert "hidden_transaction_may_be_committed" in events
    assert read_archive(store).committed == {b"x": 1, b"y": 3, b"k": 4}


def test_more_markers_than_free_offsets_stop_the_partition(tmp_path: Path) -> None:
    """One of two was taken. The other transaction goes on above, but the data of a later one would look the same."""
    both = [data(0, b"k", PRODUCER, 0), data(1, b"k", OTHER, 0)]
    above = [data(3, b"k", PRODUCER, 1), data(4, b"k", OTHER, 1), marker(5, commit=True)]
    store, _, errors = archived_then(
        tmp_path,
        {0: both, 2: [marker(2, commit=False), *above, marker(6, commit=True, producer_id=OTHER)]},
        {0: [], 2: above, 6: [marker(6, commit=True, producer_id=OTHER)], 7: []},
        7,
    )
    (error,) = errors
    assert "do not fit below offset 4" in error
    assert ranges(archived_states(store)["orders-0"]) == [(0, 2)]


def test_a_file_that_retention_took_proves_nothing(tmp_path: Path) -> None:
    """The segment is prepared from a pinned file, and those behind it are pinned, too."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        roll(log_dir, {0: ABORTED, 2: [marker(2, commit=False)]}, 3)
        archive(context, log_dir, "orders")
        state = only_state(store)
        roll(log_dir, {2: [data(3, b"y")], 4: LEFT_BY_RETENTION, 7: []}, 7)
        files = read_partition_directory(state.lineage.topic_partition, log_dir, log_dir / "orders-0")
        files.segments[1].log.path.unlink()
        known = state_at_archive_end(store, state, NOTHING_DROPPED)
        assert known is not None
        prepared, _ = prepare_segment(context, files, state, files.segments[0], LogPosition(known, -1), None, 0, None)
        prepared.close()
        assert [(marker.place.offset, marker.may_be_committed) for marker in prepared.added] == [(2, True)]


LEFT_BY_RETENTION = [marker(4, commit=True), data(5, b"z", PRODUCER, 1), marker(6, commit=True)]


@pytest.mark.parametrize("rolled_at", [[2, 4], [2, 5], [2]], ids=["marker behind", "data behind", "one segment"])
def test_a_marker_that_the_log_proves_to_be_the_transactions_own_is_kept(tmp_path: Path, rolled_at: list[int]) -> None:
    """Retention took the records, and they may be the newest of their keys."""
    batches = {3: data(3, b"y"), **dict(zip((4, 5, 6), LEFT_BY_RETENTION, strict=True))}
    ends = [*rolled_at[1:], 7]
    after = {
        base: [batch for at, batch in batches.items() if base <= at < end]
        for base, end in zip(rolled_at, ends, strict=True)
    }
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [data(2, b"y"), data(3, b"y"), marker(4, commit=True)]},
        {**after, 7: []},
        7,
        archived_end_offset=5,
    )
    assert (events, errors) == ([], [])
    assert read_archive(store).committed == {b"k": 0, b"x": 1, b"y": 3, b"z": 5}


@pytest.mark.parametrize(
    ("marker_epoch", "next_epoch", "sequence", "is_own"),
    [(6, 6, 0, True), (6, 6, 1, False), (5, 6, 0, False), (7, 7, 0, False), (6, 7, 0, False)],
)
def test_a_marker_of_transaction_version_2_has_the_next_epoch(
    tmp_path: Path, marker_epoch: int, next_epoch: int, sequence: int, is_own: bool
) -> None:
    first = [data(0, b"k", PRODUCER, 0, epoch=5), data(1, b"x")]
    left = [marker(4, commit=True, epoch=marker_epoch), data(5, b"z", PRODUCER, sequence, next_epoch)]
    store, events, errors = archived_then(
        tmp_path,
        {0: first, 2: [data(2, b"y"), data(3, b"y"), *left, marker(6, commit=True, epoch=next_epoch)]},
        {2: [data(3, b"y"), *left, marker(6, commit=True, epoch=next_epoch)], 7: []},
        7,
    )
    assert (events, errors) == ([] if is_own else ["hidden_transaction_may_be_committed"], [])
    assert (0 in read_archive(store).visible) == is_own


def test_a_commit_marker_becomes_an_abort_marker_where_it_is(tmp_path: Path) -> None:
    """Two transactions need one, and one offset is free. Its epochs and time stay. One transaction is of version 2."""
    first = [data(0, b"k", PRODUCER, 0, epoch=5), data(1, b"l", OTHER, 0, epoch=9), data(2, b"x")]
    markers = [marker(6, commit=True, epoch=6), marker(7, commit=True, producer_id=OTHER, epoch=9)]
    left = [data(3, b"k"), data(4, b"l"), *markers, data(8, b"m")]
    store, events, errors = archived_then(
        tmp_path,
        {0: first, 3: [data(3, b"k"), data(4, b"l"), data(5, b"m"), *markers, data(8, b"m")]},
        {0: [data(2, b"x")], 3: left, 9: []},
        9,
    )
    assert (events, errors) == (["abort_marker_added"] * 2, [])
    seen = read_archive(store)
    assert seen.aborted == {(PRODUCER, 0, 6), (OTHER, 1, 7)}
    assert seen.committed == {b"k": 3, b"l": 4, b"m": 8, b"x": 2}
    state = only_state(store)
    archived, wanted = (
        store.read(below(state.lineage.root, state.segments[-1].log_key)),
        [
            marker(6, commit=False, epoch=6),
            marker(7, commit=False, producer_id=OTHER, epoch=9),
        ],
    )
    assert archived == b"".join([*left[:2], *wanted, left[-1]])


def test_a_commit_marker_in_a_later_segment_does_not_stop_the_partition(tmp_path: Path) -> None:
    """One offset is free in the segment in between. The marker that found none becomes an abort marker in its own segment."""
    first = [data(0, b"k", PRODUCER, 0), data(1, b"l", OTHER, 0), data(2, b"x")]
    markers = [marker(6, commit=True), marker(7, commit=True, producer_id=OTHER)]
    store, events, errors = archived_then(
        tmp_path,
        {0: first, 3: [data(3, b"k"), data(4, b"l"), data(5, b"m"), *markers, data(8, b"m"), data(9, b"m")]},
        {0: [data(2, b"x")], 3: [data(3, b"k"), data(4, b"l")], 6: [*markers, data(9, b"m")], 10: []},
        10,
    )
    assert (events, errors) == (["abort_marker_added"] * 2, [])
    seen = read_archive(store)
    assert seen.aborted == {(PRODUCER, 0, 5), (OTHER, 1, 7)}
    assert seen.committed == {b"k": 3, b"l": 4, b"m": 9, b"x": 2}


def test_a_free_offset_is_for_the_producer_that_has_no_marker_left(tmp_path: Path) -> None:
    """The other one's next batch is a commit marker of a later segment."""
    first = [data(0, b"k", PRODUCER, 0), data(1, b"l", OTHER, 0), data(2, b"x")]
    store, events, errors = archived_then(
        tmp_path,
        {
            0: first,
            3: [data(3, b"k"), data(4, b"l"), marker(5, commit=False, producer_id=OTHER), marker(6, commit=True)],
        },
        {0: [data(2, b"x")], 3: [data(3, b"k"), data(4, b"l")], 6: [marker(6, commit=True), data(8, b"m")], 9: []},
        9,
    )
    assert (events, errors) == (["abort_marker_added"] * 2, [])
    assert read_archive(store).aborted == {(OTHER, 1, 5), (PRODUCER, 0, 6)}


@pytest.mark.parametrize(
    ("left", "coordinator_epoch"),
    [
        ([data(6, b"y", leader_epoch=LEADER_EPOCH + 1)], 3),
        ([data(6, b"y", leader_epoch=LEADER_EPOCH + 1)], None),
        ([data(4, b"y"), data(7, b"y", leader_epoch=LEADER_EPOCH + 1)], 3),
    ],
    ids=["at the base", "a producer without a marker", "behind another batch"],
)
def test_an_added_marker_has_the_epochs_of_the_archived_transaction(
    tmp_path: Path, left: list[bytes], coordinator_epoch: int | None
) -> None:
    """Its leader epoch is that of the batch in front of it, where the leader epoch checkpoint begins above it."""
    earlier = [data(0, b"k", PRODUCER, 0, 5), marker(1, commit=True, epoch=5, coordinator_epoch=coordinator_epoch or 0)]
    first = [*(earlier if coordinator_epoch else ()), data(2, b"k", PRODUCER, 1, 5), data(3, b"x")]
    store, _events, errors = archived_then(
        tmp_path,
        {0: first, 4: [marker(4, commit=False, epoch=5)]},
        {0: [data(3, b"x")], 4: left, 8: []},
        8,
        archived_end_offset=5,
        edit=lambda log_dir: (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text(
            f"0\n1\n{LEADER_EPOCH + 1} {8 - len(left)}\n"
        ),
    )
    assert errors == []
    state = only_state(store)
    (found, *_) = scan_bytes(store.read(below(state.lineage.root, state.segments[-1].log_key)))
    (row,) = np.flatnonzero(found.marker_type == MARKER_ABORT)
    leader_epoch = LEADER_EPOCH + (len(left) == 1)
    columns = (found.producer_epoch, found.coordinator_epoch, found.max_timestamp_ms, found.leader_epoch)
    assert [int(column[row]) for column in columns] == [5, coordinator_epoch or 0, AT_MS, leader_epoch]


@pytest.mark.parametrize("is_left", [True, False])
def test_an_emptied_marker_shows_that_a_marker_is_gone(tmp_path: Path, is_left: bool) -> None:
    """Retention took the records. No offset is free, so that without it the commit marker is the transaction's own."""
    left = [emptied_marker(2), data(3, b"y"), marker(4, commit=True)]
    after = left if is_left else [data(2, b"y"), data(3, b"y"), marker(4, commit=True)]
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [marker(2, commit=False)]},
        {2: [*after, data(6, b"y")], 7: []},
        7,
        archived_end_offset=3,
    )
    assert (events, errors) == (["hidden_transaction_may_be_committed"] if is_left else [], [])
    assert (0 in read_archive(store).visible) != is_left


OLD_FORMAT = build_legacy_wrapper(
    [Record(offset, AT_MS, b"y", b"v", ()) for offset in (2, 3)], codec=1, magic=1, append_time_ms=None
)


@pytest.mark.parametrize(
    ("left", "end_offset"),
    [
        ([marker(2, commit=True), data(3, b"y"), data(4, b"y")], 5),
        ([data(2, b"z", PRODUCER, 1), marker(4, commit=True)], 5),
        ([OLD_FORMAT, data(4, b"z", PRODUCER, 1)], 6),
    ],
    ids=["a log that was not cleaned", "a free offset behind the next batch", "an old format"],
)
def test_where_no_offset_is_free_in_front_of_the_next_batch_nothing_is_added(
    tmp_path: Path, left: list[bytes], end_offset: int
) -> None:
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [marker(2, commit=True)]},
        {0: [data(1, b"x")], 2: left, end_offset: [data(6, b"y"), marker(7, commit=True)], 8: []},
        8,
        archived_end_offset=3,
    )
    assert (events, errors) == ([], [])
    assert 0 in read_archive(store).visible


def test_markers_are_added_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    """One takes the place of a commit marker, and another one, which is placed first, is above it."""
    first = [data(0, b"k", PRODUCER, 0), data(1, b"l", OTHER, 0), data(2, b"x")]
    left = [
        marker(3, commit=True, producer_id=OTHER),
        data(4, b"y"),
        data(6, b"k", PRODUCER, 1),
        marker(7, commit=True),
    ]
    store, events, errors = archived_then(
        tmp_path,
        {0: first, 3: [*left[:2], marker(5, commit=False), *left[2:]]},
        {0: [data(2, b"x")], 3: left, 8: []},
        8,
    )
    assert (events, errors) == (["abort_marker_added"] * 2, [])
    assert read_archive(store).aborted == {(OTHER, 1, 3), (PRODUCER, 0, 5)}


def test_an_attempt_without_the_marker_is_not_resumed(tmp_path: Path) -> None:
    """Its `.log` object was uploaded before `delete.retention.ms` had passed."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        roll(log_dir, {0: ABORTED, 2: [marker(2, commit=False)]}, 3)
        archive(context, log_dir, "orders")
        state = only_state(store)
        roll(log_dir, {0: [data(1, b"x")], 2: [data(3, b"y")], 4: []}, 4)
        files = read_partition_directory(state.lineage.topic_partition, log_dir, log_dir / "orders-0")
        known = state_at_archive_end(store, state, NOTHING_DROPPED)
        assert known is not None
        before, segment = LogPosition(known, -1), files.segments[1]
        resumed = fresh_attempt(state.lineage.root, segment, "an earlier one", 0)
        prepared, _ = prepare_segment(context, files, state, segment, before, None, 0, resumed)
        prepared.close()
        assert prepared.added
        assert prepared.attempt.segment_id != resumed.segment_id


def test_no_marker_is_added_to_a_segment_whose_end_is_lost(tmp_path: Path) -> None:
    first = [data(0, b"w"), data(1, b"k", PRODUCER, 0), data(2, b"x")]
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        context = replace(context, facts=FileBrokerFacts([log_dir], assume_leader=True))
        roll(log_dir, {0: first, 3: [marker(3, commit=False)]}, 4)
        assert archive(context, log_dir, "orders").errors == []
        roll(log_dir, {0: [first[0], first[2]], 3: [data(3, b"y")], 5: []}, 5)
        with structlog.testing.capture_logs() as logs:
            assert archive(context, log_dir, "orders").errors == []
    assert "abort_marker_added" not in [entry["event"] for entry in logs]
    assert (3, 4) in ranges(only_state(store))


def test_the_log_behind_is_not_read_where_the_segment_decides(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        roll(log_dir, {0: ABORTED, 2: [marker(2, commit=False)]}, 3)
        archive(context, log_dir, "orders")
        state = only_state(store)
        roll(log_dir, {0: [data(1, b"x")], 2: [data(3, b"k", PRODUCER, 1)], 4: [marker(4, commit=True)], 5: []}, 5)
        files = read_partition_directory(state.lineage.topic_partition, log_dir, log_dir / "orders-0")
        files.segments[2].log.path.unlink()
        files.segments[2].log.path.mkdir()
        known = state_at_archive_end(store, state, NOTHING_DROPPED)
        assert known is not None
        prepared, _ = prepare_segment(context, files, state, files.segments[1], LogPosition(known, -1), None, 0, None)
        prepared.close()
        assert [marker.place.offset for marker in prepared.added] == [2]


@pytest.mark.parametrize("start_offset", [0, 1])
def test_what_retention_took_decides_no_transaction(tmp_path: Path, start_offset: int) -> None:
    """Of the transaction that began at 0, no batch is left."""
    (tmp_path / f"{start_offset:020d}.log").write_bytes(data(1, b"x"))
    (tmp_path / f"{2:020d}.log").touch()
    files = read_partition_directory(TopicPartition("orders", 0), tmp_path, tmp_path)
    waiting = OpenTransactions(files.segments[0], {PRODUCER: 0})
    assert (undecided(files, waiting) is not None) == (start_offset > 0)


@pytest.mark.parametrize(
    "left",
    [[data(4, b"y"), data(5, b"z")], [data(3, b"y"), data(5, b"z")], [data(4, b"y"), marker(5, commit=True)]],
    ids=["first", "middle", "last"],
)
def test_an_added_marker_does_not_contradict_the_brokers_log(tmp_path: Path, left: list[bytes]) -> None:
    """The replica fetched a cleaned log: it has no checkpoint of a cleaner, and no policy is known."""
    first = [data(0, b"w"), data(1, b"k", PRODUCER, 0), data(2, b"x")]
    cleaned = {0: [first[0], first[2]], 3: left}
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        context = replace(context, facts=FileBrokerFacts([log_dir], assume_leader=True))
        roll(log_dir, {0: first, 3: [marker(3, commit=False)]}, 4)
        assert archive(context, log_dir, "orders").errors == []
        roll(log_dir, {**cleaned, 6: []}, 6)
        with structlog.testing.capture_logs() as logs:
            assert archive(context, log_dir, "orders").errors == []
        assert "abort_marker_added" in [entry["event"] for entry in logs]
        roll(log_dir, {**cleaned, 6: [data(6, b"q")], 7: []}, 7)
        assert archive(context, log_dir, "orders").errors == []
    assert ranges(only_state(store)) == [(0, 3), (3, 6), (6, 7)]
    read_archive(store)


def test_the_transaction_index_of_a_broker_does_not_reach_over_an_added_marker(tmp_path: Path) -> None:
    """A consumer would end the transaction at the added marker, and take what is aborted behind it for committed."""
    one = [np.array([value], np.int64) for value in (PRODUCER, 0, 5, 6)]
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [marker(2, commit=False)]},
        {0: [data(1, b"x")], 2: [data(3, b"z", PRODUCER, 1), data(4, b"y"), marker(5, commit=False)], 6: []},
        6,
        archived_end_offset=3,
        edit=lambda log_dir: (log_dir / "orders-0" / f"{2:020d}.txnindex").write_bytes(
            TransactionIndex(*one).to_bytes()
        ),
    )
    assert (events, errors) == (["abort_marker_added"], [])
    seen = read_archive(store)
    assert seen.aborted == {(PRODUCER, 0, 2), (PRODUCER, 3, 5)}
    assert seen.committed == {b"x": 1, b"y": 4}


def test_a_committed_tombstone_with_its_marker_in_the_log_is_not_hidden(tmp_path: Path) -> None:
    """The cleaner takes a tombstone that is old enough, though no record supersedes it."""
    first = [data(0, b"k"), tombstone(1), data(2, b"x")]
    store, events, errors = archived_then(
        tmp_path,
        {0: first, 3: [data(3, b"y"), data(4, b"y"), marker(5, commit=True)]},
        {
            0: [data(2, b"x")],
            3: [data(4, b"y"), marker(5, commit=True)],
            6: [data(6, b"z", PRODUCER, 1), marker(7, commit=True)],
            8: [],
        },
        8,
        archived_end_offset=6,
        retention_ms=1,
    )
    assert (events, errors) == ([], [])
    assert read_archive(store).committed[b"k"] == 1


def tombstone(offset: int) -> bytes:
    return build_batch(
        [Record(offset, AT_MS, b"k", None, ())],
        leader_epoch=LEADER_EPOCH,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


@pytest.mark.parametrize(
    ("below", "is_left"),
    [
        ([data(1, b"k", PRODUCER, 1)], True),
        ([data(0, b"k", PRODUCER, 0), marker(2, commit=True)], False),
        ([marker(3, commit=False)], False),
    ],
    ids=["its batch", "the batch of an earlier one", "a marker"],
)
def test_only_a_batch_of_the_transaction_below_the_archives_end_shows_that_its_marker_is_left(
    tmp_path: Path, below: list[bytes], is_left: bool
) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join([*below, data(4, b"k", PRODUCER, 2)]))
    (tmp_path / f"{5:020d}.log").touch()
    files = read_partition_directory(TopicPartition("orders", 0), tmp_path, tmp_path)
    assert batches_left(files, {PRODUCER: 1}, 4) == ({PRODUCER} if is_left else set())


def test_damage_below_the_archives_end_may_hide_a_batch_of_the_transaction(tmp_path: Path) -> None:
    batches = [data(0), bytearray(data(1)), data(2, b"k", PRODUCER, 1)]
    batches[1][16] = 9  # the format
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    (tmp_path / f"{3:020d}.log").touch()
    files = read_partition_directory(TopicPartition("orders", 0), tmp_path, tmp_path)
    with pytest.raises(CorruptFile):
        batches_left(files, {PRODUCER: 1}, 3)


def test_damage_behind_the_batches_that_are_searched_hides_nothing(tmp_path: Path) -> None:
    """The rest of the file is not even read: that of an archive may be large."""
    batches = [data(offset, b"k", PRODUCER, offset) for offset in range(2000)]
    batches[-1] = b"\0" * len(batches[-1])
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    (tmp_path / f"{2000:020d}.log").touch()
    files = read_partition_directory(TopicPartition("orders", 0), tmp_path, tmp_path)
    assert batches_left(files, {PRODUCER: 1}, 2000) == {PRODUCER}


def test_a_compacted_copy_does_not_replace_a_segment_with_an_added_marker(tmp_path: Path) -> None:
    """The copy is of the broker's batches only. So the group goes as it is."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        roll(log_dir, {0: ABORTED, 2: [marker(2, commit=False)]}, 3)
        archive(context, log_dir, "orders")
        state = archived_states(store)["orders-0"]
        roll(log_dir, {0: [data(1, b"x")], 2: [data(3, b"y")], 4: []}, 4)
        files = read_partition_directory(state.lineage.topic_partition, log_dir, log_dir / "orders-0")
        known = state_at_archive_end(store, state, NOTHING_DROPPED)
        assert known is not None
        position = LogPosition(known, -1)
        prepared, _ = prepare_segment(context, files, state, files.segments[1], position, None, 0, None)
        try:
            assert [marker.place.offset for marker in prepared.added] == [2]
            built = prepared.reading.built
            copy = CompactedCopy(tmp_path / "copy", 0, 0, built, "offset", {})
            with pytest.raises(PartitionError, match="its copy lacks them"):
                with_copy(prepared, copy, "id", state.lineage.root)
            source = prepared.log_source
            whole = bytes(source.read_at(0, source.size_bytes))
            assert [bytes(source.read_at(at, 3)) for at in range(source.size_bytes - 2)] == [
                whole[at : at + 3] for at in range(len(whole) - 2)
            ]
        finally:
            prepared.close()
