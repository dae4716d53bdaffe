"""A standalone Spark cluster on loopback: one master and its workers from the jars of pyspark, with small heaps."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import psutil
import pyspark

from sidecar.spark.launcher import _jars, archive_path
from tests.servers import class_archives
from tests.servers.dist import tool
from tests.servers.process import Server, ServerProcess, free_port

_START_TIMEOUT_S: Final = 90.0
_HOME: Final = Path(pyspark.__file__).parent
_JAVA: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_DEPLOY: Final = "org.apache.spark.deploy"
EXECUTOR_MIB: Final = 480
"""The smallest that Spark accepts, and a little more."""
CLASS_PATH: Final = ":".join(map(str, _jars()))
"""All jars in the product's order: its class archive is for this class path, and for those that begin with it."""
ONE_EACH: Final = ("spark.executor.cores=1", "spark.cores.max=2", "spark.executor.instances=2")
"""Properties of an application: two executors."""


class SparkCluster(Server):
    """A context manager. The one worker has room for the executors of two applications, which ask for `ONE_EACH`.

    `slots`: executors that each worker has room for.
    `environment` is what machines of a cluster have in theirs: executors and their Python workers inherit it.
    """

    def __init__(
        self, directory: Path, *, workers: int = 1, slots: int = 4, environment: Mapping[str, str] | None = None
    ) -> None:
        self.port = free_port()
        self.directory = directory
        variables = {
            "SPARK_HOME": str(_HOME),
            # As Spark's own scripts say it; without them the worker looks for a source tree.
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            **_shared_classes(),
            **(environment or {}),
        }
        java = [tool("java"), *_JAVA, "-cp", CLASS_PATH]
        local = ["--host", "127.0.0.1", "--webui-port", "0"]
        (directory / "local").mkdir(parents=True)
        self.master = ServerProcess(
            "Spark master",
            [*java, f"{_DEPLOY}.master.Master", *local, "--port", str(self.port)],
            directory / "master.log",
            variables,
        )
        size = ["--cores", str(slots), "--memory", f"{slots * EXECUTOR_MIB}m"]
        self.workers = [
            ServerProcess(
                f"Spark worker {number}",
                [
                    *java,
                    f"{_DEPLOY}.worker.Worker",
                    *local,
                    *size,
                    "--work-dir",
                    str(directory / f"work-{number}"),
                    self.url,
                ],
                directory / f"worker-{number}.log",
                variables,
            )
            for number in range(workers)
        ]

    @property
    def url(self) -> str:
        """For `spark.master`."""
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts, and waits until all workers are known. Raises ServerError with the tail of a log."""
        for process in (self.master, *self.workers):
            process.launch()
        for worker in self.workers:
            worker.wait_until(partial(_is_registered, worker), _START_TIMEOUT_S)

    def executor_of(self, pid: int) -> psutil.Process:
        """The executor's JVM above a Python worker."""
        for parent in psutil.Process(pid).parents():
            if "CoarseGrainedExecutorBackend" in " ".join(parent.cmdline()):
                return parent
        raise LookupError(f"process {pid} is not below an executor")

    def kill_executor(self, pid: int) -> None:
        """SIGKILL for the executor above that Python worker, as when its machine is taken away."""
        os.kill(self.executor_of(pid).pid, signal.SIGKILL)

    def written(self) -> str:
        """All that executors and daemons have logged."""
        logs = [*self.directory.glob("work-*/**/std*"), *self.directory.glob("*.log")]
        return "\n".join(path.read_text(errors="replace") for path in logs)

    def lost_executors(self) -> int:
        """How many the workers have seen end by a signal."""
        return sum(len(re.findall(r"finished with state \w+ .*exitStatus 137", one.output())) for one in self.workers)

    def close(self) -> None:
        """Ends all processes, executors too: a worker that stops cleanly ends its own."""
        for process in (*self.workers, self.master):
            process.end(10.0)
        shutil.rmtree(self.directory / "local", ignore_errors=True)


def _is_registered(worker: ServerProcess) -> bool:
    return "Successfully registered" in worker.output()


def _shared_classes() -> dict[str, str]:
    """The variable that has JVMs of tests, executors too, map the archive that `prepare` has written: two thirds of a start."""
    archive = archive_path(None, os.environ)
    if not class_archives.in_use() or not archive.exists():
        return {}
    return {"JDK_JAVA_OPTIONS": f"-Xlog:disable -Xlog:all=error:stderr -XX:SharedArchiveFile={archive}"}
