"""Pins while no leader is named: only another leader can have what they have, or assign their offsets again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sidecar.model import PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.status import PartitionCondition
from sidecar.partition.wait_reason import BrokerAway, LeaderUnknown, Wait, WaitReason
from tests.retention.pinned_rig import held_names
from tests.retention.test_pinned_logs import Answering, led, listed, planned_and_held
from tests.runner.one_partition import planned
from tests.runner.rig import remove_offsets


@dataclass
class Refusing(Answering):
    """As `LiveBrokerFacts` reports a topic that a node cannot describe, or a partition whose leader is -1."""

    refused: WaitReason | None = None

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        facts = super().partition(files)
        return facts if self.refused is None else replace(facts, leads=False, reason=self.refused)


@pytest.mark.parametrize("refused", [LeaderUnknown("TOPIC_AUTHORIZATION_FAILED"), Wait.NO_LEADER])
def test_pins_outlive_an_answer_that_names_no_other_leader(refused: WaitReason, tmp_path: Path) -> None:
    """An ACL that was taken away, a node that does not know the topic yet, a leader that is being elected."""
    with led(tmp_path, Refusing, epoch=7) as (log_dir, context, facts):
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= 248)
        facts.cluster_start_offset, facts.refused = 248, refused
        archiver.see(listed(log_dir), facts.partition(files))
        facts.refused = None
        archiver.see(listed(log_dir), facts.partition(files))
        assert held_names(context)[:2] == [0, 140]


@pytest.mark.parametrize("refused", [LeaderUnknown("TOPIC_AUTHORIZATION_FAILED"), Wait.NO_LEADER])
def test_pins_outlive_a_broker_that_goes_away_after_such_an_answer(refused: WaitReason, tmp_path: Path) -> None:
    """A broker that shuts down: the only replica has no leader first, then nothing answers. That is no other leader."""
    with led(tmp_path, Refusing, epoch=7) as (log_dir, context, facts):
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= 248)
        facts.cluster_start_offset = 248
        for facts.refused in (refused, BrokerAway("connection refused"), None):
            archiver.see(listed(log_dir), facts.partition(files))
        assert held_names(context)[:2] == [0, 140]


def test_what_only_pins_have_is_at_risk_while_no_leader_is_named(tmp_path: Path) -> None:
    """An operator who sees none would restart the process, and with it lose them."""
    with led(tmp_path, Refusing, epoch=7) as (log_dir, context, facts):
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= 248)
        facts.cluster_start_offset, facts.refused = 248, LeaderUnknown("TOPIC_AUTHORIZATION_FAILED")
        files = listed(log_dir)
        plan = planned(context, archiver, files)
        status = archiver.status(files, plan, None)
        assert (status.pinned_deleted_bytes, status.pending_segments) == (30_802, 8)
        assert (status.leads, status.deadline_ms) == (True, context.clock.now_ms())
        assert (status.reason, status.condition) == (facts.refused, PartitionCondition.NOT_LED)


def test_that_no_broker_leads_is_the_reason_by_which_the_page_warns(tmp_path: Path) -> None:
    with led(tmp_path, Refusing, epoch=7) as (log_dir, context, facts):
        archiver, _ = planned_and_held(context, log_dir)
        facts.refused, files = Wait.NO_LEADER, listed(log_dir)
        assert archiver.status(files, planned(context, archiver, files), None).reason is Wait.NO_LEADER


def test_pins_outlive_a_node_that_does_not_know_the_topic_whose_id_no_file_has(tmp_path: Path) -> None:
    """Before an upgrade wrote `partition.metadata`, only the cluster names the topic's id. Without it the log is no other one."""
    with led(tmp_path, Refusing, epoch=7) as (log_dir, context, facts):
        archiver, files = planned_and_held(context, log_dir)
        assert files.topic_id is not None
        remove_offsets(files.directory, lambda offset: offset >= 248)
        facts.cluster_start_offset, facts.refused = 248, LeaderUnknown("UNKNOWN_TOPIC_OR_PARTITION")
        archiver.see(replace(listed(log_dir), topic_id=None), facts.partition(files))
        assert held_names(context)[:2] == [0, 140]


def test_pins_outlive_a_log_dir_that_is_away_while_the_leader_is_not_asked_for(tmp_path: Path) -> None:
    """Leaders are asked for of the partitions that were found. What a task still has in hand may not be one of them then."""
    with led(tmp_path, Refusing, epoch=7) as (log_dir, context, facts):
        archiver, files = planned_and_held(context, log_dir)
        held = held_names(context)
        facts.refused = LeaderUnknown("no such partition")
        assert archiver.skip(files, is_listed=False)
        assert held_names(context) == held != []
