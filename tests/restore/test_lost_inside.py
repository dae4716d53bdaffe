"""Where offsets inside of what is restored are lost: nothing aborted shows, and every segment has its base's snapshot."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from producer_state.table import ProducerTable
from sidecar.cli.restore.report import show
from sidecar.logformat.batches import scan_file
from sidecar.logformat.headers import BatchFlag
from sidecar.logformat.indexes.transaction_index import read_transaction_index
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.restore.gap_transactions import ended_in_hole
from sidecar.restore.outcome import PartitionOutcome
from sidecar.restore.request import OpenTransactionMode, ProducerStateMode
from sidecar.restore.restore import RestoreReport, Run
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.real.reading_back import expected_reads
from tests.restore.archives import (
    archived,
    batches_of,
    files_of,
    lose,
    other_log_dir,
    own_log_dir,
    records_of,
    restored,
)
from tests.restore.test_ranges import assert_loadable
from tests.runner.rig import archive, archived_states, ranges, tools_for

TRANSACTIONS = "transactions-0"
HOLE = (220, 431)
"""A segment of it. Producer 11 has been in a transaction since 77 there, which is aborted at 307."""
SOURCE = golden("4.3.0") / "logs" / TRANSACTIONS


def target(directory: Path, name: object, *, own: bool = True) -> Path:
    (directory / str(name)).mkdir()
    return (own_log_dir if own else other_log_dir)(directory / str(name))


def lost(*base_offsets: int) -> MemoryStore:
    store = archived()
    for base_offset in base_offsets:
        lose(store, TRANSACTIONS, base_offset)
    return store


def shown_to_clients(directory: Path) -> set[int]:
    """Offsets of records that a consumer shows to a read_committed reader; it goes by the indexes, and by abort markers.

    Source: CompletedFetch.nextFetchedRecord.
    """
    indexes = [read_transaction_index(path.read_bytes()) for path in sorted(directory.glob("*.txnindex"))]
    begun = sorted(
        (int(first), int(who))
        for found in indexes
        for first, who in zip(found.first_offset, found.producer_id, strict=True)
    )
    aborted: set[int] = set()
    shown: set[int] = set()
    for path in sorted(directory.glob("*.log")):
        for columns in scan_file(path):
            for row in range(len(columns)):
                base, last, who = (
                    int(found[row]) for found in (columns.base_offset, columns.last_offset, columns.producer_id)
                )
                while begun and begun[0][0] <= last:
                    aborted.add(begun.pop(0)[1])
                if columns.marker_type[row] >= 0:
                    aborted -= {who} if columns.marker_type[row] == 0 else set()
                elif who not in aborted or not columns.attributes[row] & BatchFlag.TRANSACTIONAL:
                    shown |= set(range(base, last + 1))
    return shown & {record.offset for record in records_of(directory)}


def unsettled(outcome: PartitionOutcome) -> list[tuple[int, int, int]]:
    reported = outcome.to_json()["unsettled_transactions"]
    return [tuple(found.values()) for found in reported]  # type: ignore[attr-defined]


@pytest.mark.parametrize("own", [True, False])
def test_what_was_aborted_in_a_hole_is_not_shown(own: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_dir = target(tmp_path, "here", own=own)
    outcome = restored(lost(HOLE[0]), log_dir, "transactions", open_transactions=OpenTransactionMode.ABORT)
    assert outcome.log is not None
    directory = log_dir / TRANSACTIONS
    assert_loadable(directory, outcome.log.end_offset)
    marker = HOLE[0]
    assert unsettled(outcome) == [(11, 77, marker)]
    (written,) = (batch for batch in batches_of(directory) if HOLE[0] <= batch.first_offset < HOLE[1])
    assert (written.segment_base_offset, written.first_offset, written.is_control) == (marker, marker, True)
    epochs = read_leader_epochs((SOURCE / "leader-epoch-checkpoint").read_bytes())
    assert written.leader_epoch == (epochs.epoch_for_offset(marker) if own else 0)
    committed = {read.offset for read in expected_reads(SOURCE, 603)[1]}
    shown = shown_to_clients(directory)
    assert shown == {read.offset for read in expected_reads(directory, outcome.log.end_offset)[1]}
    assert shown == {offset for offset in committed if not HOLE[0] <= offset < HOLE[1]}
    # Only the broker's tiering asks for these. They tell of the transaction until its marker.
    states = [
        ProducerTable.from_snapshot(at, (directory / f"{at:020d}.snapshot").read_bytes())
        for at in (marker, marker + 1, HOLE[1])
    ]
    assert [found.first_open_transaction_offset() for found in states] == ([77, None, None] if own else [None] * 3)
    assert [len(found) > 0 for found in states] == [own] * 3
    show(RestoreReport(log_dir, 0, [outcome]), colors=False, dry_run=False)
    reported = " ".join(capsys.readouterr().err.split())
    assert "1 transaction was open where offsets are lost" in reported
    assert "(of producer 11 since offset 77)" in reported


def test_whatever_is_lost_nothing_else_is_hidden_and_nothing_aborted_shows(tmp_path: Path) -> None:
    committed = {read.offset for read in expected_reads(SOURCE, 603)[1]}
    bases = [segment.base_offset for segment in archived_states(archived())[TRANSACTIONS].segments]
    reported = 0
    for gone in (*combinations(bases[1:], 1), *combinations(bases[1:], 2)):
        outcome = restored(
            lost(*gone), log_dir := target(tmp_path, gone), "transactions", open_transactions=OpenTransactionMode.ABORT
        )
        assert outcome.log is not None
        directory = log_dir / TRANSACTIONS
        assert_loadable(directory, outcome.log.end_offset)
        shown = shown_to_clients(directory)
        assert shown <= committed
        everything = {read.offset for read in expected_reads(directory, outcome.log.end_offset)[0]}
        hidden = (everything & committed) - shown
        reported += len(unsettled(outcome))
        assert not hidden or unsettled(outcome)
        writers = {
            int(columns.producer_id[row])
            for path in directory.glob("*.log")
            for columns in scan_file(path)
            for row in range(len(columns))
            if hidden & set(range(int(columns.base_offset[row]), int(columns.last_offset[row]) + 1))
        }
        assert writers <= {found[0] for found in unsettled(outcome)}
    assert reported >= 2


@pytest.mark.parametrize("mode", ProducerStateMode)
def test_an_end_right_behind_a_hole_knows_the_producers_below_it(mode: ProducerStateMode, tmp_path: Path) -> None:
    """Also which transaction it ended, and that it did so by an abort."""
    committed = {read.offset for read in expected_reads(SOURCE, 603)[1]}
    known = []
    for end in (HOLE[1], HOLE[1] + 1, HOLE[1] + 30):
        log_dir = target(tmp_path, end)
        outcome = restored(
            lost(HOLE[0]),
            log_dir,
            "transactions",
            offset_range=(0, end),
            open_transactions=OpenTransactionMode.ABORT,
            producer_state=mode,
        )
        assert outcome.log is not None
        assert_loadable(log_dir / TRANSACTIONS, outcome.log.end_offset)
        assert shown_to_clients(log_dir / TRANSACTIONS) <= committed
        content = (log_dir / TRANSACTIONS / f"{outcome.log.end_offset:020d}.snapshot").read_bytes()
        known.append({entry.producer_id for entry in ProducerTable.from_snapshot(end, content).entries()})
    if mode is ProducerStateMode.DROP:
        assert known == [set()] * 3
    else:
        assert known[0] <= known[1] <= known[2]
        assert 11 in known[0]


def test_a_time_right_behind_a_hole_is_where_readers_get_to(tmp_path: Path) -> None:
    """No batch is left of the last segment, and the one below ends at the hole's beginning."""
    store = archived()
    *_, gone, behind = archived_states(store)["codecs-java-0"].segments
    lose(store, "codecs-java-0", gone.base_offset)
    source = batches_of(golden("4.3.0") / "logs" / "codecs-java-0")
    first = next(batch for batch in source if batch.first_offset >= behind.base_offset)
    log_dir = own_log_dir(tmp_path)
    outcome = restored(store, log_dir, "codecs-java", until_timestamp_ms=first.max_timestamp_ms - 1)
    assert outcome.log is not None
    assert (outcome.log.added_from_offset, outcome.log.end_offset) == (behind.base_offset, behind.base_offset + 1)
    assert_loadable(log_dir / "codecs-java-0", behind.base_offset + 1)
    assert batches_of(log_dir / "codecs-java-0")[-2].last_offset == gone.base_offset - 1


def test_a_transaction_that_an_index_above_names_went_on() -> None:
    """A marker in the hole would end it twice, and show what its producer wrote between the two."""
    store = archived()
    state = archived_states(store)[TRANSACTIONS]
    log_dir = SOURCE
    below = ProducerTable.from_snapshot(220, (log_dir / f"{220:020d}.snapshot").read_bytes())
    nobody = ProducerTable.blank(431).to_snapshot()
    assert {entry.current_txn_first_offset for entry in ended_in_hole(below, nobody, [])} == {77}
    index = (log_dir / f"{220:020d}.txnindex").read_bytes()
    found = read_transaction_index(index)
    assert (77, 307) in zip(found.first_offset.tolist(), found.last_offset.tolist(), strict=True)
    assert ended_in_hole(below, nobody, [b"", index]) == ()
    assert ended_in_hole(below, below.to_snapshot(), []) == ()
    assert state.end_offset == 603


def test_more_markers_than_lost_offsets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where several transactions went on over a small hole and were committed behind it, of which nothing tells."""
    monkeypatch.setattr(
        "sidecar.restore.finishing.ended_in_hole",
        lambda *given: ended_in_hole(*given) * (HOLE[1] - HOLE[0] + 1),
    )
    outcome = restored(
        lost(HOLE[0]), own_log_dir(tmp_path), "transactions", open_transactions=OpenTransactionMode.ABORT
    )
    assert "do not fit into the lost offsets [220, 431)" in outcome.problem
    assert "--offset-range 431: or :220" in outcome.problem


def test_a_run_that_was_interrupted_comes_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wish = {"offset_range": (0, 460), "open_transactions": OpenTransactionMode.ABORT}
    at_once, later = target(tmp_path, "at once"), target(tmp_path, "later")
    whole = restored(lost(HOLE[0]), at_once, "transactions", **wish)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "swap_in", lambda run: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            restored(lost(HOLE[0]), later, "transactions", **wish)
    store = lost(HOLE[0])
    assert restored(store, later, "transactions", **wish).log == whole.log
    assert store.calls["stream"] == 0
    assert files_of(later / TRANSACTIONS) == files_of(at_once / TRANSACTIONS)


@pytest.mark.parametrize("own", [True, False])
def test_it_is_archived_anew_with_its_marker(own: bool, tmp_path: Path) -> None:
    """And restored from there to the same, without a second one. What was carried over the hole is no broker's word."""
    source, log_dir = lost(HOLE[0]), target(tmp_path, "first", own=own)
    wish = {"open_transactions": OpenTransactionMode.ABORT}
    first = restored(source, log_dir, "transactions", **wish)
    store = MemoryStore()
    with capture_logs() as logs, tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        for _ in range(2):
            archive(context, log_dir, "transactions")
    assert {line["event"] for line in logs if line["log_level"] == "error"} == {"offsets_lost"}
    state = archived_states(store)[TRANSACTIONS]
    assert [(hole.base_offset, hole.end_offset) for hole in state.holes] == [(HOLE[0] + 1, HOLE[1])]
    assert (HOLE[0], HOLE[0] + 1) in ranges(state)
    again = target(tmp_path, "again", own=own)
    second = restored(store, again, "transactions", topic_id=first.decisions and first.decisions.topic_id, **wish)
    assert second.log is not None
    assert unsettled(second) == []
    assert shown_to_clients(again / TRANSACTIONS) == shown_to_clients(log_dir / TRANSACTIONS)
