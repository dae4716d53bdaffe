"""Lost offsets in which the markers find no room: reported by a dry run, and before anything is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidecar.errors import PartitionError
from sidecar.restore.request import LeaderEpochMode, RestoreRequest
from sidecar.restore.restore import plan_restore
from tests.restore.archives import CLOCK, own_log_dir, restored
from tests.restore.hole_log import TOPIC_ID, archived_with_hole, archived_with_narrow_hole

WISH: dict[str, Any] = {"topic_id": TOPIC_ID, "leader_epochs": LeaderEpochMode.KEEP}


def test_it_is_reported_before_anything_is_fetched(tmp_path: Path) -> None:
    store, log_dir = archived_with_narrow_hole(tmp_path), own_log_dir(tmp_path)
    report = plan_restore(store, CLOCK, RestoreRequest("t", log_dir, **WISH))
    (planned,) = report.outcomes
    assert (planned.state, report.exit_code) == ("stopped", PartitionError.exit_code)
    assert "2 transactions are open at offset 5" in planned.problem
    assert "--offset-range 6: or :5" in planned.problem
    outcome = restored(store, log_dir, "t", **WISH)
    assert (outcome.problem, outcome.log) == (planned.problem, None)
    assert store.calls["stream"] == 0
    assert [path.name for path in log_dir.glob("t-0*")] == ["t-0.restoring"]


@pytest.mark.parametrize("offset_range", [(0, 5), (6, 50)])
def test_one_side_of_it_can_be_restored_then(offset_range: tuple[int, int], tmp_path: Path) -> None:
    store, log_dir = archived_with_narrow_hole(tmp_path), own_log_dir(tmp_path)
    assert restored(store, log_dir, "t", **WISH).problem
    outcome = restored(store, log_dir, "t", offset_range=offset_range, **WISH)
    assert outcome.log is not None
    assert (outcome.log.start_offset, outcome.log.end_offset) == offset_range


def test_where_there_is_room_nothing_is_reported(tmp_path: Path) -> None:
    store = archived_with_hole(tmp_path)
    (planned,) = plan_restore(store, CLOCK, RestoreRequest("t", own_log_dir(tmp_path), **WISH)).outcomes
    assert (planned.state, planned.problem) == ("planned", "")
