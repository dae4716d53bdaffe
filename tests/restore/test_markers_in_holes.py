"""Where the abort markers among lost offsets stand, for those who go by the indexes of all segments in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from producer_state.replay import CompletedTransaction
from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable
from sidecar.logformat.indexes.transaction_index import from_completed, read_transaction_index
from sidecar.restore.gap_transactions import ended_in_hole
from sidecar.restore.request import LeaderEpochMode, OpenTransactionMode, ProducerStateMode
from tests.fakes.memory_store import MemoryStore
from tests.restore.archives import restored
from tests.restore.hole_log import COMMITTED, END, TOPIC_ID, archived_with_hole
from tests.restore.test_lost_inside import shown_to_clients, target, unsettled
from tests.restore.test_ranges import assert_loadable
from tests.runner.rig import archive, archived_states, ranges, tools_for


@pytest.mark.parametrize("mode", LeaderEpochMode)
def test_a_marker_in_a_hole_stands_below_its_producers_next_transaction(mode: LeaderEpochMode, tmp_path: Path) -> None:
    """A cleaner goes by all indexes in one pass: above its beginning the marker would end that one too, for what is behind it."""
    log_dir = target(tmp_path, "here")
    outcome = restored(
        archived_with_hole(tmp_path),
        log_dir,
        "t",
        topic_id=TOPIC_ID,
        leader_epochs=mode,
        open_transactions=OpenTransactionMode.ABORT,
    )
    assert outcome.log is not None, outcome.problem
    # Producer 2 begins its next one at offset 11, producer 1 at 15.
    assert unsettled(outcome) == [(2, 3, 10), (1, 0, 11)]
    directory = log_dir / "t-0"
    assert_loadable(directory, END)
    assert shown_to_clients(directory) == COMMITTED
    indexes = [read_transaction_index(path.read_bytes()) for path in sorted(directory.glob("*.txnindex"))]
    spans = [
        span for found in indexes for span in zip(found.first_offset, found.last_offset, strict=True) if len(found)
    ]
    assert spans == [(3, 10), (0, 11), (15, 23), (11, 24)]


@pytest.mark.parametrize(("rounds", "policy"), [(2, {}), (12, {"max_queue": 1})])
@pytest.mark.parametrize("mode", ProducerStateMode)
def test_what_went_on_over_a_hole_is_known_in_an_archive_of_what_was_restored(
    mode: ProducerStateMode, rounds: int, policy: dict[str, Any], tmp_path: Path
) -> None:
    """Also without producers, whose snapshots say nobody behind the hole, and where the archive goes on there in a new process."""
    wish = {"topic_id": TOPIC_ID, "leader_epochs": LeaderEpochMode.KEEP, "producer_state": mode}
    log_dir, store = target(tmp_path, "first"), MemoryStore()
    assert restored(archived_with_hole(tmp_path), log_dir, "t", **wish).log is not None
    for _ in range(rounds):
        with tools_for(log_dir, store, tmp_path / "state again", record_lost=True, **policy) as context:
            archive(context, log_dir, "t")
    (state,) = archived_states(store).values()
    assert ranges(state) == [(0, 10), (10, 12), (20, 30), (30, 40), (40, 50)]
    again = target(tmp_path, "again")
    outcome = restored(store, again, "t", **wish)
    assert outcome.log is not None
    assert unsettled(outcome) == []
    assert shown_to_clients(again / "t-0") == COMMITTED


def test_a_transaction_whose_beginning_below_is_not_known_went_on_too() -> None:
    """The state below was replayed from a start inside of it; the broker's index and snapshots above name its true beginning."""

    def state(end_offset: int, first_offset: int) -> ProducerTable:
        entry = ProducerEntry(7, 0, 3, end_offset - 1, 0, 0, 0, first_offset)
        return ProducerTable.from_entries(end_offset, [entry])

    def index(first_offset: int) -> bytes:
        return from_completed([CompletedTransaction(7, first_offset, 34, 35, aborted=True)], 30, 40).to_bytes()

    below, nobody = state(20, 15), ProducerTable.blank(40).to_snapshot()
    assert ended_in_hole(below, nobody, [index(12)]) == ()
    assert ended_in_hole(below, state(40, 12).to_snapshot(), []) == ()
    for begun_in_hole in (20, 25):
        assert [entry.producer_id for entry in ended_in_hole(below, nobody, [index(begun_in_hole)])] == [7]
        assert len(ended_in_hole(below, state(40, begun_in_hole).to_snapshot(), [])) == 1
