"""A restore from a real S3 server, killed with -9 again and again at random points, ends with exactly what was archived."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from filecmp import cmp
from pathlib import Path

import pytest

from benchmarks.segments import CLUSTER_ID, MIB, TOPIC, write_log_dir
from sidecar.randomness import SystemRandomness
from tests.real.product import PROGRAM, environment, json_lines, run_program, s3_settings
from tests.servers.fault_proxy import fault_proxy
from tests.servers.toxiproxy import Toxiproxy
from tests.servers.versitygw import VersityGateway

pytestmark = [pytest.mark.real, pytest.mark.slow]

KILLS = int(os.environ.get("RESTORE_KILLS", "2"))
SEED = int(os.environ.get("RESTORE_SEED", "0")) or int.from_bytes(SystemRandomness().random_bytes(4))
SEGMENTS, SEGMENT_BYTES = 12, 2 * MIB
TOPIC_ID = "bWVhc3VyZWQtdG9waWMtMQ"
KB_PER_S = 2_000
"""Of each connection, so that it is killed in the middle of files, too."""


def test_killed_at_random_points_it_ends_with_what_was_archived(tmp_path: Path) -> None:
    print(f"RESTORE_SEED={SEED}")
    source = write_log_dir(tmp_path / "source", SEGMENTS, SEGMENT_BYTES)
    with (
        VersityGateway(tmp_path, options=["--quiet"]) as gateway,
        fault_proxy(gateway.endpoint) as holding,
        Toxiproxy(tmp_path) as proxies,
    ):
        settings = {**s3_settings(gateway), "store.url": f"s3://{gateway.bucket}/kills"}
        own = {"run.state_dir": str(tmp_path / "state"), "broker.settle_ms": "0", "broker.snapshot_grace_ms": "0"}
        done = run_program({**settings, **own}, "backfill", "--log-dir", str(source), "--assume-leader", "--json")
        assert done.returncode == 0, done.stderr
        proxy = proxies.proxy("s3", holding.port)
        proxy.add_toxic("bandwidth", rate=KB_PER_S)
        slowly = {**settings, **s3_settings(gateway, f"http://127.0.0.1:{proxy.port}")}
        target = tmp_path / "target"
        target.mkdir()
        (target / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")
        arguments = ["restore", "--topic", TOPIC, "--to", str(target), "--topic-id", TOPIC_ID, "--json"]
        # However long we take to kill it, it is not through before.
        holding.hold("GET", max(source.glob("*/*.log")).stem)
        fetched_before = 0
        for _ in range(KILLS):
            kill_somewhere(slowly, arguments, target)
            assert not (target / f"{TOPIC}-0").exists()
            fetched = len(whole_segments(target))
            assert fetched >= fetched_before
            fetched_before = fetched
        holding.release()
        done = run_program(settings, *arguments)
    assert done.returncode == 0, done.stderr
    (row,) = json_lines(done)[0]["partitions"]
    assert (row["state"], row["segments"], row["segments_resumed"]) == ("restored", SEGMENTS, fetched_before)
    for path in (source / f"{TOPIC}-0").iterdir():
        if path.suffix != ".snapshot":
            assert cmp(path, target / f"{TOPIC}-0" / path.name, shallow=False), path.name
    assert not list(target.rglob("*.part")) + list(target.rglob("*.note"))


def kill_somewhere(settings: dict[str, str], arguments: list[str], target: Path) -> None:
    """Start the command; kill it when it has fetched a random number of bytes more, but long before it is through."""
    whole_bytes, size_bytes = SEGMENTS * SEGMENT_BYTES, sum(path.stat().st_size for path in whole_segments(target))
    size_bytes += random.Random(f"{SEED} {size_bytes}").randrange(whole_bytes // KILLS)
    size_bytes = min(size_bytes, whole_bytes * 3 // 4)
    command = [str(PROGRAM), *arguments, "--quiet"]
    with subprocess.Popen(
        command, env=environment(settings), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        while process.poll() is None and _size_bytes(target) <= size_bytes:
            time.sleep(0.01)  # noqa: TID251 - a real process has no other clock
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()


def whole_segments(target: Path) -> list[Path]:
    return [path for path in target.glob("*.restoring/*.log") if path.stat().st_size]


def _size_bytes(target: Path) -> int:
    total = 0
    for path in target.glob("*.restoring/*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # It was given its name between the two looks.
    return total
