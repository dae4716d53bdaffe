"""Our side of the compaction benchmark: a process of its own, with threads or an embedded Spark, which compacts on demand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.segments import SPLIT_BYTES
from sidecar.config import SparkSettings
from sidecar.discovery.partition_directory import named_partition
from sidecar.engine_ports import StageEngine
from sidecar.model import EngineName
from sidecar.rewriting.directory import compact_directory, compaction_job
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.run import rewritten, scanned
from sidecar.rewriting.survey import survey
from sidecar.rewriting.work_files import LocalParts
from sidecar.snapshots.jobs import Forgetting
from sidecar.spark.embedded import EmbeddedSpark
from sidecar.spark.engine import SparkEngine

PRELOADED = "sidecar.rewriting.preloaded"
MIB = 1024 * 1024


class Contestant:
    """A context manager. With one core the whole process, its JVM and its workers have one core."""

    def __init__(self, cores: int, engine: EngineName = EngineName.SPARK) -> None:
        self._cores = cores
        self._engine = engine
        self.largest_bytes = 0
        """Private memory of the process, or on Spark of its largest Python worker, at any moment of the last call."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "benchmarks.compaction_contestant", str(self._cores), self._engine]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.communicate()

    def compact(self, partition: Path, out: Path) -> float:
        """Wall seconds from a directory to a directory."""
        return self._reported("one", partition, out)

    def compact_all(self, root: Path, out: Path) -> float:
        """Wall seconds of one job for all partitions below a directory, whose headers have been read, up to their parts."""
        return self._reported("all", root, out)

    def _reported(self, what: str, source: Path, out: Path) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        shutil.rmtree(out, ignore_errors=True)
        print(json.dumps([what, str(source), str(out)]), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        self.largest_bytes = answer["largest_bytes"]
        return float(answer["seconds"])


def _one(source: Path, out: Path, engine: StageEngine) -> float:
    out.mkdir()
    started = time.perf_counter()
    rules = CompactionRules(0)
    found = compact_directory(
        named_partition(source), out / source.name, rules, engine, Forgetting(0, None), hash_key=bytes(16)
    )
    assert found.records_after
    return time.perf_counter() - started


def _all(root: Path, out: Path, engine: StageEngine) -> float:
    jobs = []
    for source in sorted(root.iterdir()):
        staging = out / source.name
        staging.mkdir(parents=True)
        surveyed = survey(named_partition(source), Forgetting(0, None), staging, split_bytes=SPLIT_BYTES)
        count = surveyed.compactable(include_active=False)
        jobs.append(compaction_job(surveyed, count, CompactionRules(0), bytes(16), staging))
    parts = LocalParts(out / "parts")
    parts.directory.mkdir()
    started = time.perf_counter()
    with scanned(jobs, engine) as run:
        results = rewritten(run, parts)
    seconds = time.perf_counter() - started
    for result in results:
        assert isinstance(result, tuple), result
    return seconds


class _Watch:
    """Samples the private memory of this process, or of its Python workers."""

    def __init__(self, *, workers: bool) -> None:
        self.largest_bytes = 0
        self._workers = workers
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.1):
            this = psutil.Process()
            for process in this.children(recursive=True) if self._workers else [this]:
                try:
                    memory = process.memory_info()
                    is_python = "python" in process.name()
                except psutil.Error:
                    continue
                if is_python:
                    self.largest_bytes = max(self.largest_bytes, memory.rss - memory.shared)


def main() -> None:
    """Serve orders until stdin ends."""
    cores = int(sys.argv[1])
    if cores == 1:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    on_spark = sys.argv[2] == EngineName.SPARK
    settings = SparkSettings(master=f"local[{cores}]", driver_memory_bytes=1024 * MIB, idle_stop_s=86_400)
    with EmbeddedSpark(settings, preload=[PRELOADED]) as spark:
        engine: StageEngine = SparkEngine(spark) if on_spark else LocalEngine(cores)
        for line in sys.stdin:
            what, source, out = json.loads(line)
            Path(out).mkdir(parents=True) if what == "all" else Path(out).parent.mkdir(parents=True, exist_ok=True)
            with _Watch(workers=on_spark) as watch:
                seconds = (_all if what == "all" else _one)(Path(source), Path(out), engine)
            answer: dict[str, Any] = {"seconds": seconds, "largest_bytes": watch.largest_bytes}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
