"""Compaction by `run`, on a real JVM, beside a directory that grows: it happens, survives kill -9, and isolates damage."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.clock import ManualClock
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.record import Record
from sidecar.logformat.records import read_records
from sidecar.model import ObjectKey
from sidecar.pipeline.verify import verify_partition
from tests.golden import golden
from tests.pipeline.rig import archived_states, ranges, rolled_ranges
from tests.real.daemon import Daemon, GrowingLog, eventually
from tests.real.product import store_of

pytestmark = pytest.mark.real

LOGS = golden("4.3.0") / "logs"
ODD, WHOLE, GROWING, LATER = "orders-1", "append-time-0", "orders-0", "codecs-java-0"
FAST = {
    "compaction.topics": json.dumps(
        [
            {"pattern": "orders|append-time", "min_cleanable_dirty_ratio": 0.01},
            {"pattern": "codecs-java", "when": "before_upload"},
        ]
    ),
    "compaction.engine": "spark",
    "compaction.check_interval_s": "0.2",
    "compaction.retry_wait_s": "2",
    "gc.interval_s": "1",
    "gc.grace_period_ms": "0",
    "spark.master": "local[2]",
    "spark.driver_memory_bytes": str(512 * 1024 * 1024),
    "spark.idle_stop_s": "1",
}


def records(log: bytes, base_offset: int) -> Iterable[Record]:
    """All data records of a log."""
    for columns in scan_bytes(log, base_offset=base_offset):
        for position, size_bytes in zip(columns.position.tolist(), columns.size_bytes.tolist(), strict=True):
            yield from (r for r in read_records(memoryview(log)[position : position + size_bytes]) if r.control is None)


def table(found: Iterable[Record]) -> dict[bytes, tuple[int, bytes | None]]:
    """What a consumer has who read them all. Records without key are dropped by compaction, as by Kafka's."""
    return {record.key: (record.offset, record.value) for record in found if record.key is not None}


def archived_records(settings: Mapping[str, str], partition: str) -> list[Record]:
    with store_of(settings) as store:
        state = archived_states(store)[partition]
        logs = [(store.read(below(state.lineage.root, s.log_key)), s.base_offset) for s in state.segments]
    return [record for log, base_offset in logs for record in records(log, base_offset)]


def rolled_records(partition: str, end_offset: int) -> list[Record]:
    logs = [(path.read_bytes(), int(path.name[:20])) for path in sorted((LOGS / partition).glob("*.log"))]
    return [record for log, base in logs for record in records(log, base) if record.offset < end_offset]


def state_of(settings: Mapping[str, str], partition: str) -> PartitionState:
    with store_of(settings) as store:
        return archived_states(store)[partition]


def clean_end(settings: Mapping[str, str], partition: str) -> int:
    """0 before the first compaction."""
    clean = state_of(settings, partition).clean
    return 0 if clean is None else clean.end_offset


def rows(daemon: Daemon) -> dict[str, dict[str, Any]]:
    found = json.loads(daemon.get("/status")[1]).get("compaction", {}).get("partitions", [])
    return {f"{row['topic']}-{row['partition']}": row for row in found}


def jvms(daemon: Daemon) -> int:
    """Running JVMs that the daemon has started."""
    found = subprocess.run(
        ["ps", "-o", "args=", "--ppid", str(daemon.process.pid)], capture_output=True, text=True, check=False
    )
    return sum("java" in line.split(" ")[0] for line in found.stdout.splitlines())


def assert_compacted(settings: Mapping[str, str], partition: str) -> None:
    """One record per key, each key's last; nothing of the coverage is lost, and all of it can be read back."""
    state = state_of(settings, partition)
    assert state.end_offset is not None
    after = archived_records(settings, partition)
    expected = table(rolled_records(partition, state.end_offset))
    assert table(after) == expected
    assert len(after) == len(expected)
    with store_of(settings) as store:
        found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
    assert found.problems == ()


def damage(archive: Path, state: PartitionState) -> str:
    """Flip a byte inside the second segment's first batch; returns its key."""
    key = below(state.lineage.root, state.segments[1].log_key)
    path = archive / key
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.unlink()
    path.write_bytes(bytes(data))
    return key


def test_compaction_beside_uploads(tmp_path: Path) -> None:
    log_dir, archive = tmp_path / "logs", tmp_path / "archive"
    log = GrowingLog(LOGS, log_dir, GROWING)
    for _ in range(3):
        log.roll()
    for partition in (ODD, WHOLE):
        shutil.copytree(LOGS / partition, log_dir / partition)
    settings = {
        **FAST,
        "store.url": archive.as_uri(),
        "broker.log_dirs": str(log_dir),
        "topics.include": "orders,append-time,codecs-java",
    }
    ends = {partition: rolled_ranges(log_dir, partition)[-1][1] for partition in (ODD, WHOLE, GROWING)}

    with Daemon(tmp_path, {**settings, "compaction.enabled": "false"}) as daemon:
        eventually(lambda: all(daemon.archived_end(partition) == end for partition, end in ends.items()))
        assert daemon.process.stop() == 0
    key = damage(archive, state_of(settings, ODD))

    # Killed in the middle of the first job: nothing of it is in the archive, and the next start does it all.
    with Daemon(tmp_path, settings) as daemon:
        eventually(lambda: daemon.metric("compaction_running") == 1)
        daemon.process.send_signal(signal.SIGKILL)
        eventually(lambda: not daemon.process.alive)
    assert {partition: clean_end(settings, partition) for partition in ends} == dict.fromkeys(ends, 0)

    with Daemon(tmp_path, settings) as daemon:
        eventually(lambda: clean_end(settings, WHOLE) == ends[WHOLE] and clean_end(settings, GROWING) == ends[GROWING])
        eventually(lambda: "quarantined" in rows(daemon).get(ODD, {}))
        held = rows(daemon)[ODD]["quarantined"]
        assert held["error"] == "CorruptFile"
        assert key in held["reason"]
        assert daemon.metric("compaction_quarantined_partitions") == 1
        assert daemon.metric("compaction_due_partitions") == 1
        assert daemon.metric("compaction_partitions_total", result="ok") == 2
        assert daemon.metric("compaction_bytes_total", side="after") < daemon.metric(
            "compaction_bytes_total", side="before"
        )
        assert_compacted(settings, WHOLE)
        assert_compacted(settings, GROWING)

        # What rolls later is archived as ever, and compacted with what is clean.
        while log.remaining:
            end = log.roll()
        eventually(lambda: clean_end(settings, GROWING) == end)
        assert_compacted(settings, GROWING)
        assert ranges(state_of(settings, GROWING))[-1][1] == end
        assert daemon.get("/healthz") == (200, "ok\n")

        # Where the policy says so, segments are compacted before they are archived.
        shutil.copytree(LOGS / LATER, log_dir / LATER)
        eventually(lambda: daemon.archived_end(LATER) == rolled_ranges(log_dir, LATER)[-1][1])
        assert [e["partition"] for e in daemon.events() if e["event"] == "group_compacted"] == [LATER]
        eventually(lambda: clean_end(settings, LATER) > 0)
        assert_compacted(settings, LATER)

        # The damaged one is tried again and again; its archive is as it was.
        eventually(lambda: rows(daemon)[ODD].get("quarantined", {}).get("failures", 0) > 1)
        assert all(segment.generation == 0 for segment in state_of(settings, ODD).segments)
        eventually(lambda: jvms(daemon) == 0)
        assert daemon.process.stop() == 0
        assert [e["event"] for e in daemon.events() if e["level"] == "critical"] == []
