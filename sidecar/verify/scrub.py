"""Checks of many segments, one implementation under two drivers: threads of this process, or an engine's tasks."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Final, Protocol

from sidecar.archive.bundle import log_size_bytes
from sidecar.engine_ports import TaskEngine, grouped
from sidecar.errors import FROM_STORE, StoreError, StoreUnavailable
from sidecar.host.process_store import store_of
from sidecar.model import ArchivedSegment
from sidecar.ports import MIB, ObjectStore
from sidecar.store_settings import StoreSettings
from sidecar.verify.segments import Problem, ProblemKind, check_segment_objects

PRELOADED: Final = ("sidecar.verify.scrub", "sidecar.snapshots.preloaded")
"""What processes that check segments import before they are forked."""

_TASK_BYTES: Final = 64 * MIB
_TASK_SEGMENTS: Final = 256


@dataclass(frozen=True, slots=True)
class Check:
    """One segment of the lineage `root`, to be checked."""

    root: str
    segment: ArchivedSegment


@dataclass(frozen=True, slots=True)
class Checked:
    """What is wrong with a segment; or why nothing can be said about it, `retryable` if the store gave no answer."""

    problems: tuple[Problem, ...] = ()
    unread: str = ""
    retryable: bool = False

    def require_read(self) -> None:
        """Raises StoreError if nothing can be said."""
        if self.unread:
            raise StoreUnavailable(self.unread) if self.retryable else StoreError(self.unread)


class Checks(Protocol):
    """A driver."""

    def run(self, checks: Sequence[Check]) -> Generator[Checked, None, None]:
        """The findings in the order of the checks, as they come."""


@dataclass(frozen=True, slots=True)
class ChecksInThreads:
    """Runs checks in threads of this process: the store's answers are waited for, and the kernels release the GIL."""

    store: ObjectStore
    workers: int
    deep: bool

    def run(self, checks: Sequence[Check]) -> Generator[Checked, None, None]:
        def check(one: Check) -> Checked:
            return _checked(self.store, one, deep=self.deep)

        with ThreadPoolExecutor(self.workers, thread_name_prefix="verify") as pool:
            yield from pool.map(check, checks)


@dataclass(frozen=True, slots=True)
class ChecksOnEngine:
    """Runs deep checks as tasks, each process with a store of its own."""

    settings: StoreSettings
    engine: TaskEngine

    def run(self, checks: Sequence[Check]) -> Generator[Checked, None, None]:
        """See `Checks`. Raises what the engine raises."""
        groups = grouped(checks, lambda check: log_size_bytes(check.segment), _TASK_BYTES, _TASK_SEGMENTS)
        tasks = [ScrubTask(self.settings, group) for group in groups]
        for answer in self.engine.run(scrub, tasks):
            yield from _unpacked(answer)


@dataclass(frozen=True, slots=True)
class ScrubTask:
    """Read these segments to the last byte."""

    store: StoreSettings
    checks: tuple[Check, ...]


def scrub(task: ScrubTask) -> bytes:
    """What an engine runs. See `_unpacked`."""
    store = store_of(task.store)
    found: list[Checked] = []
    for one in task.checks:
        # Each attempt at a store that is gone takes minutes: the rest of the task would only repeat them.
        silent = next((before for before in found if before.retryable), None)
        found.append(silent or _checked(store, one, deep=True))
    return json.dumps([asdict(one) for one in found]).encode()


def _unpacked(answer: bytes) -> Iterator[Checked]:
    for found in json.loads(answer):
        problems = [Problem(ProblemKind(each["kind"]), each["key"], each["what"]) for each in found["problems"]]
        yield Checked(tuple(problems), found["unread"], found["retryable"])


def _checked(store: ObjectStore, check: Check, *, deep: bool) -> Checked:
    try:
        return Checked(check_segment_objects(store, check.root, check.segment, deep=deep))
    except FROM_STORE as error:
        return Checked(unread=str(error), retryable=error.retryable)
