"""Engines for the stages of a compaction, by the size of the work. Spark is handed in from above: here nothing knows a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from sidecar.engine_ports import Row, StageEngine, Stages
from sidecar.errors import SidecarError


class CompactionEngines(Protocol):
    """Engines by the size of the work. What they hold is gone after `stop`, and comes back with the next use."""

    def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
        """An engine for so many bytes. Starts nothing yet. `local_files`: the work is on files of this machine."""

    def stop(self) -> None:
        """End what they hold, now; whoever still waits for it gets an error."""


class CompactionCutOff(SidecarError):
    """The settings changed or the process stops. No commit was sent for what was not committed yet."""

    def __init__(self) -> None:
        super().__init__("cut off: the settings changed, or the process stops; nothing more was committed")


class CompactionCrashed(SidecarError):
    """A fault of our own while partitions were compacted; the log has its traceback."""


def on_engine(
    function: Callable[[Any], Iterator[Row]], tasks: Sequence[Any], engine: StageEngine, *, uploads: bool = False
) -> Sequence[Any]:
    """What the function, importable by name, yields to the driver for each task; in any order.

    Tasks may run twice; the answers of one attempt count. `uploads`: they also write to the store.

    Raises what the engine raises.
    """
    if not tasks:
        return ()
    with engine.staged(Stages(function, _nothing, 1, 1, 1, uploads), tasks) as run:
        return run.answers


def _nothing(_bucket: int, _values: Sequence[Any]) -> Iterator[Row]:
    return iter(())
