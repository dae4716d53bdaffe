"""What is pinned, and gone from its directory, while this broker gets further leader epochs: the local log's own epochs decide."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import LeaderEpoch, PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import NoStableOffset
from tests.retention.pinned_rig import held_names
from tests.retention.test_pinned_logs import Answering, led, listed, planned_and_held
from tests.runner.rig import remove_offsets

BEGINS = 248


def write_epochs(directory: Path, *starts: tuple[int, int]) -> None:
    epochs = LeaderEpochs(tuple(LeaderEpoch(*start) for start in starts))
    (directory / "leader-epoch-checkpoint").write_bytes(epochs.to_text())


def test_pins_outlive_two_epochs_of_a_broker_that_no_other_one_followed(tmp_path: Path) -> None:
    """The only replica restarts: one epoch without a leader, and one with it. Source: PartitionRegistration.merge."""
    with led(tmp_path, epoch=7) as (log_dir, context, facts):
        write_epochs(log_dir / "orders-0", (7, 0))
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= BEGINS)
        facts.cluster_start_offset, facts.epoch = BEGINS, 9
        write_epochs(files.directory, (7, BEGINS), (9, 964))
        archiver.see(listed(log_dir), facts.partition(files))
        assert held_names(context)[:2] == [0, 140]


def test_pins_outlive_two_restarts_of_a_broker_that_gets_no_record_in_between(tmp_path: Path) -> None:
    """An epoch without records leaves no trace in the checkpoint. Those of the pinned records do. Source: KIP-101."""
    with led(tmp_path, epoch=9) as (log_dir, context, facts):
        write_epochs(log_dir / "orders-0", (7, 0), (9, 964))
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= BEGINS)
        facts.cluster_start_offset, facts.epoch = BEGINS, 11
        write_epochs(files.directory, (7, BEGINS), (11, 964))
        archiver.see(listed(log_dir), facts.partition(files))
        assert held_names(context)[:2] == [0, 140]


def test_pins_of_an_epoch_that_another_leader_cut_are_released(tmp_path: Path) -> None:
    with led(tmp_path, epoch=9) as (log_dir, context, facts):
        write_epochs(log_dir / "orders-0", (7, 0), (9, 140))
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= BEGINS)
        facts.cluster_start_offset, facts.epoch = BEGINS, 11
        write_epochs(files.directory, (7, 0), (10, 140), (11, 964))
        archiver.see(listed(log_dir), facts.partition(files))
        assert held_names(context) == [0]


class StartingLeader(Answering):
    """Until it has become leader of a new epoch, it answers with an error, and has not written down where the epoch begins."""

    is_leader = True

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        facts = super().partition(files)
        if self.is_leader:
            return facts
        reason = NoStableOffset(facts.leader_epoch, "UNKNOWN_LEADER_EPOCH")
        return replace(facts, leads=False, unanswered=True, reason=reason)


def test_pins_outlive_an_epoch_that_the_metadata_have_before_the_leader_has(tmp_path: Path) -> None:
    """Source: Partition.makeLeader writes the epoch's start; before, ListOffsets with the epoch fails."""
    with led(tmp_path, StartingLeader, epoch=7) as (log_dir, context, facts):
        write_epochs(log_dir / "orders-0", (7, 0))
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= BEGINS)
        facts.cluster_start_offset, facts.epoch, facts.is_leader = BEGINS, 8, False
        archiver.see(listed(log_dir), facts.partition(files))
        facts.is_leader = True
        write_epochs(files.directory, (7, BEGINS), (8, 964))
        archiver.see(listed(log_dir), facts.partition(files))
        assert held_names(context)[:2] == [0, 140]
