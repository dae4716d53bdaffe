"""Formats log directories of a KRaft broker: by Kafka's own StorageTool once for each version, later by copies of what it wrote.

What it writes differs from broker to broker in three lines of meta.properties only; the tool is a JVM of half a second.
"""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sidecar.randomness import SystemRandomness
from tests.servers.dist import cache_directory, kafka_libs, locked
from tests.servers.kafka_java import kafka_tool

_TOOL = "kafka.tools.StorageTool"
_META = "meta.properties"
_ADDRESSES = {
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


def new_uuid() -> str:
    """A random id of a cluster or a directory in Kafka's form: 16 bytes, URL-safe base64, no padding."""
    while True:
        text = base64.urlsafe_b64encode(SystemRandomness().random_bytes(16)).rstrip(b"=").decode()
        # StorageTool would take it for an option; Kafka's own Uuid.randomUuid draws again too.
        if not text.startswith("-"):
            return text


def format_log_dirs(version: str, log_dirs: Sequence[Path], cluster_id: str, node_id: int, configuration: Path) -> None:
    """Format those that are not; `configuration` is the broker's. Raises ServerError."""
    if all((path / _META).exists() for path in log_dirs):
        return
    if _chooses_more(configuration) or any(_holds_more_than_logs(path) for path in log_dirs):
        kafka_tool(version, _TOOL, "format", "--ignore-formatted", "-t", cluster_id, "-c", str(configuration))
        return
    first, further = _formatted(version)
    for number, log_dir in enumerate(log_dirs):
        shutil.copytree(further if number else first, log_dir, copy_function=shutil.copy, dirs_exist_ok=True)
        meta = log_dir / _META
        text = meta.read_text()
        for name, value in {"cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_uuid()}.items():
            text, count = re.subn(rf"^{re.escape(name)}=.*$", f"{name}={value}", text, flags=re.MULTILINE)
            assert count == 1, f"StorageTool of {version} writes no {name}"
        meta.write_text(text)


def _chooses_more(configuration: Path) -> bool:
    """Where the metadata lies, or which features there are: the tool reads no other property into what it writes."""
    names = {line.partition("=")[0] for line in configuration.read_text().splitlines()}
    return any(name.startswith(("metadata.log.dir", "unstable.", "inter.broker.protocol")) for name in names)


def _holds_more_than_logs(log_dir: Path) -> bool:
    """Formatted before, wholly or in part. A restored directory holds logs alone."""
    return any((log_dir / name).exists() for name in (_META, "bootstrap.checkpoint", "__cluster_metadata-0"))


@cache
def _formatted(version: str) -> tuple[Path, Path]:
    """What the tool wrote into the first and into the second of two log directories."""
    target = cache_directory() / "formatted" / version
    # The marker is a copy of the pom: see `dist._maven_libs`.
    pom, marker = kafka_libs(version) / "pom.xml", target / "pom.xml"
    with locked(f"formatted-{version}"):
        if not marker.exists() or marker.read_bytes() != pom.read_bytes():
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as work:
                made = Path(work) / "made"
                made.mkdir()
                settings = {**_ADDRESSES, "node.id": "1", "log.dirs": f"{made / 'first'},{made / 'further'}"}
                configuration = Path(work) / "server.properties"
                configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
                kafka_tool(version, _TOOL, "format", "-t", new_uuid(), "-c", str(configuration))
                shutil.copyfile(pom, made / "pom.xml")
                made.rename(target)
    return target / "first", target / "further"
