"""Where the abort markers among lost offsets stand, for those who go by the indexes of all segments in one pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.logformat.transaction_index import read_transaction_index
from sidecar.pipeline.restore.request import LeaderEpochMode, OpenTransactionMode
from tests.restore.archives import restored
from tests.restore.hole_log import COMMITTED, END, TOPIC_ID, archived_with_hole
from tests.restore.test_lost_inside import shown_to_clients, target, unsettled
from tests.restore.test_ranges import assert_loadable


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
