"""Where large work runs: the options of all commands that can do it on Spark, and the engines that they mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sidecar.errors import SettingsError

if TYPE_CHECKING:
    from sidecar.config import Settings
    from sidecar.engine_ports import StageEngine, TaskEngine
    from sidecar.spark.embedded import EmbeddedSpark


LOCAL_BYTES_MAX: Final = 256 * 1024 * 1024
"""Up to so many bytes to compact AUTO starts no JVM: it would take longer than the work, and the keys fit memory."""


class EngineName(StrEnum):
    """AUTO: Spark where a master other than local is configured, else what suits the work."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


Engine = Annotated[
    EngineName, typer.Option(help="Where the segments are read; auto: on Spark if its master is not local.")
]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master, spark.master: local[2], spark://host:7077, k8s://https://host …"),
]
Workers = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Processes that read. Default: one per core, if memory is enough."),
]


def spark_flags(master: str | None, name: EngineName) -> dict[str, Any]:
    """Settings by path, for the settings of a command. Raises SettingsError for a contradiction."""
    if master is not None and name is EngineName.LOCAL:
        raise SettingsError(f"--master {master} is for Spark, and --engine local uses none: leave one of them out")
    return {"spark.master": master}


def wants_spark(settings: Settings, name: EngineName) -> bool:
    """Whether the work goes to Spark by what was asked for, whatever its size."""
    return name is EngineName.SPARK or (name is EngineName.AUTO and not settings.spark.is_local)


@contextmanager
def task_engine(
    settings: Settings, name: EngineName, workers: int | None, preload: Sequence[str] = ()
) -> Iterator[TaskEngine]:
    """Processes of this machine, or Spark. Raises SettingsError.

    Args:
        preload: modules that Spark's workers need, imported before they are forked.
    """
    if not wants_spark(settings, name):
        # As many processes as Spark's, without a JVM between them.
        from sidecar.pipeline.snapshots.local_engine import LocalEngine

        yield LocalEngine(workers)
        return
    if workers is not None:
        raise SettingsError("--workers is for --engine local; on Spark, spark.master says how many")
    from sidecar.spark.engine import SparkEngine

    with embedded_spark(settings, preload) as spark:
        yield SparkEngine(spark)


@contextmanager
def stage_engine(settings: Settings, preload: Sequence[str] = ()) -> Iterator[StageEngine]:
    """Spark, for work in three stages."""
    from sidecar.spark.stages import SparkStages

    with embedded_spark(settings, preload) as spark:
        yield SparkStages(spark)


def embedded_spark(settings: Settings, preload: Sequence[str] = ()) -> EmbeddedSpark:
    """As the settings want it; started by its first use, ended by the context."""
    from sidecar.spark.embedded import EmbeddedSpark

    return EmbeddedSpark(settings.spark, preload=preload, store=settings.store)
