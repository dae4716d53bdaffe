"""Engines for the stages of a compaction, by the size of the work. Spark is handed in from above: here nothing knows a JVM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from sidecar.engine_ports import TO_DRIVER, Row, StageEngine, Stages
from sidecar.errors import SidecarError


class LocalStages:
    """A `StageEngine`: one stage after the other in this process. What waits between the stages waits in memory."""

    cores = 1

    @contextmanager
    def staged(self, stages: Stages, tasks: Sequence[Any]) -> Iterator[LocalRun]:
        answers: list[Any] = []
        buckets = _by_number((row for task in tasks for row in stages.first(task)), answers)
        items: dict[int, list[Any]] = {}
        for bucket in sorted(buckets):
            for item, values in _by_number(stages.second(bucket, buckets.pop(bucket)), answers).items():
                items.setdefault(item, []).extend(values)
        yield LocalRun(stages, items, answers)


class LocalRun:
    """A `StagedRun`."""

    def __init__(self, stages: Stages, items: dict[int, list[Any]], answers: list[Any]) -> None:
        self._stages = stages
        self._items = items
        self.answers = answers

    def third(
        self, function: Callable[[Iterable[Row], Any], Iterator[Any]], plans: Sequence[Any], *, uploads: bool = False
    ) -> list[Any]:
        return [answer for number, plan in enumerate(plans) for answer in function(self._rows(number), plan)]

    def _rows(self, task: int) -> Iterator[Row]:
        for item, values in self._items.items():
            if self._stages.third_task_of(item) == task:
                yield from ((item, value) for value in values)


def _by_number(rows: Iterable[Row], answers: list[Any]) -> dict[int, list[Any]]:
    found: defaultdict[int, list[Any]] = defaultdict(list)
    for number, value in rows:
        (answers if number == TO_DRIVER else found[number]).append(value)
    return found


class CompactionEngines(Protocol):
    """Engines by the size of the work. What they hold is gone after `stop`, and comes back with the next use."""

    def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
        """An engine for so many bytes. Starts nothing yet. `local_files`: the work is on files of this machine."""

    def stop(self) -> None:
        """End what they hold, now; whoever still waits for it gets an error."""


class LocalEngines:
    def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
        return LocalStages()

    def stop(self) -> None:
        """Nothing is held. Work of this process cannot be ended from outside: it must be small."""


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
