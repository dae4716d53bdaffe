"""Waiting for a cluster to give us executors: Spark itself would wait for ever, and say nothing."""

from __future__ import annotations

import threading
from typing import Any, Final

from sidecar.clock import Clock
from sidecar.config import SparkSettings
from sidecar.spark.java import SparkUnavailable

_LOOK_S: Final = 0.2
_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
_WANTED: Final = "spark.executor.instances"


def wait_for_executors(context: Any, settings: SparkSettings, clock: Clock, stopping: threading.Event) -> None:
    """Until one is there (all of `spark.executor.instances`, if that is given, or else what the wait allows for).

    Raises SparkUnavailable if none came in time, if the cluster has thrown us out meanwhile, or if we are to stop.
    """
    conf = context.getConf()
    if conf.get(_DYNAMIC, "false").lower() == "true":
        return  # They come with the first task.
    wanted = int(conf.get(_WANTED, "1"))
    deadline_s = clock.monotonic_s() + settings.executors_wait_s
    while (found := _executors(context)) < wanted:
        if context._jsc.sc().isStopped():  # noqa: SLF001 - pyspark asks for it nowhere
            raise SparkUnavailable(
                f"{settings.master} has ended our application before any work was done: its executors do not start; the "
                f"logs of the cluster's workers say why"
            )
        if stopping.is_set():
            raise SparkUnavailable("stopped while it waited for executors")
        if clock.monotonic_s() > deadline_s:
            if found:
                return
            raise SparkUnavailable(
                f"{settings.master} gave no executor in {settings.executors_wait_s:.0f} s: it is busy, or has none with "
                f"so many cores and so much memory as is asked for, or they cannot reach this driver (spark.driver.host "
                f"in spark.options); see docs/spark.md"
            )
        clock.sleep_s(_LOOK_S)


def _executors(context: Any) -> int:
    """Executors that have registered; the list names the driver too."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # noqa: SLF001 - as above
