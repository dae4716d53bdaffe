"""What happens to the JVM, each scenario in a process of its own: `python -m tests.spark.lifecycles SCENARIO DIRECTORY`.

pyspark has one JVM per process, and the other tests have theirs. Each scenario prints what it saw, one fact per line.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import psutil

from sidecar.compaction.rules import CompactionRules
from sidecar.config import SparkSettings
from sidecar.errors import SidecarError
from sidecar.rewriting import run
from sidecar.spark.embedded import EmbeddedSpark
from sidecar.spark.engine import SparkEngine
from sidecar.spark.failures import SparkFailed
from tests.compaction.directories import compacted
from tests.golden import golden
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


def reported(spark: EmbeddedSpark, function: object, tasks: int = 1) -> str:
    """How a failure is reported."""
    try:
        list(SparkEngine(spark).run(function, range(tasks)))  # type: ignore[arg-type]
    except SparkFailed as error:
        return str(error).splitlines()[0]
    return "nothing"


def ended(processes: list[psutil.Process]) -> bool:
    """Whether all are gone, at the latest after two minutes."""
    _, alive = psutil.wait_procs(processes, 120)
    return not alive


def compaction_without_jvm(spark: EmbeddedSpark, out: Path) -> str:
    """How it is reported that the JVM is killed between the first stages of a compaction and its last."""

    def kill_jvm(answers: Iterable[object]) -> dict[int, SidecarError]:
        for process in java():
            process.kill()
        return failures(answers)

    failures, run._failures = run._failures, kill_jvm
    try:
        compacted(golden("4.3.0") / "logs" / "compacted-0", out, CompactionRules(0), SparkEngine(spark))
    except SparkFailed as error:
        return str(error).splitlines()[0]
    return "nothing"


def one_after_the_other(directory: Path) -> None:
    """A JVM is killed while idle, workers of the next are out of memory or killed, it is killed in the middle of jobs."""
    local, gate = directory / "local", Gate(directory / "gate")
    gate.directory.mkdir()
    with EmbeddedSpark(settings(local, worker_memory_bytes=2048 * MIB)) as spark:
        print("works", works(spark))
        first = java()
        below = first[0].children(recursive=True)
        first[0].kill()
        print("gone", ended([*first, *below]))
        print("works", works(spark), java()[0].pid != first[0].pid, len(list(local.iterdir())))
        print(reported(spark, greedy))
        print(reported(spark, killed))
        print("works", works(spark))
        processes: list[psutil.Process] = []

        def kill() -> None:
            while not gate.waiting:
                threading.Event().wait(0.05)
            processes.extend([*java(), *java()[0].children(recursive=True)])
            java()[0].kill()
            gate.open()

        killer = threading.Thread(target=kill)
        killer.start()
        print(reported(spark, Gated(doubled, gate)))
        killer.join()
        print("gone", ended(processes), len(processes) > 1, len(list(local.iterdir())))
        print("works", works(spark))
        print(compaction_without_jvm(spark, directory / "out"))
        print(sorted(path.name for path in directory.iterdir()))
    print("left", len(list(local.iterdir())), len(java()))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
