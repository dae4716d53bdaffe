"""The task that ends with a topic: what consumers of another broker can read. And peers that archive through a broker."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cached_property, partial
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from benchmarks.hosting import VERSION, MeasuredBroker
from benchmarks.measuring import Run, Store, measured, measured_server
from benchmarks.peers.bench import OURS, Bench, Road
from benchmarks.product_runs import PROGRAM
from benchmarks.segments import TOPIC
from tests.real.tiered_storage import VERSION as TIERED_VERSION
from tests.real.tiered_storage import tiered_segments, tiering_properties
from tests.servers.dist import crate_binary, server_libs
from tests.servers.kafka_java import java_command, kafka_tool

_MIRRORED = f"source.{TOPIC}"
_TIERED = "Kafka's tiered storage"


class Brokers:
    """What the contestants of both functions below share: a source that has the topic, and fresh targets."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    @cached_property
    def source(self) -> MeasuredBroker:
        """Runs until the bench ends."""
        broker = MeasuredBroker(self.bench.scratch / "source")
        self.bench.stack.callback(broker.close)
        broker.take_over(self.bench.partition)
        broker.start()
        return broker

    def ours(self, store: Store) -> Run:
        """Restore into the stopped target's log directory, and start it: segments cannot be given to a running broker."""
        with self._target() as target:
            target.create_topic(TOPIC)
            target.stop()
            command = [str(PROGRAM), "restore", "--topic", TOPIC, "--to", str(target.log_dirs[0]), "--quiet"]

            def started() -> None:
                target.start()
                while not self._has(target, TOPIC):
                    pass

            variables = self.bench.ours(store, "archive")
            run = measured(command, variables, lambda: self._pids(target), finish=started)
            self._read_all(target, TOPIC)
        return run

    def kafka_backup(self, task: str, store: Store) -> Run:
        """`backup` from the source, or `restore` to a target."""
        if task == "backup":
            run = measured(self._engine(task, self.source, store, "out"), {}, lambda: self._pids(self.source))
            if not any(self.bench.sizes("out/")):
                raise RuntimeError("the backup is empty")
            self.bench.delete("out/")
            return run
        if not any(self.bench.sizes("kafka-backup/")):
            with self.bench.uncounted():
                measured(self._engine("backup", self.source, self.bench.store, "kafka-backup"), {}, list)
        with self._target() as target:
            target.create_topic(TOPIC)
            command = self._engine(task, target, store, "kafka-backup")
            run = measured(command, {}, lambda: self._pids(target), until=partial(self._has, target, TOPIC))
            self._read_all(target, TOPIC)
        return run

    def mirror_maker(self, _: Store) -> Run:
        """From the source to a target; it would go on mirroring for ever."""
        libs = server_libs("connect-mirror")
        with self._target() as target:
            properties = self.bench.scratch / "mm2.properties"
            properties.write_text("".join(f"{name} = {value}\n" for name, value in self._mirroring(target).items()))
            java = java_command(VERSION, heap_mb=2048, log_level="WARN", as_in_production=True)[:-1]
            command = [*java, f"{libs}/*", "org.apache.kafka.connect.mirror.MirrorMaker", str(properties)]
            pids = [self.source.process.pid, target.process.pid]
            run = measured(command, {}, lambda: pids, until=partial(self._has, target, _MIRRORED))
            self._read_all(target, _MIRRORED)
        return run

    def tiered_archive(self, _: Store) -> Run:
        """From `remote.storage.enable` until the last rolled segment is in the plugin's directory."""
        with closing(MeasuredBroker(self.bench.scratch / "tiered", TIERED_VERSION)) as broker:
            return self._tier(broker)

    def tiered_read(self, _: Store) -> Run:
        """The local segments are deleted; until a consumer has the first record of the log from the remote tier."""
        with closing(MeasuredBroker(self.bench.scratch / "tiered", TIERED_VERSION)) as broker:
            self._tier(broker)
            _alter(broker, {"local.retention.bytes": "0"})
            local = broker.log_dirs[0] / f"{TOPIC}-0"
            while any(path.stat().st_size for path in local.glob("*.log")):
                time.sleep(0.2)  # noqa: TID251 - a real broker has no other clock
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reading", "log_level": 0})
            begin = partial(consumer.assign, [TopicPartition(TOPIC, 0, 0)])
            run = measured_server(broker.process.pid, begin, lambda: consumer.poll(0.01) is not None)
            consumer.close()
            self._read_all(broker, TOPIC)
        return run

    def _tier(self, broker: MeasuredBroker) -> Run:
        # Without tiering first: a broker that has just begun with its metadata's topic does not stop for minutes.
        broker.take_over(self.bench.partition)
        broker.properties |= tiering_properties(broker.directory / "remote")
        broker.start()
        count = len(list(self.bench.finished.glob("*.log")))
        return measured_server(
            broker.process.pid,
            lambda: _alter(broker, {"remote.storage.enable": "true"}),
            lambda: len(tiered_segments(broker.directory / "remote", f"{TOPIC}-0")) >= count,
        )

    def _target(self) -> MeasuredBroker:
        return MeasuredBroker(self.bench.scratch / "target")

    def _pids(self, broker: MeasuredBroker) -> list[int]:
        return [*self.bench.store_pids(), *([broker.process.pid] if broker.process.alive else [])]

    def _has(self, broker: MeasuredBroker, topic: str) -> bool:
        return broker.serves_up_to(topic, self.bench.end_offset)

    def _read_all(self, broker: MeasuredBroker, topic: str) -> None:
        """By Kafka's own consumer. Raises RuntimeError where a record is missing."""
        count = self.bench.end_offset
        arguments = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--num-records", str(count)]
        arguments += ["--timeout", "20000", "--hide-header"]
        printed = kafka_tool(VERSION, "org.apache.kafka.tools.ConsumerPerformance", *arguments)
        rows = [line.split(", ") for line in printed.splitlines() if line.count(", ") >= 8]
        if not rows or int(rows[-1][4]) < count:
            raise RuntimeError(f"a consumer did not read {count} records: {printed}")

    def _engine(self, task: str, broker: MeasuredBroker, store: Store, prefix: str) -> list[str]:
        """The command of kafka-backup. Its configuration is YAML, of which JSON is a part."""
        state = self.bench.scratch / "kafka-backup"
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir()
        cluster = {"bootstrap_servers": [broker.bootstrap], "topics": {"include": [TOPIC]}}
        storage = {"backend": "s3", "bucket": store.bucket, "region": store.region, "endpoint": store.endpoint}
        storage |= {"access_key": store.access_key, "secret_key": store.secret_key, "prefix": prefix}
        config: dict[str, Any] = {
            "mode": task,
            "backup_id": "measured",
            "storage": {**storage, "path_style": True, "allow_http": True},
            "offset_storage": {"db_path": str(state / "offsets.db")},
            "metrics": {"enabled": False},
        }
        if task == "backup":
            config |= {"source": cluster, "backup": {"compression": "none", "stop_at_current_offsets": True}}
        else:
            config |= {"target": cluster, "restore": {"produce_batch_size": 10_000}}
        (state / "config.yaml").write_text(json.dumps(config))
        return [str(crate_binary("kafka-backup")), task, str(state / "config.yaml")]

    def _mirroring(self, target: MeasuredBroker) -> dict[str, str]:
        internal: tuple[str, ...] = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")
        internal += ("offset.storage", "status.storage", "config.storage")
        return {
            "clusters": "source, target",
            "source.bootstrap.servers": self.source.bootstrap,
            "target.bootstrap.servers": target.bootstrap,
            "source->target.enabled": "true",
            "source->target.topics": TOPIC,
            "target->source.enabled": "false",
            "replication.factor": "1",
            **{f"{name}.replication.factor": "1" for name in internal},
            "source.consumer.fetch.max.bytes": "52428800",
            "target.producer.batch.size": "327680",
            "target.producer.linger.ms": "100",
        }


def _alter(broker: MeasuredBroker, config: Mapping[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=entries)
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in client.incremental_alter_configs([resource]).values():
        done.result(60)


def archivers(brokers: Brokers) -> dict[str, Callable[[Store], Run]]:
    """Contestants of the archive's task that need a broker."""
    return {"kafka-backup": partial(brokers.kafka_backup, "backup"), _TIERED: brokers.tiered_archive}


def topic_road(brokers: Brokers) -> Road:
    """From an archive, or from another cluster, to a topic that consumers can read to its end."""
    brokers.bench.backfill("archive", brokers.bench.log_dir)
    contestants: dict[str, Callable[[Store], Run]] = {
        f"{OURS} restore, and start of the broker": brokers.ours,
        "kafka-backup": partial(brokers.kafka_backup, "restore"),
        "MirrorMaker 2": brokers.mirror_maker,
        _TIERED: brokers.tiered_read,
    }
    uses_store = frozenset(name for name in contestants if name.startswith((OURS, "kafka-backup")))
    return Road("topic", "A topic that consumers can read", brokers.bench.size_bytes, contestants, uses_store)
