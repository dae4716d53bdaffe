"""The three stages as tasks: what an engine runs, in any process. Errors that lie in the data are answers."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sidecar.compaction.inflating import Inflater
from sidecar.compaction.key_table import KeyTable, reduce_blobs
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rewrite import Ending, RewriteCounts, rewrite_split
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.scan import SplitScan, scan_split
from sidecar.compaction.segments import Split
from sidecar.errors import PartitionError, StagingFull
from sidecar.pipeline.compaction.log_file import LogFile
from sidecar.pipeline.compaction.output_files import cannot_be_written, write_all
from sidecar.ports import TO_DRIVER, Row

Verdicts = npt.NDArray[np.uint8]
"""By batch of a split, not 0 where a transaction decides against it; empty where all are 0."""


@dataclass(frozen=True, slots=True, eq=False)
class ScanTask:
    """Scan these splits, adjacent ones, into one key table of so many slots."""

    rules: CompactionRules
    hash_key: bytes
    bucket_bits: int
    slots: int
    splits: tuple[tuple[LogFile, Split, Verdicts], ...]


def scan(task: ScanTask) -> Iterator[Row]:
    """Stage one. Rows (bucket, blob), and to the driver the `SplitScan`s, or the PartitionError that ended them."""
    waiting: list[Row] = []
    table = KeyTable(
        task.rules,
        task.hash_key,
        lambda bucket, blob: waiting.append((bucket, blob)),
        slots=task.slots,
        bucket_bits=task.bucket_bits,
    )
    inflater, scans = Inflater(), []
    for file, split, verdicts in task.splits:
        try:
            with file.opened() as segment:
                scans.append(scan_split(segment, split, table, inflater, verdicts))
        except PartitionError as error:
            yield TO_DRIVER, error
            return
        yield from waiting
        waiting.clear()
    table.emit()
    yield from waiting
    yield TO_DRIVER, tuple(scans)


@dataclass(frozen=True, slots=True)
class WinnerCounts:
    """How many records of each split win, as far as one bucket decides it."""

    by_split: dict[int, int]


@dataclass(frozen=True, slots=True)
class Reduction:
    """Stage two, for the blobs of one bucket: rows (split, ordinals of winners), and `WinnerCounts` to the driver."""

    rules: CompactionRules
    split_count: int
    bucket_bits: int

    def __call__(self, blobs: Sequence[bytes]) -> Iterator[Row]:
        """See Stages.second."""
        found = reduce_blobs(blobs, self.rules, self.split_count, self.bucket_bits)
        yield TO_DRIVER, WinnerCounts({winners.split: len(winners.ordinals) // 4 for winners in found})
        yield from ((winners.split, winners.ordinals) for winners in found)


@dataclass(frozen=True, slots=True, eq=False)
class SplitRewriting:
    """What stage three must know of a split besides its winners."""

    file: LogFile
    scan: SplitScan
    ending: Ending
    verdicts: Verdicts
    keeps_legacy_tombstones: bool


@dataclass(frozen=True, slots=True)
class RewrittenSplit:
    """The part file of split `number` has so many bytes."""

    number: int
    counts: RewriteCounts
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Rewriting:
    """Stage three. `parts`: an existing directory for the part files; None: they are only measured."""

    rules: CompactionRules
    last_batches: LastBatches
    parts: Path | None
    inflater: Inflater = field(default_factory=Inflater, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """An inflater stays in its process."""
        return Rewriting, (self.rules, self.last_batches, self.parts)

    def __call__(self, rows: Iterable[Row], plan: Sequence[SplitRewriting]) -> Iterator[Any]:
        """See StagedRun.third; `RewrittenSplit`s, or the error that ended them."""
        winners: defaultdict[int, list[bytes]] = defaultdict(list)
        for number, ordinals in rows:
            winners[number].append(ordinals)
        for todo in plan:
            try:
                yield self._rewrite(todo, winners.pop(todo.scan.split.number, []))
            except (PartitionError, StagingFull) as error:
                yield error
                return

    def _rewrite(self, todo: SplitRewriting, winners: list[bytes]) -> RewrittenSplit:
        number = todo.scan.split.number
        part = _Part(None if self.parts is None else part_path(self.parts, number))
        with todo.file.opened() as segment, part:
            counts = rewrite_split(
                segment,
                todo.scan,
                winners,
                self.rules,
                part.write,
                ending=todo.ending,
                inflater=self.inflater,
                verdicts=todo.verdicts,
                last_batches=self.last_batches,
                keeps_legacy_tombstones=todo.keeps_legacy_tombstones,
            )
        return RewrittenSplit(number, counts, part.size_bytes)


def part_path(parts: Path, number: int) -> Path:
    """Where the batches of a split wait to be joined."""
    return parts / f"{number:08d}.part"


class _Part:
    """A file that has its name only when it is whole: tasks may run twice, and at the same time."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.size_bytes = 0

    def __enter__(self) -> None:
        if self._path is not None:
            with cannot_be_written(self._path):
                self._file = tempfile.NamedTemporaryFile(dir=self._path.parent, delete=False, buffering=0)

    def write(self, batches: memoryview) -> None:
        self.size_bytes += len(batches)
        if self._path is not None:
            with cannot_be_written(self._path):
                write_all(self._file.file, batches)

    def __exit__(self, kind: type[BaseException] | None, *_exception: object) -> None:
        if self._path is None:
            return
        self._file.close()
        if kind is None:
            Path(self._file.name).replace(self._path)
        else:
            Path(self._file.name).unlink()
