"""What `verify` shows of several lineages of one partition, and of one that cannot be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.archive.actions import Add
from sidecar.archive.coverage import Hole
from sidecar.archive.keys import Lineage
from sidecar.cli.reporting import VerificationTable
from sidecar.commits.commit_log import CommitLog
from sidecar.errors import StoreError
from sidecar.model import TopicPartition
from sidecar.storage.bandwidth import IoBudget
from sidecar.storage.directory_store import DirectoryStore
from sidecar.verify.segments import Problem, ProblemKind
from sidecar.verify.verify import unread
from tests.archive.builders import WRITER, a_segment
from tests.cli.running import in_this_process
from tests.fakes.manual_clock import ManualClock

IDS = ("vkxk2bEJTvm6cy2NFgQZ1A", "ASNFZ4mrze_-3LqYdlQyEA")


def test_partitions_of_two_clusters_have_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    table, partition = VerificationTable(), TopicPartition("orders", 0)
    for cluster_id in IDS:
        lineage = Lineage(cluster_id, partition, IDS[0])
        found = unread(lineage, "denied", Problem(ProblemKind.UNREADABLE, "x", "denied"), StoreError("denied"))
        lost = (Hole(5, 7, "gone"),)
        table.add(replace(found, row=replace(found.row, topic_id=IDS[0], holes=lost, deleted_before_offset=7)))
    table.show("memory://x", colors=False)
    shown = capsys.readouterr()
    rows = [line.split() for line in shown.out.splitlines()]
    for cluster_id in IDS:
        assert [f"{cluster_id}/orders-0", "-", "-", "-", "-", "1", "problem"] in rows
        assert f"recorded as lost: {cluster_id}/orders-0 [5, 7)" in shown.err
        assert f"{cluster_id}/orders-0: records below offset 7 were deleted on purpose" in shown.err


def test_so_they_have_in_status(tmp_path: Path) -> None:
    store, clock = DirectoryStore(tmp_path, IoBudget.unlimited(ManualClock())), ManualClock()
    for count, cluster_id in enumerate(IDS, 1):
        log = CommitLog(store, Lineage(cluster_id, TopicPartition("orders", 0), IDS[0]).root, clock)
        log.append([Add(a_segment(0))], WRITER, log.read())
        shown = in_this_process("status", "--archive", tmp_path).out
        assert (f"{cluster_id}/orders-0" in shown) is (count > 1)
    assert f"{IDS[0]}/orders-0" in shown


def test_two_topics_of_one_name_differ_and_unread_ones_have_no_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    table = VerificationTable()
    for topic, topic_id in (*(("orders", topic_id) for topic_id in IDS), ("single", IDS[0])):
        lineage = Lineage("cluster", TopicPartition(topic, 0), topic_id)
        found = unread(lineage, "denied", Problem(ProblemKind.UNREADABLE, "x", "denied"), StoreError("denied"))
        table.add(replace(found, row=replace(found.row, topic_id=topic_id)))
    table.show("memory://x", colors=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    for topic_id in IDS:
        assert ["orders-0", topic_id, "-", "-", "-", "-", "1", "problem"] in rows
    assert ["single-0", "-", "-", "-", "-", "1", "problem"] in rows
