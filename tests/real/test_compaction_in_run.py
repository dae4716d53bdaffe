"""Compaction by `run`, on a real JVM, beside a directory that grows: it happens, survives kill -9, and isolates damage."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from tests.real.compacted_archives import LOGS, assert_compacted, clean_end, state_of
from tests.real.daemon import Daemon, GrowingLog, eventually
from tests.real.product import s3_settings
from tests.runner.rig import ranges, rolled_ranges
from tests.servers.versitygw import VersityGateway

pytestmark = pytest.mark.real

ODD, WHOLE, GROWING, LATER = "orders-1", "append-time-0", "orders-0", "codecs-java-0"
FAST = {
    "compaction.topics": json.dumps(
        [
            {"pattern": "orders|append-time", "min_cleanable_dirty_ratio": 0.01},
            {"pattern": "codecs-java", "when": "before_upload"},
        ]
    ),
    "spark.engine": "spark",
    "run.scan_interval_s": "1",
    "compaction.check_interval_s": "0.2",
    "compaction.retry_wait_s": "2",
    "gc.interval_s": "1",
    "gc.grace_period_ms": "0",
    "spark.master": "local[2]",
    "spark.driver_memory_bytes": str(512 * 1024 * 1024),
    # Longer than the first wait for another try of what is damaged: each start of a JVM takes seconds.
    "spark.idle_stop_s": "5",
}


def rows(daemon: Daemon) -> dict[str, dict[str, Any]]:
    found = json.loads(daemon.get("/status")[1]).get("compaction", {}).get("partitions", [])
    return {f"{row['topic']}-{row['partition']}": row for row in found}


def jvms(daemon: Daemon) -> int:
    """Running JVMs that the daemon has started."""
    found = subprocess.run(
        ["ps", "-o", "args=", "--ppid", str(daemon.process.pid)], capture_output=True, text=True, check=False
    )
    return sum("java" in line.split(" ")[0] for line in found.stdout.splitlines())


def damage(archive: Path, state: PartitionState) -> str:
    """Flip a byte inside the second segment's first batch; returns its key."""
    key = below(state.lineage.root, state.segments[1].log_key)
    path = archive / key
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.unlink()
    path.write_bytes(bytes(data))
    return key


@pytest.mark.leaves_damage("checksum_mismatch", "corrupt_content")
@pytest.mark.apart
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
    for place in ("archive", "state"):
        shutil.copytree(tmp_path / place, tmp_path / "before" / place)
    for _ in range(5):
        with Daemon(tmp_path, settings) as daemon:
            eventually(lambda: daemon.metric("compaction_running") == 1)
            daemon.process.send_signal(signal.SIGKILL)
            eventually(lambda: not daemon.process.alive)
        left = {partition: clean_end(settings, partition) for partition in ends}
        if left == dict.fromkeys(ends, 0):
            break
        # We came too late, and its commits were made: once more from where it began.
        for place in ("archive", "state"):
            shutil.rmtree(tmp_path / place)
            shutil.copytree(tmp_path / "before" / place, tmp_path / place)
    assert left == dict.fromkeys(ends, 0)

    with Daemon(tmp_path, settings) as daemon:
        eventually(lambda: clean_end(settings, WHOLE) == ends[WHOLE] and clean_end(settings, GROWING) == ends[GROWING])
        eventually(lambda: "quarantined" in rows(daemon).get(ODD, {}))
        held = rows(daemon)[ODD]["quarantined"]
        assert held["error"] == "CorruptFile"
        assert key in held["reason"]
        # The commit is seen before it is counted.
        eventually(lambda: daemon.metric("compaction_partitions_total", result="ok") == 2)
        eventually(lambda: daemon.metric("compaction_due_partitions") == 1)
        assert daemon.metric("compaction_quarantined_partitions") == 1
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
        shutil.copytree(LOGS / LATER, tmp_path / LATER)
        (tmp_path / LATER).rename(log_dir / LATER)  # At once: of half a directory what is there would be archived.
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


def test_compaction_in_a_real_store(tmp_path: Path) -> None:
    """Before the upload and after it, in this process: objects, commits and garbage are those of a directory."""
    log_dir = tmp_path / "logs"
    for partition in (WHOLE, LATER):
        shutil.copytree(LOGS / partition, log_dir / partition)
    for name in ("meta.properties", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        shutil.copy(LOGS / name, log_dir)
    ends = {partition: rolled_ranges(log_dir, partition)[-1][1] for partition in (WHOLE, LATER)}
    with VersityGateway(tmp_path / "versitygw", options=["--quiet"]) as gateway:
        settings = {
            **FAST,
            **s3_settings(gateway),
            "spark.engine": "local",
            "store.url": f"s3://{gateway.bucket}/kafka",
            "broker.log_dirs": str(log_dir),
            "topics.include": "append-time,codecs-java",
        }
        with Daemon(tmp_path, settings) as daemon:
            eventually(lambda: all(daemon.archived_end(partition) == end for partition, end in ends.items()))
            eventually(lambda: all(clean_end(settings, partition) == end for partition, end in ends.items()))
            # Replaced segments are garbage at once here: their objects go, and a commit says so.
            eventually(lambda: not any(state_of(settings, partition).removed for partition in ends))
            assert daemon.metric("gc_objects_total") > 0
            assert daemon.process.stop() == 0
        for partition in ends:
            assert_compacted(settings, partition)
