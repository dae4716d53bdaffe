"""The test servers themselves: every broker version serves, survives what tests do to it, and leaves no process."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from confluent_kafka import Consumer, Producer

from tests.golden import VERSIONS, dump_text, golden, split_dumps
from tests.servers import ServerError
from tests.servers.dist import KAFKA_VERSIONS, kafka_libs, tool
from tests.servers.kafka import KafkaBroker
from tests.servers.kafka_cluster import KafkaCluster
from tests.servers.kafka_java import dump_log_segments
from tests.servers.process import ServerProcess
from tests.servers.toxiproxy import Toxiproxy
from tests.servers.versitygw import VersityGateway

pytestmark = pytest.mark.real

# librdkafka reports every refused connection while a broker restarts; the tests look at the outcome.
QUIET: dict[str, str | int] = {"log_level": 0}


def produce(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """The first values of a topic, by a group. Raises TimeoutError; what a broker says that has just started is no answer yet."""
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 1000}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings, **QUIET})
    values: list[bytes | None] = []
    errors: list[str] = []
    deadline_s = time.monotonic() + 120.0  # noqa: TID251 - a real broker has no other clock
    try:
        consumer.subscribe([topic])
        while len(values) < count:
            if time.monotonic() > deadline_s:  # noqa: TID251
                raise TimeoutError(
                    f"{len(values)} of {count} records of {topic} within 120 s; the broker said: {errors}"
                )
            message = consumer.poll(1.0)
            error = message.error() if message is not None else None
            if error is not None:
                errors.append(str(error))
            elif message is not None:
                values.append(message.value())
    finally:
        consumer.close()
    return values


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.apart
@pytest.mark.parametrize("version", KAFKA_VERSIONS)
def test_broker_serves_stops_cleanly_and_recovers_from_a_kill(version: str, tmp_path: Path) -> None:
    with KafkaBroker(version, tmp_path / "kafka", log_dir_count=2) as broker:
        produce(broker.bootstrap, "letters", b"a")
        assert consume(broker.bootstrap, "letters", 1) == [b"a"]
        broker.stop()
        assert all((log_dir / ".kafka_cleanshutdown").exists() for log_dir in broker.log_dirs)
        broker.start()
        produce(broker.bootstrap, "letters", b"b")
        broker.kill()
        broker.start()
        produce(broker.bootstrap, "letters", b"c")
        pid = broker.process.pid
    assert gone(pid)
    (partition,) = (path for log_dir in broker.log_dirs for path in log_dir.glob("letters-0"))
    name = "00000000000000000000.log"
    dump = split_dumps(dump_log_segments(version, partition, [name], "--deep-iteration", "--print-data-log"))
    assert re.findall(r"payload: (\w)", dump[name]) == ["a", "b", "c"]


@pytest.mark.apart
def test_a_newer_broker_starts_on_the_directory_of_2_7_2(tmp_path: Path) -> None:
    with KafkaBroker("2.7.2", tmp_path / "kafka") as old:
        produce(old.bootstrap, "letters", b"a")
    with KafkaBroker("3.9.1", tmp_path / "kafka", mode="zookeeper") as new:
        assert consume(new.bootstrap, "letters", 1) == [b"a"]
        assert (
            new.cluster_id
            == (re.search(r"cluster\.id=(.+)", (new.log_dirs[0] / "meta.properties").read_text()) or "")[1]
        )


@pytest.mark.apart
def test_three_brokers_form_one_cluster(tmp_path: Path) -> None:
    replicated = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    with KafkaCluster("3.9.1", tmp_path, 3, properties=replicated) as cluster:
        produce(cluster.bootstrap, "letters", b"a")
        cluster.brokers[0].kill()
        survivors = cluster.brokers[1].bootstrap
        produce(survivors, "letters", b"b")
        assert sorted(consume(survivors, "letters", 2), key=str) == [b"a", b"b"]
        assert (cluster.brokers[2].log_dirs[0] / "letters-0").is_dir()
        pids = [broker.process.pid for broker in cluster.brokers]
    assert all(gone(pid) for pid in pids)


def test_the_test_jars_hold_a_tiered_storage_plugin() -> None:
    assert (kafka_libs("3.9.1") / "kafka-storage-3.9.1-test.jar").exists()


def test_a_start_that_fails_shows_the_log_and_leaves_no_process(tmp_path: Path) -> None:
    broker = KafkaBroker("4.3.0", tmp_path, properties={"log.retention.hours": "many"})
    with pytest.raises(ServerError, match=r"log\.retention\.hours"), broker:
        pytest.fail("a broker with a wrong setting started")


def test_a_start_that_never_becomes_ready_is_ended(tmp_path: Path) -> None:
    process = ServerProcess("sleeper", ["sh", "-c", "echo asleep; exec sleep 60"], tmp_path / "log")
    process.launch()
    with pytest.raises(ServerError, match=r"not ready within 1 s(.|\n)*asleep"):
        process.wait_until(lambda: False, 1.0)
    assert gone(process.pid)


def test_a_missing_tool_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ServerError, match="openjdk-17"):
        tool("java")


@pytest.fixture(name="writers_that_win")
def _writers_that_win() -> Callable[[VersityGateway], int]:
    def race(gateway: VersityGateway) -> int:
        client = gateway.client()

        def put(number: int) -> bool:
            try:
                client.put_object(Bucket=gateway.bucket, Key="commit", Body=b"%d" % number, IfNoneMatch="*")
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] != 412:
                    raise
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            winners = sum(pool.map(put, range(16)))
        client.close()
        return winners

    return race


def test_versitygw_honours_create_only_puts(tmp_path: Path, writers_that_win: Callable[[VersityGateway], int]) -> None:
    with VersityGateway(tmp_path) as gateway:
        assert writers_that_win(gateway) == 1


def test_versitygw_without_metadata_ignores_them(
    tmp_path: Path, writers_that_win: Callable[[VersityGateway], int]
) -> None:
    with VersityGateway(tmp_path, nometa=True) as gateway:
        assert writers_that_win(gateway) == 16


def test_versitygw_keeps_its_objects_over_a_kill(tmp_path: Path) -> None:
    with VersityGateway(tmp_path) as gateway:
        client = gateway.client()
        client.put_object(Bucket=gateway.bucket, Key="a/b", Body=b"kept")
        gateway.process.kill()
        gateway.start()
        assert client.get_object(Bucket=gateway.bucket, Key="a/b")["Body"].read() == b"kept"
        assert (gateway.objects / gateway.bucket / "a/b").read_bytes() == b"kept"
        client.close()


def test_toxiproxy_delays_and_cuts(tmp_path: Path) -> None:
    with VersityGateway(tmp_path / "s3") as gateway, Toxiproxy(tmp_path / "proxy") as toxiproxy:
        proxy = toxiproxy.proxy("s3", gateway.port)
        client = gateway.client(proxy.endpoint)

        def list_ms() -> float:
            start_s = time.perf_counter()
            client.list_objects_v2(Bucket=gateway.bucket)
            return (time.perf_counter() - start_s) * 1000

        client.list_objects_v2(Bucket=gateway.bucket)
        latency = proxy.add_toxic("latency", latency=1500)
        assert list_ms() >= 1500
        proxy.remove_toxic(latency)
        assert list_ms() < 1500
        proxy.set_enabled(False)
        with pytest.raises(Exception, match=r"Connection|connect"):
            client.list_objects_v2(Bucket=gateway.bucket)
        toxiproxy.reset()
        assert list_ms() < 1500
        client.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_stored_dumps_are_what_the_tool_prints_today(version: str) -> None:
    name = "logs/orders-1/00000000000000000000.log"
    printed = dump_log_segments(version, golden(version), [name], "--deep-iteration", "--print-data-log")
    assert split_dumps(printed)[name].strip() == dump_text(version, name).strip()
