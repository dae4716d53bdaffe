"""Where records are processed: the options of all commands that do so, and the engines that they mean, those of `run` among them.

`python -m benchmarks.engines` measures both; docs/how-to/run-on-spark.md has the table.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import typer

from sidecar.errors import SettingsError
from sidecar.model import EngineName

if TYPE_CHECKING:
    from sidecar.config import Settings
    from sidecar.engine_ports import StageEngine, TaskEngine
    from sidecar.segment.reading import ReadSegment
    from sidecar.spark.embedded import EmbeddedSpark

MEMORY_BYTES_MAX: Final = 16 * 1024 * 1024 * 1024
"""More is compacted on Spark: what one process keeps of the exchange between the steps grows with the square of the work."""

THREAD_BYTES: Final = 192 * 1024 * 1024
"""What a thread of a compaction adds to the memory of a command. Measured: benchmarks/compaction.md."""
READER_BYTES: Final = 32 * 1024 * 1024
"""What a thread that reads segments adds. Measured: docs/reference/sizing.md."""


class WorkKind(StrEnum):
    """COMPACTION: in three steps. READING: segments that know nothing of each other."""

    COMPACTION = "compaction"
    READING = "reading"


@dataclass(frozen=True, slots=True)
class Work:
    """`size_bytes` of log. `on_this_machine`: the records are in files that a cluster does not see."""

    kind: WorkKind
    size_bytes: int
    on_this_machine: bool


def choose_engine(
    name: EngineName, work: Work, *, has_cluster: bool, memory_bytes_max: int = MEMORY_BYTES_MAX
) -> EngineName:
    """LOCAL or SPARK; what was asked for by name is never changed.

    In this container both use all its cores, and `local` does not start a JVM first.

    Args:
        has_cluster: whether Spark's master is not this container.
        memory_bytes_max: up to so many bytes may be compacted in one process.
    """
    if name is not EngineName.AUTO:
        return name
    if has_cluster:
        return EngineName.LOCAL if work.on_this_machine else EngineName.SPARK
    is_large = work.kind is WorkKind.COMPACTION and work.size_bytes > memory_bytes_max
    return EngineName.SPARK if is_large else EngineName.LOCAL


Engine = Annotated[
    EngineName | None,
    typer.Option(help="Where records are processed. Default: spark.engine, which is auto.", show_default=False),
]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark master (spark.master): local[2], spark://host:7077, k8s://https://host …"),
]
Workers = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Number of reading threads. Default: one per core, if memory is enough."),
]


def spark_flags(master: str | None, name: EngineName | None) -> dict[str, Any]:
    """Settings by path, for the settings of a command. Raises SettingsError for a contradiction."""
    if master is not None and name is EngineName.LOCAL:
        raise SettingsError(f"--master {master} needs Spark, which --engine local does not use: remove one of them")
    return {"spark.master": master, "spark.engine": None if name is None else name.value}


def takes_spark(settings: Settings, work: Work) -> bool:
    """Whether Spark does this work. Raises SettingsError where it is asked for and cannot."""
    if work.on_this_machine:
        require_local_spark(settings)
    return choose_engine(settings.spark.engine, work, has_cluster=not settings.spark.is_local) is EngineName.SPARK


def lacks_cluster_files(settings: Settings, engine: EngineName) -> str:
    """Why Spark, asked for by name, does not process files of this machine; "" if it does, or if it is not asked for."""
    if engine is not EngineName.SPARK or settings.spark.is_local:
        return ""
    return f"spark.master is {settings.spark.master}, whose executors do not see the files of this machine"


def require_local_spark(settings: Settings) -> None:
    """Raises SettingsError where Spark is asked for and cannot see the files."""
    if lacks := lacks_cluster_files(settings, settings.spark.engine):
        raise SettingsError(
            f"spark.engine is spark, but {lacks}; give a local master (--master 'local[*]'), or --engine local"
        )


@contextmanager
def task_engine(
    settings: Settings, work: Work, workers: int | None, preload: Sequence[str] = ()
) -> Iterator[TaskEngine]:
    """Threads of this process, or Spark. Raises SettingsError.

    Args:
        preload: modules that Spark's workers need, imported before they are forked.
    """
    if not takes_spark(settings, work):
        yield _local_engine(settings, READER_BYTES, workers)
        return
    if workers is not None:
        raise SettingsError("--workers needs --engine local; with Spark, set the number in spark.master")
    from sidecar.spark.engine import SparkEngine

    with embedded_spark(settings, preload) as spark:
        yield SparkEngine(spark)


@contextmanager
def stage_engine(settings: Settings, work: Work) -> Iterator[StageEngine]:
    """Threads of this process, or Spark, for work in three stages. Raises SettingsError."""
    if not takes_spark(settings, work):
        yield _local_engine(settings, THREAD_BYTES)
        return
    from sidecar.spark.engine import SparkEngine

    with embedded_spark(settings, ["sidecar.rewriting.preloaded"]) as spark:
        engine = SparkEngine(spark)
        # The JVM starts while headers are read. Executors of a cluster are asked for when there is a task.
        if settings.spark.is_local:
            engine.prepare()
        yield engine


def _local_engine(settings: Settings, thread_bytes: int, threads: int | None = None) -> StageEngine:
    from sidecar.host.limits import memory_limit_bytes, processors, workers_that_fit
    from sidecar.rewriting.local_engine import LocalEngine

    threads = threads or workers_that_fit(processors(), memory_limit_bytes(), thread_bytes)
    return LocalEngine(threads, settings.compaction.staging_path)


def embedded_spark(settings: Settings, preload: Sequence[str] = ()) -> EmbeddedSpark:
    """As the settings want it; started by its first use, ended by the context."""
    from sidecar.spark.embedded import EmbeddedSpark

    return EmbeddedSpark(settings.spark, preload=preload, store=settings.store)


LOCAL_BYTES_MAX: Final = 64 * 1024 * 1024
"""So much is compacted here where `auto` decides: the keys of more might not fit the memory of a sidecar."""
PRELOAD: Final = ("sidecar.rewriting.preloaded", "sidecar.segment.reading")


class RunEngines:
    """A `CompactionEngines`, and who reads the segments that are archived."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._spark: EmbeddedSpark | None = None

    def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
        """See `CompactionEngines`. A cluster does not see the files of this machine."""
        from sidecar.rewriting.local_engine import LocalEngine

        has_cluster = not self._settings.spark.is_local
        here = LocalEngine(place=self._settings.compaction.staging_path)
        if has_cluster and local_files:
            return here
        work = Work(WorkKind.COMPACTION, size_bytes, on_this_machine=local_files)
        chosen = choose_engine(
            self._settings.spark.engine, work, has_cluster=has_cluster, memory_bytes_max=LOCAL_BYTES_MAX
        )
        if chosen is EngineName.LOCAL:
            return here
        from sidecar.spark.engine import SparkEngine

        return SparkEngine(self._shared_spark())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def report(self) -> None:
        """Log what the settings ask for and cannot have, or should say otherwise."""
        from sidecar.event_log import EVENTS

        if lacks := lacks_cluster_files(self._settings, self._settings.spark.engine):
            EVENTS.warning(
                "engine_is_local",
                reason=lacks,
                effect="segments are read and compacted before their upload in this process; archived ones on the cluster",
            )

    def reader(self) -> ReadSegment:
        """Who reads the segments of this machine: this process, unless Spark is asked for by name. Starts nothing yet."""
        from sidecar.segment.reading import read_by_engine, read_segment

        if self._settings.spark.engine is not EngineName.SPARK or not self._settings.spark.is_local:
            return read_segment
        from sidecar.spark.engine import SparkEngine

        return partial(read_by_engine, SparkEngine(self._shared_spark(), moving=()))

    def _shared_spark(self) -> EmbeddedSpark:
        with self._lock:
            if self._spark is None:
                self._spark = embedded_spark(self._settings, PRELOAD)
            return self._spark

    def stop(self) -> None:
        with self._lock:
            spark = self._spark
        if spark is not None:
            spark.stop()
