"""A replica is moved to another log dir of its broker while retention has taken segments that only pins have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sidecar.errors import StoreUnavailable
from sidecar.partition.status import PartitionOutcome
from sidecar.partition.wait_reason import AwaitingCompaction
from tests.compactor.before_upload_rig import rig
from tests.retention.pinned_rig import Outage, held_names
from tests.retention.test_pinned_logs import led, listed, planned_and_held
from tests.runner.rig import archived_states, ranges, remove_offsets, rolled_ranges


def replace_by_copy(directory: Path, future: Path) -> None:
    """As a move to another log dir, which gets the name of the old one here."""
    shutil.copytree(directory, future)
    shutil.rmtree(directory)
    future.rename(directory)


def test_pins_outlive_a_move_under_the_same_leader_epoch(tmp_path: Path) -> None:
    """The copy was fetched from this very leader: same topic, same epoch, same records. Source: ReplicaAlterLogDirsThread."""
    with led(tmp_path) as (log_dir, context, facts):
        archiver, files = planned_and_held(context, log_dir)
        pinned = held_names(context)
        remove_offsets(files.directory, lambda offset: offset >= 248)
        facts.cluster_start_offset = 248
        replace_by_copy(files.directory, tmp_path / "future")
        archiver.see(listed(log_dir), facts.partition(files))
        assert held_names(context) == pinned  # Also what the copy has, until that is pinned.
        assert pinned[:2] == [0, 140]


@pytest.mark.parametrize("is_checked", [True, False], ids=["checked after the move", "unchecked"])
def test_what_waits_for_its_compaction_is_kept_by_its_pins_where_the_log_moves(
    is_checked: bool, tmp_path: Path
) -> None:
    """What waits so is not pinned: those pins are of an outage. They stay, though nothing pins the files of the copy."""
    outage = Outage()
    outage.store.before = outage.is_away
    with rig(tmp_path, "orders-0", store=outage.store) as site, site.rounds as loop:

        def check() -> PartitionOutcome:
            """As `run` does, which pins during an outage, too."""
            loop.cycle()
            (outcome,) = loop.finish().outcomes
            return outcome

        spans = rolled_ranges(site.log_dir, "orders-0")
        assert isinstance(check().error, StoreUnavailable)
        outage.store.before = lambda _operation, _key: None
        site.context.clock.sleep_s(site.context.policy.retry_wait_s + 1)
        assert isinstance(check().reason, AwaitingCompaction)
        pinned = held_names(site.context)
        assert pinned == [base_offset for base_offset, _ in spans]
        replace_by_copy(site.log_dir / "orders-0", tmp_path / "future")
        if is_checked:
            assert isinstance(check().reason, AwaitingCompaction)
            assert held_names(site.context) == pinned
        remove_offsets(site.log_dir / "orders-0", lambda offset: offset >= spans[3][0])
        assert check().error is None
        site.compactor.cycle()
        assert check().error is None
        state = archived_states(site.store)["orders-0"]
        assert (ranges(state), state.holes) == (spans, ())
