"""The stages one after the other in this process: for little data, for which no JVM is started."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sidecar.engine_ports import TO_DRIVER, Row, Stages


class LocalStages:
    """A `StageEngine`. What waits between the stages waits in memory."""

    cores = 1

    @contextmanager
    def staged(self, stages: Stages, tasks: Sequence[Any]) -> Iterator[LocalRun]:
        """See StageEngine."""
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
        """See StagedRun."""
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
