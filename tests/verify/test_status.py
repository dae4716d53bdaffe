"""What an archive holds, as rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.archive.actions import Add
from sidecar.archive.keys import NO_TOPIC_ID, Lineage, below, commit_key
from sidecar.commits.commit_log import CommitLog
from sidecar.errors import StoreUnavailable
from sidecar.verify.status import archive_status
from sidecar.verify.verify import verify_archive
from tests.archive.builders import a_segment
from tests.archive.example import FIRST, LINEAGE, SECOND, WRITER, many_partitions
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore


@pytest.mark.leaves_damage("commit_log")
def test_status_has_a_row_for_every_lineage_with_commits() -> None:
    store = many_partitions(3)
    nameless = Lineage(LINEAGE.cluster_id, replace(LINEAGE.topic_partition, topic="old"), NO_TOPIC_ID)
    log = CommitLog(store, nameless.root, store.clock)
    log.append([Add(a_segment(40, 60))], WRITER, log.read())
    store.objects[f"{LINEAGE.cluster_id}/orders/99/0/segments/left-over"] = b""
    store.objects[below(nameless.root, commit_key(1))] = b"garbage"
    rows = archive_status(store, store.clock)
    assert [
        (row.topic, row.partition, row.topic_id, row.start_offset, row.end_offset, row.segments) for row in rows
    ] == [
        ("old", 3, None, None, None, 0),
        ("orders", 3, LINEAGE.incarnation, 0, 9, 2),
        *[("orders", partition, LINEAGE.incarnation, 0, 5, 1) for partition in (10, 11, 12)],
    ]
    assert not rows[0].store_failed
    assert str(rows[0].problem).count("00000000000000000001.json") == 1
    assert "restore it from a replica" in str(rows[0].problem)
    assert rows[1].to_json() == {
        "cluster_id": LINEAGE.cluster_id,
        "topic": "orders",
        "partition": 3,
        "incarnation": LINEAGE.incarnation,
        "topic_id": LINEAGE.incarnation,
        "start_offset": 0,
        "end_offset": 9,
        "segments": 2,
        "bytes": FIRST.segment.size_bytes + SECOND.segment.size_bytes,
        "leader_epoch": 5,
        "holes": ({"base_offset": 5, "end_offset": 7, "reason": "deleted by the broker before it was archived"},),
        "generations": (
            {"generation": 0, "segments": 2, "bytes": FIRST.segment.size_bytes + SECOND.segment.size_bytes},
        ),
        "clean_end_offset": None,
        "clean_strategy": None,
        "deleted_before_offset": None,
        "undo_until_ms": None,
        "raw_bytes": FIRST.segment.size_bytes + SECOND.segment.size_bytes,
        "compacted_bytes": 0,
        "problem": None,
        "store_failed": False,
    }
    assert archive_status(store, store.clock, include=lambda topic: topic == "none") == []
    assert archive_status(MemoryStore(), store.clock) == []


def test_status_does_not_hide_a_store_that_fails() -> None:
    store = many_partitions(12)
    store.faults = [Fault("read", number, FaultKind.UNAVAILABLE) for number in range(100)]
    with pytest.raises(StoreUnavailable):
        archive_status(store, store.clock)


@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.DENIED, FaultKind.REDIRECTED])
def test_one_object_that_cannot_be_read_stops_only_its_own_partition(kind: FaultKind) -> None:
    store = many_partitions(3)
    store.faults = [Fault("read", number, kind, "/orders/11/") for number in range(100)]
    rows = archive_status(store, store.clock)
    assert [row.problem is None for row in rows] == [True, True, False, True]
    assert [row.store_failed for row in rows] == [False, False, True, False]
    findings = list(verify_archive(store, store.clock))
    assert [found.is_unread for found in findings] == [False, False, True, False]
    assert "/orders/11/" in findings[2].problems[0].key
