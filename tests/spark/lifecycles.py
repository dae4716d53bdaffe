"""What happens to the JVM, each scenario in a process of its own: `python -m tests.spark.lifecycles SCENARIO DIRECTORY`.

pyspark has one JVM per process, and the other tests have theirs. Each scenario prints what it saw, one fact per line.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import psutil

from sidecar.config import SparkSettings
from sidecar.spark.embedded import EmbeddedSpark
from sidecar.spark.engine import SparkEngine, SparkFailed
from tests.spark.slow_tasks import Gate, Gated, doubled, greedy, killed

MIB = 1 << 20


def settings(directory: Path, **more: object) -> SparkSettings:
    """Small."""
    return SparkSettings(master="local[1]", driver_memory_bytes=512 * MIB, local_dir=directory, **more)  # type: ignore[arg-type]


def java() -> list[psutil.Process]:
    """Our JVMs."""
    return [child for child in psutil.Process().children() if child.name() == "java"]


def works(spark: EmbeddedSpark) -> bool:
    """Whether a job gives its answers."""
    return list(SparkEngine(spark).run(doubled, [1, 2])) == [b"2", b"4"]


def told(spark: EmbeddedSpark, function: object, tasks: int = 1) -> str:
    """How a failure is told."""
    try:
        list(SparkEngine(spark).run(function, range(tasks)))  # type: ignore[arg-type]
    except SparkFailed as error:
        return str(error).splitlines()[0]
    return "nothing"


def ended(processes: list[psutil.Process]) -> bool:
    """Whether all are gone, at the latest after some seconds."""
    _, alive = psutil.wait_procs(processes, 20)
    return not alive


def killed_while_idle(directory: Path) -> None:
    """The next use starts another one, and nothing is left of the first."""
    with EmbeddedSpark(settings(directory)) as spark:
        print("works", works(spark))
        first = java()
        below = first[0].children(recursive=True)
        first[0].kill()
        print("gone", ended([*first, *below]), spark.is_running)
        print("works", works(spark), java()[0].pid != first[0].pid)
        print("directories", len(list(directory.iterdir())))
    print("left", len(list(directory.iterdir())), len(java()))


def killed_in_the_middle(directory: Path) -> None:
    """Told as such; neither processes nor files are left, at once and not only at the end; and the next use works."""
    gate = Gate(directory / "gate")
    gate.directory.mkdir()
    local = directory / "local"
    with EmbeddedSpark(settings(local)) as spark:
        with spark.context():
            processes = [*java(), *java()[0].children(recursive=True)]

        def kill() -> None:
            while not gate.waiting:
                threading.Event().wait(0.05)
            processes.extend(java()[0].children(recursive=True))
            java()[0].kill()
            gate.open()

        killer = threading.Thread(target=kill)
        killer.start()
        print(told(spark, Gated(doubled, gate)))
        killer.join()
        print("left", ended(processes), len(list(local.iterdir())))
        print("works", works(spark))
    print("left", len(list(local.iterdir())), len(java()))


def workers_end(directory: Path) -> None:
    """A worker that may not have more memory, and one that is killed, as told; the JVM goes on."""
    with EmbeddedSpark(settings(directory, worker_memory_bytes=2048 * MIB)) as spark:
        print(told(spark, greedy))
        print(told(spark, killed))
        print("works", works(spark), len(java()))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
