"""Which engine does a piece of work where `auto` is asked for: a pure function of the work and the machine.

The figures were measured by `python -m benchmarks.engines`; docs/spark.md has the table, tests/cli/test_engine_choice.py compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sidecar.model import EngineName

START_S: Final = 6.5
"""Seconds from the first use of Spark in this container to its first task: the JVM, its context and a Python worker."""
LOCAL_COMPACTION_BYTES_PER_S: Final = 770_000_000
"""Log bytes that one process compacts in a second."""
SPARK_COMPACTION_BYTES_PER_S: Final = 770_000_000
"""The same, for each core that Spark has in this container."""
MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
"""More is compacted on Spark whatever it takes: one process would hold all keys in memory."""


class WorkKind(StrEnum):
    """COMPACTION: in three steps, which `local` takes in one process. READING: segments that know nothing of each other."""

    COMPACTION = "compaction"
    READING = "reading"


@dataclass(frozen=True, slots=True)
class Work:
    """`size_bytes` of log in so many `segments`. `on_this_machine`: the records are in files that a cluster does not see."""

    kind: WorkKind
    size_bytes: int
    segments: int
    on_this_machine: bool


def choose_engine(
    name: EngineName, work: Work, *, cores: int, has_cluster: bool, memory_bytes_max: int = MEMORY_BYTES_MAX
) -> EngineName:
    """LOCAL or SPARK; what was asked for by name is never changed.

    Args:
        cores: that Spark would have in this container.
        has_cluster: whether Spark's master is not this container.
        memory_bytes_max: up to so many bytes may be compacted in one process.
    """
    if name is not EngineName.AUTO:
        return name
    if has_cluster:
        return EngineName.LOCAL if work.on_this_machine else EngineName.SPARK
    if work.kind is WorkKind.READING:
        # Processes of ours read with as many cores as Spark's would, and need no JVM between them.
        return EngineName.LOCAL
    if work.size_bytes > memory_bytes_max:
        return EngineName.SPARK
    return EngineName.SPARK if spark_s(work, cores) < local_s(work) else EngineName.LOCAL


def local_s(work: Work) -> float:
    """How long a compaction takes in one process."""
    return work.size_bytes / LOCAL_COMPACTION_BYTES_PER_S


def spark_s(work: Work, cores: int) -> float:
    """How long it takes on Spark in this container, from its start: a segment is work for one core at a time."""
    return START_S + work.size_bytes / (SPARK_COMPACTION_BYTES_PER_S * max(1, min(cores, work.segments)))
