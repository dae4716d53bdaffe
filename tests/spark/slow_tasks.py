"""Tasks that wait for the test, or end badly: in a module, so that workers can import them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sidecar.ports import Row, StagedRun, StageEngine, Stages, TaskEngine

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


@dataclass(frozen=True)
class Gate:
    """Whoever comes leaves the id of its process, and waits until the gate is open."""

    directory: Path

    @property
    def waiting(self) -> list[int]:
        """Processes that have come, in any order, and how often is not told."""
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
        deadline = time.monotonic() + _WAIT_S  # noqa: TID251
        while not (self.directory / "open").exists():
            if time.monotonic() > deadline:  # noqa: TID251
                raise TimeoutError("the gate was not opened")
            time.sleep(0.02)  # noqa: TID251
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

    def run(self, function: Callable[[Any], bytes], tasks: Sequence[Any]) -> Iterator[bytes]:
        """See `TaskEngine`."""
        return self.engine.run(Gated(function, self.gate), tasks)


@dataclass(frozen=True)
class GatedStages:
    """A `StageEngine` whose third stage waits: all that it needs has been made, and lies on the executors."""

    engine: StageEngine
    gate: Gate

    @property
    def cores(self) -> int:
        """See `StageEngine`."""
        return self.engine.cores

    @contextmanager
    def staged(self, stages: Stages, tasks: Sequence[Any]) -> Iterator[GatedRun]:
        """See `StageEngine`."""
        with self.engine.staged(stages, tasks) as run:
            yield GatedRun(run, self.gate)


@dataclass(frozen=True)
class GatedRun:
    """A `StagedRun`."""

    run: StagedRun
    gate: Gate

    @property
    def answers(self) -> Sequence[Any]:
        """See `StagedRun`."""
        return self.run.answers

    def third(self, function: Callable[[Iterable[Row], Any], Iterator[Any]], plans: Sequence[Any]) -> list[Any]:
        """See `StagedRun`."""
        return self.run.third(Gated(function, self.gate), plans)
