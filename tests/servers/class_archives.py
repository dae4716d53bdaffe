"""Archives of the classes that brokers, their tools and clients load: a JVM maps one instead of reading and checking 100 jars.

Made once for each Kafka version, by `Train.java`. Only tests use them, after `use()`: benchmarks compare with a broker as it is.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.servers.dist import cache_directory, kafka_libs, locked, tool
from tests.servers.process import ServerError, free_port

_PROGRAM = Path(__file__).with_name("Train.java")
_TIMEOUT_S = 300.0
# Warnings (of an archive that does not fit) would go to standard output, which is a tool's own.
_LOG_TO_STDERR = ("-Xlog:disable", "-Xlog:all=warning:stderr")
_wanted = False


def use() -> None:
    """From now on JVMs of this process's tests start from archives."""
    global _wanted
    _wanted = True


def in_use() -> bool:
    """Whether JVMs are started for tests, as quickly as they can."""
    return _wanted


def options(version: str, common: Sequence[str]) -> list[str]:
    """Of a JVM on the jars of this Kafka version, which is also given `common`. Raises ServerError."""
    if not _wanted:
        return []
    archive = _archive(version, tuple(common))
    # No file of counters in /tmp, which the JVM would fill for a `jstat` that nobody runs.
    quick = ["-XX:-UsePerfData", *_LOG_TO_STDERR]
    return quick if archive is None else [*quick, f"-XX:SharedArchiveFile={archive}"]


@cache
def _archive(version: str, common: tuple[str, ...]) -> Path | None:
    """The archive; None where this JVM makes none. It holds for one JVM and these very jars: the JVM compares times and sizes."""
    libs = kafka_libs(version)
    java = Path(os.path.realpath(tool("java")))
    found = hashlib.sha256(_PROGRAM.read_bytes() + " ".join(common).encode())
    for path in (java, java.parents[1] / "lib" / "modules", *sorted(libs.glob("*.jar"))):
        if path.exists():
            status = path.stat()
            found.update(f"{path} {status.st_size} {int(status.st_mtime)}\n".encode())
    target = cache_directory() / "classes" / f"kafka-{version}-{found.hexdigest()[:20]}.jsa"
    none = target.with_suffix(".none")
    with locked(target.stem):
        if not target.exists() and not none.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as work:
                made = Path(work) / "made.jsa"
                _train(version, [str(java), "-Xmx512m", *common, "-cp", f"{libs}/*"], made, Path(work))
                # A JVM that is not HotSpot runs the program and writes nothing.
                if made.exists():
                    made.rename(target)
                else:
                    none.touch()
    return target if target.exists() else None


def _train(version: str, java: Sequence[str], archive: Path, work: Path) -> None:
    """Format; then ZooKeeper or controller, broker, producers, consumer and dump, in one JVM that ends cleanly."""
    bootstrap, second = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    logs, server, zookeeper = work / "logs", work / "server.properties", work / "zookeeper.cfg"
    settings = {
        "log.dirs": str(logs),
        "advertised.listeners": f"PLAINTEXT://{bootstrap}",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    programs = ["kafka.Kafka", str(server)]
    if version.startswith("2."):
        settings |= {"broker.id": "1", "listeners": f"PLAINTEXT://{bootstrap}", "zookeeper.connect": second}
        of_zookeeper = {
            "dataDir": str(work / "zookeeper"),
            "clientPort": second.rpartition(":")[2],
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        }
        zookeeper.write_text("".join(f"{name}={value}\n" for name, value in of_zookeeper.items()))
        programs = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(zookeeper), "--", *programs]
    else:
        settings |= {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{bootstrap},CONTROLLER://{second}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{second}",
        }
    server.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    if "process.roles" in settings:
        # By itself: it ends with an exit of the JVM.
        _run(version, [*java, "kafka.tools.StorageTool", "format", "-t", "A" * 22, "-c", str(server)])
    # Of the classes that cannot be archived the JVM warns one by one.
    quiet = ["-Xlog:disable", "-Xlog:all=error:stderr", "-XX:+IgnoreUnrecognizedVMOptions"]
    options = [*quiet, f"-XX:ArchiveClassesAtExit={archive}"]
    _run(version, [java[0], *options, *java[1:], str(_PROGRAM), bootstrap, str(logs), *programs])


def _run(version: str, command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"the classes of Kafka {version} were not archived within {_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).decode(errors="replace").splitlines()[-40:])
        raise ServerError(f"archiving the classes of Kafka {version} ended with status {done.returncode}:\n{tail}")
