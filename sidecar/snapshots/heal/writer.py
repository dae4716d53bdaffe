"""Writes healed snapshots on threads: each waits for the disk, none for another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sidecar.errors import PartitionError
from sidecar.host.log_dir_lock import LogDirLock
from sidecar.host.placing import place_snapshot, sync_directory
from sidecar.logformat.names import Suffix, file_name
from sidecar.snapshots.heal.plan import Healing

THREADS: Final = 8
WAITING: Final = 64
"""Partitions whose files are not written yet; bounds memory."""


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """Content for `<offset>.snapshot`. `aside_suffix`: what the file that it replaces is kept as, "" if there is none."""

    offset: int
    content: bytes
    aside_suffix: str = ""


class HealWriter:
    """A context manager. Takes a partition's snapshots, and enters into its `Healing` what came of them."""

    def __init__(self, locks: Mapping[Path, LogDirLock]) -> None:
        self._locks = locks
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="heal")
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)

    def write(self, healing: Healing, snapshots: Sequence[NewSnapshot]) -> None:
        """Write them in ascending order, then make their names durable. Raises LogDirRefused once a lock is lost."""
        self._waiting.append(self._pool.submit(self._write, healing, snapshots))
        while len(self._waiting) > WAITING:
            self._waiting.popleft().result()

    def finish(self) -> None:
        """Wait for everything. Raises LogDirRefused."""
        while self._waiting:
            self._waiting.popleft().result()

    def _write(self, healing: Healing, snapshots: Sequence[NewSnapshot]) -> None:
        log = healing.plan.log
        self._locks[log.files.log_dir].require_held()
        with _problem_of(healing):
            _place_all(healing, snapshots)
        # Also when one could not be placed: those before it are reported as done.
        with _problem_of(healing):
            sync_directory(log.files.directory)


def _place_all(healing: Healing, snapshots: Sequence[NewSnapshot]) -> None:
    log = healing.plan.log
    bases = sorted({log.first_offset, *log.bases})
    for snapshot in snapshots:
        # A snapshot at the log's end has no .log of that name: the segment it ends is its neighbour.
        base = max(base for base in bases if base <= snapshot.offset)
        neighbour = log.files.directory / file_name(base, Suffix.LOG)
        path = log.snapshot_path(snapshot.offset)
        place_snapshot(path, snapshot.content, neighbour, aside_suffix=snapshot.aside_suffix)
        (healing.replaced if snapshot.aside_suffix else healing.created).append(snapshot.offset)


@contextmanager
def _problem_of(healing: Healing) -> Iterator[None]:
    try:
        yield
    except PartitionError as error:
        healing.problem = healing.problem or str(error)
