"""A ZooKeeper for brokers that need one: 2.7.2, and 3.9.1 where it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.servers.kafka_java import java_command
from tests.servers.process import Server, ServerProcess, free_port, port_answers

_START_TIMEOUT_S = 300.0


class ZooKeeper(Server):
    """One ZooKeeper server of the given Kafka version; a context manager."""

    def __init__(self, version: str, directory: Path) -> None:
        self.port = free_port()
        self._version = version
        self._directory = directory
        self._process: ServerProcess | None = None

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        configuration = self._directory / "zookeeper.cfg"
        settings = {
            "dataDir": str(self._directory / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": "500",
            "maxSessionTimeout": "60000",
            "admin.enableServer": "false",
        }
        write_properties(configuration, settings)
        main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(configuration)]
        command = [*java_command(self._version, heap_mb=128, log_level="INFO"), *main]
        self._process = ServerProcess("ZooKeeper", command, self._directory / "zookeeper.log")
        self._process.launch()
        self._process.wait_until(lambda: port_answers(self.port), _START_TIMEOUT_S)

    def close(self) -> None:
        """See Server."""
        if self._process is not None:
            self._process.stop()


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """A configuration file of ZooKeeper or a broker."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
