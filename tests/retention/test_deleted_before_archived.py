"""A hole that DeleteRecords left above the archive is named there, but is no loss: nobody is called for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.archive.actions import LossReason
from sidecar.archive.state import Hole
from tests.retention.test_loss_tracker import NAME, Site, site
from tests.runner.rig import archived_states
from tests.runner.test_asking_the_broker import rounds_of

ARCHIVED, ACTIVE = 504, 964
"""Where the archive ends, and where the active segment begins."""


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Site]:
    """Much has rolled above what is archived."""
    with site(tmp_path) as found:
        aside = tmp_path / "aside"
        aside.mkdir()
        for path in found.directory.iterdir():
            if path.name[:20].isdigit() and int(path.name[:20]) > ARCHIVED:
                path.rename(aside / path.name)
        assert found.lost() == []
        for path in aside.iterdir():
            path.rename(found.directory / path.name)
        assert archived_states(found.store)[NAME].end_offset == ARCHIVED
        yield found


def reported(found: Site) -> list[tuple[str, int, int]]:
    """What a few rounds tell of the hole."""
    with capture_logs() as logs:
        for _ in range(3):
            assert found.rounds.run_once().errors == []
    events = {"deleted_before_archived", "offsets_lost"}
    return [(line["event"], line["from_offset"], line["to_offset"]) for line in logs if line["event"] in events]


def require_hole(found: Site, end_offset: int, *, deleted: bool) -> None:
    event, reason = (
        ("deleted_before_archived", LossReason.DELETED_FIRST) if deleted else ("offsets_lost", LossReason.NOT_ON_DISK)
    )
    assert reported(found) == [(event, ARCHIVED, end_offset)]
    sample = found.context.metrics.registry.get_sample_value
    assert sample("tiered_sidecar_lost_offsets_total") == (0 if deleted else end_offset - ARCHIVED)
    assert (found.context.memory.last_loss_ms() is None) == deleted
    assert archived_states(found.store)[NAME].holes == (Hole(ARCHIVED, end_offset, reason),)


@pytest.mark.parametrize(("base_offset", "start_offset"), [(724, 730), (ACTIVE, ACTIVE + 2)], ids=["rolled", "active"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_hole_below_a_start_inside_a_segment_is_no_loss(
    behind: Site, base_offset: int, start_offset: int, restarts: bool
) -> None:
    behind.retention(base_offset, reported=start_offset)
    if restarts:
        behind.rounds = rounds_of(behind.context, behind.directory.parent)
    require_hole(behind, base_offset, deleted=True)


@pytest.mark.parametrize("base_offset", [724, ACTIVE])
def test_a_start_at_a_segments_base_may_be_retentions(behind: Site, base_offset: int) -> None:
    behind.retention(base_offset)
    require_hole(behind, base_offset, deleted=False)


def test_a_start_that_was_taken_over_from_another_leader_may_be_retentions(behind: Site) -> None:
    """Its segments had other borders."""
    behind.retention(724, reported=730)
    behind.facts.epoch = 9
    require_hole(behind, 724, deleted=False)
