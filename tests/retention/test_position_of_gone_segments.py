"""What was worked out for a segment that is gone before it is archived holds for no other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.errors import StoreUnavailable
from sidecar.model import SnapshotOrigin
from sidecar.partition.wait_reason import AwaitingCompaction
from tests.compactor.before_upload_rig import DELAY_MS, rig
from tests.retention.pinned_rig import Outage, after_an_outage
from tests.runner.rig import (
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    tools_for,
)


@pytest.mark.parametrize("partition", ["orders-0", "transactions-0"])
def test_producers_at_the_base_of_a_segment_that_retention_took_are_not_those_of_the_next_one(
    partition: str, tmp_path: Path
) -> None:
    with rig(tmp_path, partition) as site:
        directory = site.log_dir / partition
        bases = [base_offset for base_offset, _ in rolled_ranges(site.log_dir, partition)]
        remove_offsets(directory, lambda offset: offset >= bases[1])
        assert isinstance(site.round().outcomes[0].reason, AwaitingCompaction)
        site.context.pinned.release()
        remove_offsets(directory, lambda offset: offset >= bases[3])
        site.context.clock.sleep_s(DELAY_MS / 1000 + 1)
        assert site.round().errors == []
        found = [
            (segment.snapshot.origin, segment.snapshot.exact)
            for segment in archived_states(site.store)[partition].segments
        ]
        assert found
        assert set(found) == {(SnapshotOrigin.BROKER, True)}


def test_the_first_archived_segment_knows_its_producers_though_retention_took_it_with_its_snapshot(
    tmp_path: Path,
) -> None:
    log_dir, outage = copy_partitions(tmp_path, "orders-0"), Outage()
    spans = rolled_ranges(log_dir, "orders-0")
    remove_offsets(log_dir / "orders-0", lambda offset: offset >= spans[1][0])
    with tools_for(log_dir, outage.store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        assert [type(error) for error in rounds.run_once().errors] == [StoreUnavailable]
        remove_offsets(log_dir / "orders-0", lambda offset: offset >= spans[2][0])
        outage.left = None
        assert rounds.run_once().errors == []
    segments = archived_states(outage.store)["orders-0"].segments
    assert [segment.base_offset for segment in segments] == [base_offset for base_offset, _ in spans[1:]]
    assert {segment.snapshot.exact for segment in segments} == {True}


def test_a_snapshot_that_the_broker_wrote_again_is_that_of_the_pinned_segment_below(tmp_path: Path) -> None:
    """As its recovery does. The file that was listed with the segment is not there any more, and never comes back."""
    with after_an_outage(tmp_path) as (context, rounds, outage, directory):
        spans = rolled_ranges(directory.parent, "orders-0")
        remove_offsets(directory, lambda offset: offset >= spans[2][0])
        snapshot = directory / f"{spans[2][0]:020d}.snapshot"
        content = snapshot.read_bytes()
        snapshot.rename(directory / "old")
        snapshot.write_bytes(content)
        assert rounds.run_once().errors == []
        state = archived_states(outage.store)["orders-0"]
        assert (ranges(state), state.holes) == (spans, ())
        assert context.journal.count() == 0
