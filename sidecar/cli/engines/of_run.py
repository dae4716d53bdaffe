"""The engines of `run` and `backfill`: this process, or Spark, whose one JVM is there only while it is used."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import structlog

from sidecar.cli.engines.engines import Work, WorkKind, choose_engine, lacks_cluster_files, spark_cores
from sidecar.config import Settings
from sidecar.model import EngineName
from sidecar.rewriting.engines import LocalStages

if TYPE_CHECKING:
    from sidecar.engine_ports import StageEngine
    from sidecar.segment.reading import ReadSegment
    from sidecar.spark.embedded import EmbeddedSpark

_log = structlog.get_logger(__name__)

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
        cores, has_cluster = spark_cores(self._settings), not self._settings.spark.is_local
        if has_cluster and local_files:
            return LocalStages()
        # Partitions are compacted together: there are always segments for all cores.
        work = Work(WorkKind.COMPACTION, size_bytes, cores, on_this_machine=local_files)
        chosen = choose_engine(
            self._settings.compaction_engine,
            work,
            cores=cores,
            has_cluster=has_cluster,
            memory_bytes_max=LOCAL_BYTES_MAX,
        )
        if chosen is EngineName.LOCAL:
            return LocalStages()
        from sidecar.spark.stages import SparkStages

        return SparkStages(self._shared_spark())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def report(self) -> None:
        """Log what the settings ask for and cannot have, or should say otherwise."""
        reading, compaction = self._settings.spark.engine, self._settings.compaction_engine
        if lacks := self._lacks_files(reading) or self._lacks_files(compaction):
            archived = "all archived ones too" if compaction is EngineName.LOCAL else "archived ones on the cluster"
            _log.warning(
                "engine_is_local",
                reason=lacks,
                meaning=f"segments are read and compacted before their upload in this process; {archived}",
            )
        if self._settings.compaction.engine is not None:
            _log.warning("setting_deprecated", setting="compaction.engine", instead="spark.engine, for every command")

    def _lacks_files(self, engine: EngineName) -> str:
        return lacks_cluster_files(self._settings, engine)

    def reader(self) -> ReadSegment:
        """Who reads the segments of this machine: this process, unless Spark is asked for by name. Starts nothing yet."""
        from sidecar.segment.reading import read_segment

        if self._settings.spark.engine is not EngineName.SPARK or not self._settings.spark.is_local:
            return read_segment
        from sidecar.segment.reading import ReadingOnEngine
        from sidecar.spark.engine import SparkEngine

        return ReadingOnEngine(SparkEngine(self._shared_spark(), moving=()))

    def _shared_spark(self) -> EmbeddedSpark:
        from sidecar.cli.engines.engines import embedded_spark

        with self._lock:
            if self._spark is None:
                self._spark = embedded_spark(self._settings, PRELOAD)
            return self._spark

    def stop(self) -> None:
        with self._lock:
            spark = self._spark
        if spark is not None:
            spark.stop()
