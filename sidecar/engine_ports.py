"""What a command asks of who runs its tasks, as protocols: this process, or Spark."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Answer = TypeVar("Answer")
Item = TypeVar("Item")
Task = TypeVar("Task")


class TaskEngine(Protocol):
    """Runs many tasks that know nothing of each other: in this process, or on Spark."""

    def run(
        self, function: Callable[[Task], Answer], tasks: Sequence[Task], *, uploads: bool = False
    ) -> Generator[Answer]:
        """The function's answers in the order of the tasks, as they come; memory does not grow with their number.

        `function` must be importable by name, tasks and answers must go through pickle. What it raises ends the run; a worker that
        dies is a SidecarError. `uploads`: the tasks also write to the store; all of them read.
        """


def grouped(
    items: Iterable[Item], size_of: Callable[[Item], int], max_bytes: int, max_items: int
) -> Iterator[tuple[Item, ...]]:
    """The items in order, small ones together: up to so many bytes, and so many items. What is larger goes alone."""
    group: list[Item] = []
    group_bytes = 0
    for item in items:
        size_bytes = size_of(item)
        if group and (group_bytes + size_bytes > max_bytes or len(group) == max_items):
            yield tuple(group)
            group, group_bytes = [], 0
        group.append(item)
        group_bytes += size_bytes
    if group:
        yield tuple(group)


TO_DRIVER = -1
"""The number of rows that a stage addresses to the driver."""

Row = tuple[int, Any]
"""A number that says where it goes, and a value that goes through pickle. Engines are given bytes, see `exchange.staged`."""


@dataclass(frozen=True, slots=True)
class Stages:
    """The first two of three stages, as functions that are importable by name.

    `first(task)` yields rows numbered by bucket, in `[0, buckets)`; `second(bucket, values)` is called for each bucket that has
    some, with all its values in any order, and yields rows numbered by item. Both may yield rows `TO_DRIVER`. All rows of an
    item meet in one of `third_tasks` tasks.
    """

    first: Callable[[Any], Iterator[Row]]
    second: Callable[[int, Sequence[Any]], Iterator[Row]]
    buckets: int
    second_tasks: int
    third_tasks: int

    def second_task_of(self, bucket: int) -> int:
        """Adjacent buckets go to one task, which holds one bucket's values at a time; rows to the driver pass through the first."""
        return max(bucket, 0) * self.second_tasks // self.buckets

    def third_task_of(self, item: int) -> int:
        """Cyclic, shifted by one in each pass: adjacent items are apart, and so are every second ones.

        Rows to the driver have a task behind the last one.
        """
        if item == TO_DRIVER:
            return self.third_tasks
        return (item + item // self.third_tasks) % self.third_tasks


ThirdStage = Callable[[Iterable[Row], Any], Iterator[Any]]
"""By the rows of a third task and its plan, what it yields; importable by name."""


@dataclass(frozen=True)
class StagedRun:
    """Two stages that have run, and whose rows wait for the third.

    `answers`: the values of the rows to the driver, in any order. `third(function, plans, uploads)`: what the function yields for
    all third tasks, each with its plan; may be called again. `uploads`: see `TaskEngine`. `waiting_bytes`: what waits for the
    third stage in a file in the directory for work files.
    """

    answers: Sequence[Any]
    third: Callable[[ThirdStage, Sequence[Any], bool], list[Any]]
    waiting_bytes: int = 0


class StageEngine(TaskEngine, Protocol):
    """Also runs three stages with an exchange of rows between them."""

    @property
    def cores(self) -> int:
        """How many tasks run at once."""

    def staged(self, stages: Stages, tasks: Sequence[Any]) -> AbstractContextManager[StagedRun]:
        """Run the first two stages; what waits for the third is gone when the context ends."""


class CompactionEngines(Protocol):
    """Engines by the size of the work. What they hold is gone after `stop`, and comes back with the next use."""

    def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
        """An engine for so many bytes. Starts nothing yet. `local_files`: the work is on files of this machine."""

    def stop(self) -> None:
        """End what they hold, now; whoever still waits for it gets an error."""
