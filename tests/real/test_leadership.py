"""Three brokers, three sidecars, one archive: leadership moves, a sidecar is killed, a leader sleeps through its deposition."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Producer

from sidecar.clock import ManualClock
from sidecar.model import ObjectKey
from sidecar.pipeline.verify import verify_partition
from tests.pipeline.rig import archived_states, ranges
from tests.real.daemon import Daemon, eventually
from tests.real.leaders import leader_and_epoch, move_leader, three_replicas
from tests.real.product import parts_of, store_of
from tests.servers.kafka import KafkaBroker, KafkaCluster

pytestmark = pytest.mark.real

SHORT_SESSIONS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "1",
}
TOPIC = "orders"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    with KafkaCluster("3.9.1", tmp_path / "cluster", properties=SHORT_SESSIONS) as started:
        yield started


def sidecar_of(broker: KafkaBroker, cluster: KafkaCluster, tmp_path: Path) -> Daemon:
    directory = tmp_path / f"sidecar-{broker.node_id}"
    directory.mkdir(exist_ok=True)
    return Daemon(
        directory,
        {
            "store.url": (tmp_path / "archive").as_uri(),
            "broker.log_dirs": str(broker.log_dirs[0]),
            "broker.assume_leader": "false",
            "broker.connection.bootstrap_servers": cluster.bootstrap,
            "broker.connection.request_timeout_s": "3",
            "topics.include": TOPIC,
            "run.scan_interval_s": "0.5",
        },
    )


def write_until(stop: Event, bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    number = 0
    while not stop.is_set():
        producer.produce(TOPIC, bytes(400), str(number).encode(), partition=0)
        number += 1
        if number % 20 == 0:
            producer.flush()
            stop.wait(0.05)
    producer.flush(30)


def archived_ends(tmp_path: Path) -> int:
    with store_of({"store.url": (tmp_path / "archive").as_uri()}) as store:
        states = archived_states(store)
        return (states[f"{TOPIC}-0"].end_offset or 0) if states else 0


def assert_equals_the_leader(tmp_path: Path, leader: KafkaBroker) -> int:
    """No hole, no overlap, each offset once; and every byte is the leader's. Returns how many segments there are."""
    log_bytes = b"".join(path.read_bytes() for path in sorted((leader.log_dirs[0] / f"{TOPIC}-0").glob("*.log")))
    with store_of({"store.url": (tmp_path / "archive").as_uri()}) as store:
        (state,) = archived_states(store).values()
        spans = ranges(state)
        assert spans[0][0] == 0
        assert all(before[1] == after[0] for before, after in pairwise(spans))
        assert state.holes == ()
        found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
        assert found.problems == ()
        archived = b"".join(parts_of(store, state.lineage.root, segment)["log"] for segment in state.segments)
    assert log_bytes.startswith(archived)
    return len(spans)


def test_one_archive_whatever_happens_to_leaders_and_sidecars(cluster: KafkaCluster, tmp_path: Path) -> None:
    three_replicas(cluster, TOPIC, segment_bytes=32768)
    stop = Event()
    writer = Thread(target=write_until, args=(stop, cluster.bootstrap))
    with ExitStack() as resources:
        sidecars = [resources.enter_context(sidecar_of(broker, cluster, tmp_path)) for broker in cluster.brokers]
        resources.callback(writer.join)
        resources.callback(stop.set)
        writer.start()
        eventually(lambda: archived_ends(tmp_path) > 0)
        for target in (1, 2):
            move_leader(cluster, TOPIC, target)
            end = archived_ends(tmp_path)
            eventually(lambda: archived_ends(tmp_path) > end + 200)  # noqa: B023
        sidecars[2].process.kill()  # beside the leader, wherever it is in its work
        move_leader(cluster, TOPIC, 0)
        end = archived_ends(tmp_path)
        eventually(lambda: archived_ends(tmp_path) > end + 200)
        # The leader sleeps for longer than its session: another leads; its sidecar cannot commit, then or afterwards.
        sleeper = cluster.brokers[0]
        sleeper.process.send_signal(signal.SIGSTOP)
        epoch = leader_and_epoch(cluster.brokers[1], TOPIC)[1]
        eventually(lambda: leader_and_epoch(cluster.brokers[1], TOPIC)[0] in {1, 2})
        assert leader_and_epoch(cluster.brokers[1], TOPIC)[1] > epoch
        sidecars[2].start()
        end = archived_ends(tmp_path)
        eventually(lambda: archived_ends(tmp_path) > end)
        committed = sidecars[0].metric("segments_total", stage="committed", result="ok")
        assert sidecars[0].get("/readyz")[0] == 503
        sleeper.process.send_signal(signal.SIGCONT)
        eventually(sidecars[0].is_ready)
        end = archived_ends(tmp_path)
        eventually(lambda: archived_ends(tmp_path) > end + 100)
        assert sidecars[0].metric("segments_total", stage="committed", result="ok") == committed
        stop.set()
        writer.join()
        assert [sidecar.process.stop() for sidecar in sidecars] == [0, 0, 0]
        leader, _ = leader_and_epoch(cluster.brokers[1], TOPIC)
        assert assert_equals_the_leader(tmp_path, cluster.brokers[leader]) > 5
