"""`backfill` beside live brokers: what is led here, up to what is stable; and a broker that falls silent in the middle."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.model import SnapshotOrigin
from tests.real.daemon import eventually
from tests.real.product import PROGRAM, environment, json_lines, run_installed, run_program, store_of
from tests.real.test_broker_facts import produce, transactional
from tests.real.topics import create_topic, end_offset
from tests.runner.rig import archived_states
from tests.servers.kafka import KafkaBroker
from tests.servers.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.real

SEGMENT_BYTES = 64 * 1024
REMEMBERED_MS = 7_200_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    remembering = {"producer.id.expiration.ms": str(REMEMBERED_MS)}
    with KafkaCluster("3.9.1", tmp_path_factory.mktemp("two"), 2, properties=remembering) as started:
        for topic, replicas in {"here": [0, 1], "there": [1, 0], "slow": [0]}.items():
            create_topic(started.brokers[0], topic, SEGMENT_BYTES, replicas)
        yield started


def settings_for(broker: KafkaBroker, archive: Path, topics: str) -> dict[str, str]:
    return {
        "store.url": archive.as_uri(),
        "broker.log_dirs": str(broker.log_dirs[0]),
        "broker.settle_ms": "0",
        "broker.snapshot_grace_ms": "0",
        "broker.connection.bootstrap_servers": broker.bootstrap,
        "run.state_dir": str(archive.parent / "state"),
        "topics.include": topics,
    }


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    (report,) = json_lines(done)
    return {row["topic"]: row for row in report["partitions"]}


def test_what_is_led_here_goes_up_as_far_as_it_is_stable(cluster: KafkaCluster, tmp_path: Path) -> None:
    first = cluster.brokers[0]
    for topic in ("here", "there"):
        produce(first, topic, 500)
    stable = end_offset(first, "here", committed=True)
    open_one = transactional(first, "holds-back")
    produce(first, "here", 500, open_one)
    settings = settings_for(first, tmp_path / "archive", "here|there")
    (directory,) = first.log_dirs
    # Snapshots that are gone are rebuilt: with the broker's own idea of how long producers are remembered.
    for snapshot in (directory / "here-0").glob("*.snapshot"):
        snapshot.unlink()
    found = rows(run_installed(settings, "backfill", "--json"))
    assert (found["here"]["error"], found["there"]["error"]) == (None, None)
    assert "broker 1 leads" in found["there"]["stopped_because"]
    assert found["there"]["end_offset"] is None
    assert 0 < found["here"]["end_offset"] <= stable < end_offset(first, "here")
    assert found["here"]["segments_waiting"] > 0
    with store_of(settings) as store:
        (state,) = archived_states(store).values()
    rebuilt = [one.snapshot for one in state.segments if one.snapshot.origin is SnapshotOrigin.REBUILT]
    windows = {one.window_ms for one in rebuilt}
    assert rebuilt
    assert all(window is not None and REMEMBERED_MS <= window < 2 * REMEMBERED_MS for window in windows), windows
    open_one.commit_transaction(60)
    eventually(lambda: end_offset(first, "here", committed=True) > stable)
    again = rows(run_program(settings, "backfill", "--json"))
    assert again["here"]["end_offset"] > stable


@pytest.mark.apart
def test_a_broker_that_falls_silent_in_the_middle_ends_it_with_nothing_lost_or_doubled(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    broker = cluster.brokers[0]
    produce(broker, "slow", 1000)
    archive = tmp_path / "archive"
    settings = settings_for(broker, archive, "slow")
    settings |= {"store.bandwidth_bytes_per_s": str(64 * 1024), "broker.connection.request_timeout_s": "2"}
    process = subprocess.Popen(
        [str(PROGRAM), "backfill", "--json"],
        env=environment(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: list(archive.glob("*/slow/0/*/commits/*.json")) != [])
    broker.process.send_signal(signal.SIGSTOP)
    try:
        reported, errors = process.communicate(timeout=300)
    finally:
        broker.process.send_signal(signal.SIGCONT)
    (row,) = rows(subprocess.CompletedProcess([], process.returncode, reported, errors)).values()
    assert (process.returncode != 0, row["error"]) == (True, "BrokerUnavailable")
    kept = row["end_offset"]

    def goes_on() -> bool:
        done = run_program({**settings, "store.bandwidth_bytes_per_s": "null"}, "backfill", "--json")
        return done.returncode == 0 and rows(done)["slow"]["end_offset"] > kept

    eventually(goes_on)
    with store_of(settings) as store:
        (state,) = archived_states(store).values()
    ends = [segment.end_offset for segment in state.segments]
    assert [segment.base_offset for segment in state.segments] == [0, *ends[:-1]]
