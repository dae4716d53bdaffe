"""What `verify` shows of several lineages of one partition, and of one that cannot be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.archive.keys import Lineage
from sidecar.cli.reporting import VerificationTable
from sidecar.errors import StoreError
from sidecar.model import TopicPartition
from sidecar.verify.segments import Problem, ProblemKind
from sidecar.verify.verify import unread

IDS = ("vkxk2bEJTvm6cy2NFgQZ1A", "ASNFZ4mrze_-3LqYdlQyEA")


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
