"""What the leader has reported as stable need not settle; what is not stable yet is checked again soon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.model import TopicPartition
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import STABLE_SOON_MS, PartitionPlan, Settling, newest_change_ms, plan_partition
from sidecar.partition.wait_reason import AboveCheckpoints, AboveHighWatermark, AboveLastStableOffset
from tests.runner.rig import copy_partitions

NAME = TopicPartition("orders", 0)


def planned(tmp_path: Path, *, reported_by_leader: bool, stable_end_offset: int = 2**62) -> PartitionPlan:
    log_dir = copy_partitions(tmp_path, str(NAME))
    files = read_partition_directory(NAME, log_dir, log_dir / str(NAME))
    facts = PartitionFacts(NAME, files.topic_id, True, 0, stable_end_offset, 0, transactions_decided=reported_by_leader)
    now_ms = max(newest_change_ms(segment) for segment in files.segments) + 1
    files = replace(files, segments=files.segments[:1])
    seen = {files.segments[0].end_offset: now_ms}
    return plan_partition(files, facts, None, now_ms=now_ms, settling=Settling(10**12, 0), first_seen_ms=seen)


def test_only_files_alone_must_settle(tmp_path: Path) -> None:
    assert not planned(tmp_path / "files", reported_by_leader=False).segments
    assert len(planned(tmp_path / "leader", reported_by_leader=True).segments) == 1


def test_a_segment_that_its_leader_does_not_call_stable_yet_is_looked_at_again_soon(tmp_path: Path) -> None:
    plan = planned(tmp_path / "leader", reported_by_leader=True, stable_end_offset=0)
    assert not plan.segments
    assert plan.recheck_in_ms == STABLE_SOON_MS
    assert planned(tmp_path / "files", reported_by_leader=False, stable_end_offset=0).recheck_in_ms is None


def test_what_holds_back_the_stable_end_is_reported(tmp_path: Path) -> None:
    """Transactions and replicas are mended at other places."""
    leader = planned(tmp_path / "leader", reported_by_leader=True, stable_end_offset=0)
    assert leader.reason == AboveHighWatermark(leader.waiting[0].base_offset, 0)
    held = plan_partition(
        leader.files, replace(leader.facts, transaction_open=True), None, now_ms=0, settling=Settling(0, 0)
    )
    assert held.reason == AboveLastStableOffset(held.waiting[0].base_offset, 0)
    files_only = planned(tmp_path / "files", reported_by_leader=False, stable_end_offset=0)
    assert isinstance(files_only.reason, AboveCheckpoints)
