"""Another sidecar with the same log directory archives what this one has pinned: the pins go once the archive has been read."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.model import LeaderEpoch
from tests.retention.pinned_rig import after_an_outage, held_names
from tests.retention.test_pinned_logs import led, planned_and_held, released
from tests.runner.rig import archive, archived_states, ranges, remove_offsets, rolled_ranges, tools_for


@pytest.mark.parametrize("uploads", [0, 2], ids=["the partition had no archive before", "the archive has a beginning"])
@pytest.mark.parametrize("first_kept", [0, 362, 10**6], ids=["all are listed", "some are deleted", "all are deleted"])
def test_what_another_sidecar_has_archived_after_an_outage_is_released_without_a_message(
    tmp_path: Path, uploads: int, first_kept: int
) -> None:
    with after_an_outage(tmp_path, uploads=uploads) as (context, rounds, outage, directory), capture_logs() as logs:
        spans = rolled_ranges(directory.parent, "orders-0")
        assert held_names(context) == [base_offset for base_offset, _ in spans][uploads // 2 :]
        with tools_for(directory.parent, outage.store, tmp_path / "other") as other:
            assert archive(other, directory.parent).errors == []
        assert ranges(archived_states(outage.store)["orders-0"]) == spans
        remove_offsets(directory, lambda offset: offset >= min(first_kept, spans[-1][1]))
        assert rounds.run_once().errors == []
        assert held_names(context) == []
        shutil.rmtree(directory)
        rounds.run_once()
    assert released(logs) == []


def test_what_another_sidecar_has_recorded_as_lost_is_reported_when_its_pin_goes(tmp_path: Path) -> None:
    with after_an_outage(tmp_path, uploads=2) as (context, rounds, outage, directory), capture_logs() as logs:
        remove_offsets(directory, lambda offset: offset >= 362)
        with tools_for(directory.parent, outage.store, tmp_path / "other", record_lost=True) as other:
            assert archive(other, directory.parent).errors == []
        (hole,) = archived_states(outage.store)["orders-0"].holes
        assert (hole.base_offset, hole.end_offset) == (140, 362)
        assert rounds.run_once().errors == []
        assert held_names(context) == [140, 248]
        shutil.rmtree(directory)
        rounds.run_once()
    assert released(logs) == [140, 248]


def test_what_lies_below_an_archive_that_another_sidecar_began_is_reported_when_its_pin_goes(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (context, rounds, outage, directory), capture_logs() as logs:
        remove_offsets(directory, lambda offset: offset >= 248)
        with tools_for(directory.parent, outage.store, tmp_path / "other") as other:
            assert archive(other, directory.parent).errors == []
        assert ranges(archived_states(outage.store)["orders-0"])[0][0] == 248
        assert rounds.run_once().errors == []
        assert held_names(context) == [0, 140]
        shutil.rmtree(directory)
        rounds.run_once()
    assert released(logs) == [0, 140]


@pytest.mark.parametrize("difference", [0, 1, None], ids=["the same", "another", "unknown"])
def test_only_an_archive_with_the_leader_epoch_of_the_log_releases_pins(tmp_path: Path, difference: int | None) -> None:
    with led(tmp_path) as (log_dir, context, _facts):
        archiver, files = planned_and_held(context, log_dir)
        held = held_names(context)
        with tools_for(log_dir, context.store, tmp_path / "other") as other:
            archive(other, log_dir)
        found = archived_states(context.store)["orders-0"]
        epochs = () if difference is None else (LeaderEpoch(found.leader_epoch + difference, 0),)
        found = replace(found, segments=tuple(replace(segment, leader_epochs=epochs) for segment in found.segments))
        archiver.pinned.archive_read(files, found, found.start_offset)
        assert held_names(context) == ([] if difference == 0 else held)
