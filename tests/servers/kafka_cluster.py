"""Several real Kafka brokers as one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.servers.kafka import KafkaBroker, Quorum
from tests.servers.process import Server
from tests.servers.zookeeper import ZooKeeper


class KafkaCluster(Server):
    """Several brokers of one version with node ids 0, 1, …, each below `directory`; a context manager.

    KRaft: every node is voter and broker, and a clean stop of one needs a majority of the others, so leaving the context
    kills them all at once, which leaves unclean directories. ZooKeeper (2.7.2): one shared ZooKeeper; node 0 starts first
    and so becomes the controller, which is how a test keeps the controller while it restarts another node.
    """

    def __init__(
        self, version: str, directory: Path, node_count: int = 3, *, properties: Mapping[str, str] | None = None
    ) -> None:
        self._zookeeper = ZooKeeper(version, directory / "zookeeper") if version == "2.7.2" else None
        quorum = None if self._zookeeper else Quorum.of(range(node_count))
        self.brokers = [
            KafkaBroker(
                version,
                directory / f"node-{node_id}",
                node_id=node_id,
                properties=properties,
                quorum=quorum,
                zookeeper_connect=self._zookeeper.connect if self._zookeeper else None,
            )
            for node_id in range(node_count)
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> None:
        if self._zookeeper is not None:
            self._zookeeper.start()
            for broker in self.brokers:
                broker.start()
            return
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()

    def close(self) -> None:
        """Ends every process of the cluster."""
        if self._zookeeper is None:
            for broker in self.brokers:
                broker.process.kill()
            return
        # Node 0 last: it is the controller that the others hand their partitions to.
        with ExitStack() as stack:
            stack.callback(self._zookeeper.close)
            for broker in self.brokers:
                stack.callback(broker.close)
