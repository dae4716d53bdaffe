"""Tasks that wait for the test, or end badly: in a module, so that workers can import them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sidecar.engine_ports import Row, StagedRun, StageEngine, Stages, TaskEngine

_WAIT_S = 120.0


def doubled(task: int) -> bytes:
    """The plainest task."""
    return b"%d" % (2 * task)


def greedy(task: int) -> bytes:
    """Takes more than it may."""
    return b"%d" % len(bytearray(4 << 30))


def killed(task: int) -> bytes:
    """As the kernel does where memory has run out."""
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def _wait(until: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _WAIT_S  # noqa: TID251
    while not until():
        if time.monotonic() > deadline:  # noqa: TID251
            raise TimeoutError(otherwise)
        time.sleep(0.02)  # noqa: TID251


@dataclass(frozen=True)
class Gate:
    """Whoever comes leaves the id of its process, and waits until the gate is open."""

    directory: Path

    @property
    def waiting(self) -> list[int]:
        """Processes that have come, in any order, and how often is not reported."""
        return [int(path.name) for path in self.directory.iterdir() if path.name.isdecimal()]

    @property
    def passed(self) -> int:
        """How often somebody went through."""
        return len(list(self.directory.glob("passed-*")))

    def open(self) -> None:
        """Lets all through from now on."""
        (self.directory / "open").touch()

    def __call__(self) -> None:
        (self.directory / str(os.getpid())).touch()
        _wait((self.directory / "open").exists, "the gate was not opened")
        (self.directory / f"passed-{os.getpid()}-{time.monotonic_ns()}").touch()


@dataclass(frozen=True)
class Gated:
    """A task's function behind a gate."""

    function: Callable[..., Any]
    gate: Gate

    def __call__(self, *arguments: Any) -> Any:
        self.gate()
        return self.function(*arguments)


@dataclass(frozen=True)
class GatedEngine:
    """A `TaskEngine` all of whose tasks wait."""

    engine: TaskEngine
    gate: Gate

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any], *, uploads: bool = False) -> Generator[Any]:
        """See `TaskEngine`."""
        return self.engine.run(Gated(function, self.gate), tasks, uploads=uploads)


@dataclass(frozen=True)
class Straggling:
    """A third stage one of whose tasks does not end before it has been begun a second time: only speculation does that."""

    function: Callable[[Iterable[Row], Any], Iterator[Any]]
    directory: Path

    def __call__(self, rows: Iterable[Row], plan: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if plan and context is not None and self._is_straggler(context.partitionId()):
            (self.directory / f"attempt-{context.taskAttemptId()}").touch()
            _wait(lambda: len(list(self.directory.glob("attempt-*"))) > 1, "no second attempt was begun")
        return self.function(rows, plan)

    def _is_straggler(self, partition: int) -> bool:
        """The first task that comes with work to do is the one."""
        with suppress(FileExistsError), (self.directory / "straggler").open("x") as file:
            file.write(str(partition))
        return (self.directory / "straggler").read_text() == str(partition)


@dataclass(frozen=True)
class SlowStages:
    """A `StageEngine` with something around its third stage: all that this needs has been made, and lies on the executors."""

    engine: StageEngine
    around: Callable[[Callable[..., Any]], Callable[..., Any]]

    @property
    def cores(self) -> int:
        """See `StageEngine`."""
        return self.engine.cores

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any], *, uploads: bool = False) -> Generator[Any]:
        """See `TaskEngine`."""
        return self.engine.run(function, tasks, uploads=uploads)

    @contextmanager
    def staged(self, stages: Stages, tasks: Sequence[Any]) -> Iterator[StagedRun]:
        """See `StageEngine`."""
        with self.engine.staged(stages, tasks) as run:
            yield replace(run, third=lambda function, *others: run.third(self.around(function), *others))
