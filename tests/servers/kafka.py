"""Real Kafka brokers: 2.7.2 (ZooKeeper), 3.9.1 (KRaft or ZooKeeper), 4.3.0 and 4.4.0 (KRaft), alone or as nodes of a cluster.

    with KafkaBroker("4.3.0", directory) as broker:
        ...  # broker.bootstrap, broker.log_dirs, broker.stop(), broker.kill(), broker.start()

A broker keeps its directory: a later KafkaBroker on the same one, also of a newer version, continues its logs.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.servers import class_archives
from tests.servers.kafka_format import format_log_dirs, new_uuid
from tests.servers.kafka_java import java_command
from tests.servers.process import Server, ServerProcess, free_port
from tests.servers.zookeeper import ZooKeeper, write_properties

Mode = Literal["kraft", "zookeeper"]

START_TIMEOUT_S = 300.0
# Short, because a ZooKeeper broker cannot come back after kill -9 before its old session has expired.
_ZOOKEEPER_SESSION_S = 6.0
# The broker's own last line. On KRaft a shorter "started (kafka.server" also matches the controller, seconds too soon.
_READY = re.compile(r"Kafka Server started \(kafka\.server\.KafkaRaftServer\)|\[KafkaServer id=\d+\] started ")
_SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_SINGLE_NODE_FROM_4 = {"share.coordinator.state.topic.replication.factor": "1"} | {
    "share.coordinator.state.topic.min.isr": "1"
}

# The cleaner's map of 128 MiB is zeroed at each start: an eighth of what a start and a stop cost.
_QUICK = {"log.cleaner.dedupe.buffer.size": "2097152"}
# Twice a second an idle controller appends a record that says nothing: half of what an idle broker costs.
_QUICK_KRAFT = {"metadata.max.idle.interval.ms": "0"}


@dataclass(frozen=True)
class Quorum:
    """The KRaft voters of one cluster: node id -> controller port; the same object is given to each of its brokers."""

    cluster_id: str
    controller_ports: Mapping[int, int]

    @classmethod
    def of(cls, node_ids: Iterable[int], cluster_id: str | None = None) -> Quorum:
        return cls(cluster_id or new_uuid(), {node_id: free_port() for node_id in node_ids})

    def voters(self) -> str:
        return ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in sorted(self.controller_ports.items()))


class KafkaBroker(Server):
    """One broker; a context manager that starts it and, whatever happened to it since, leaves no process behind.

    `mode` is KRaft (broker and controller in one process) except for 2.7.2. A ZooKeeper broker starts a ZooKeeper of
    its own below `directory` unless `zookeeper_connect` names one. `properties` override the server properties.
    `quorum` makes it a node of a larger KRaft cluster. `log_dir_count` > 1 gives a JBOD. `as_in_production`: a JVM as Kafka's own
    scripts start it, not one that starts quickly.
    """

    def __init__(
        self,
        version: str,
        directory: Path,
        *,
        mode: Mode | None = None,
        node_id: int = 1,
        log_dir_count: int = 1,
        properties: Mapping[str, str] | None = None,
        quorum: Quorum | None = None,
        zookeeper_connect: str | None = None,
        heap_mb: int = 384,
        as_in_production: bool = False,
    ) -> None:
        self.version = version
        self.directory = directory
        self.mode: Mode = mode or ("zookeeper" if version == "2.7.2" else "kraft")
        self.node_id = node_id
        self.port = free_port()
        self.log_dirs = [directory / f"logs-{number}" for number in range(log_dir_count)]
        self.properties = dict(properties or {})
        self.cluster_id = quorum.cluster_id if quorum else self._formatted_cluster_id() or new_uuid()
        self._quorum = quorum or Quorum.of([node_id], self.cluster_id)
        self._zookeeper_connect = zookeeper_connect
        self._zookeeper: ZooKeeper | None = None
        self._configuration = directory / "server.properties"
        self._heap_mb = heap_mb
        self._as_in_production = as_in_production
        self._killed_at_s: float | None = None
        self._process: ServerProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def controller_port(self) -> int:
        """Of a KRaft node: where its controller listens."""
        return self._quorum.controller_ports[self.node_id]

    @property
    def zookeeper_connect(self) -> str | None:
        """Address of the ZooKeeper, once known: a further node of the cluster is given it."""
        return self._zookeeper_connect

    @property
    def process(self) -> ServerProcess:
        """The broker's process: `pid`, `alive`, `send_signal`."""
        if self._process is None:
            java = java_command(
                self.version, heap_mb=self._heap_mb, log_level="INFO", as_in_production=self._as_in_production
            )
            command = [*java, "kafka.Kafka", str(self._configuration)]
            self._process = ServerProcess(f"Kafka {self.version}", command, self.directory / "broker.log")
        return self._process

    def log_text(self) -> str:
        """The broker's own log of its latest run."""
        return self.process.output()

    def start(self) -> None:
        """Starts and waits until the broker serves. Raises ServerError with the tail of its log."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Starts without waiting: the nodes of a quorum become ready only together."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.mode == "zookeeper":
            self._prepare_zookeeper()
        write_properties(self._configuration, self._server_properties())
        if self.mode == "kraft":
            format_log_dirs(self.version, self.log_dirs, self.cluster_id, self.node_id, self._configuration)
        self.process.launch()

    def wait_ready(self) -> None:
        self.process.wait_until(lambda: _READY.search(self.process.output()) is not None, START_TIMEOUT_S)
        # It says "started" before the controller has reported any broker to it, itself included, with ZooKeeper for long, with
        # KRaft for a moment. A librdkafka client that is answered "no brokers" may ask for its topic only minutes later
        # (topic.metadata.refresh.interval.ms).
        self.process.wait_until(self._names_itself, START_TIMEOUT_S)

    def stop(self) -> None:
        """A clean stop: SIGTERM, so that indexes are trimmed and the clean-shutdown file and snapshots are written."""
        self.process.stop()

    def kill(self) -> None:
        """kill -9: the next start recovers."""
        self.process.kill()
        self._killed_at_s = time.monotonic()  # noqa: TID251 - the clock that ZooKeeper's session runs on

    def close(self) -> None:
        """Ends the broker (cleanly if it still runs) and the ZooKeeper it started."""
        try:
            if self.process.alive:
                # A process that a test has stopped with SIGSTOP would never see SIGTERM.
                self.process.send_signal(signal.SIGCONT)
                self.process.stop()
        finally:
            if self._zookeeper is not None:
                self._zookeeper.close()
                self._zookeeper = None

    def _names_itself(self) -> bool:
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            return self.node_id in client.list_topics(timeout=2.0).brokers
        except KafkaException:
            return False

    def _server_properties(self) -> dict[str, str]:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port}"
        settings = dict(_SINGLE_NODE)
        if class_archives.in_use():
            settings |= _QUICK
        if int(self.version.partition(".")[0]) >= 4:
            settings |= _SINGLE_NODE_FROM_4
        settings["log.dirs"] = ",".join(str(path) for path in self.log_dirs)
        settings["advertised.listeners"] = listeners
        if self.mode == "zookeeper":
            settings |= {"broker.id": str(self.node_id), "listeners": listeners}
            settings["zookeeper.connect"] = self._zookeeper_connect or ""
            settings["zookeeper.session.timeout.ms"] = str(int(_ZOOKEEPER_SESSION_S * 1000))
        else:
            settings |= {"node.id": str(self.node_id), "process.roles": "broker,controller"}
            settings["listeners"] = f"{listeners},CONTROLLER://127.0.0.1:{self.controller_port}"
            settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            settings["controller.listener.names"] = "CONTROLLER"
            settings["controller.quorum.voters"] = self._quorum.voters()
            if class_archives.in_use():
                settings |= _QUICK_KRAFT
        return settings | self.properties

    def _prepare_zookeeper(self) -> None:
        if self._killed_at_s is not None:
            # One session time-out after the kill, and some ticks until ZooKeeper acts on it; before that: NodeExists.
            wait_s = self._killed_at_s + _ZOOKEEPER_SESSION_S + 2.0 - time.monotonic()  # noqa: TID251
            time.sleep(max(0.0, wait_s))  # noqa: TID251
            self._killed_at_s = None
        if self._zookeeper_connect is None:
            self._zookeeper = ZooKeeper(self.version, self.directory / "zookeeper")
            self._zookeeper.start()
            self._zookeeper_connect = self._zookeeper.connect

    def _formatted_cluster_id(self) -> str | None:
        for log_dir in self.log_dirs:
            meta = log_dir / "meta.properties"
            found = re.search(r"^cluster\.id=(.+)$", meta.read_text(), re.MULTILINE) if meta.exists() else None
            if found:
                return found.group(1)
        return None
