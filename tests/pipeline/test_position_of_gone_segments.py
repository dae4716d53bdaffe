"""What was worked out for a segment that is gone before it is archived holds for no other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.model import SnapshotOrigin
from sidecar.partition.wait_reason import AwaitingCompaction
from tests.pipeline.before_upload_rig import DELAY_MS, rig
from tests.pipeline.rig import archived_states, remove_offsets, rolled_ranges


@pytest.mark.parametrize("partition", ["orders-0", "transactions-0"])
def test_producers_at_the_base_of_a_segment_that_retention_took_are_not_those_of_the_next_one(
    partition: str, tmp_path: Path
) -> None:
    with rig(tmp_path, partition) as held:
        directory = held.log_dir / partition
        bases = [base_offset for base_offset, _ in rolled_ranges(held.log_dir, partition)]
        remove_offsets(directory, lambda offset: offset >= bases[1])
        assert isinstance(held.round().outcomes[0].reason, AwaitingCompaction)
        held.tools.held.release()
        remove_offsets(directory, lambda offset: offset >= bases[3])
        held.tools.clock.sleep_s(DELAY_MS / 1000 + 1)
        assert held.round().errors == []
        found = [
            (segment.snapshot.origin, segment.snapshot.exact)
            for segment in archived_states(held.store)[partition].segments
        ]
        assert found
        assert set(found) == {(SnapshotOrigin.BROKER, True)}
