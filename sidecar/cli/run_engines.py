"""The engines for compactions of `run`: this process for little data, else Spark, whose JVM is there only while it is used."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from sidecar.config import CompactionEngine, Settings
from sidecar.pipeline.compaction.local_stages import LocalStages

if TYPE_CHECKING:
    from sidecar.engine_ports import StageEngine
    from sidecar.spark.embedded import EmbeddedSpark

LOCAL_BYTES_MAX: Final = 64 * 1024 * 1024
"""So much is compacted here: the keys of more might not fit the memory of a sidecar, and a JVM is worth its start."""
PRELOAD: Final = "sidecar.pipeline.compaction.preloaded"


class RunEngines:
    """A `CompactionEngines`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._spark: EmbeddedSpark | None = None

    def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
        """See `CompactionEngines`. A cluster does not see the files of this machine."""
        is_cluster = not self._settings.spark.is_local
        match self._settings.compaction.engine:
            case CompactionEngine.LOCAL:
                return LocalStages()
            case CompactionEngine.SPARK if not (local_files and is_cluster):
                return self._on_spark()
            case _:
                is_little = size_bytes <= LOCAL_BYTES_MAX and not is_cluster
                return LocalStages() if is_little or (local_files and is_cluster) else self._on_spark()

    def _on_spark(self) -> StageEngine:
        from sidecar.cli.engines import embedded_spark
        from sidecar.spark.stages import SparkStages

        with self._lock:
            if self._spark is None:
                self._spark = embedded_spark(self._settings, [PRELOAD])
            return SparkStages(self._spark)

    def stop(self) -> None:
        """See `CompactionEngines`."""
        with self._lock:
            spark = self._spark
        if spark is not None:
            spark.stop()
