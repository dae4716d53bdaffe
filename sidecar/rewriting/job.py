"""The compaction of one partition as a value: what goes in, what comes out, and what that adds up to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from producer_state.replay import CompletedTransaction
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rewrite import RewriteCounts
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.scan import DATA, SplitScan, TransactionEvents
from sidecar.compaction.segments import SegmentInput, Split, largest_index_bytes
from sidecar.compaction.verdicts import SplitVerdicts, judge_splits
from sidecar.errors import PartitionError
from sidecar.host import process_store
from sidecar.logformat.batches import BatchColumns
from sidecar.logformat.window import ReadAt
from sidecar.model import SegmentFiles
from sidecar.snapshots.tasks import LocalSegment


class CompactionSource(Protocol):
    """The batches `[base_offset, end_offset)`; goes through pickle."""

    @property
    def name(self) -> str:
        """For messages: a path or a key."""

    @property
    def base_offset(self) -> int:
        """As in its name."""

    @property
    def end_offset(self) -> int:
        """The base of the next segment."""

    @property
    def size_bytes(self) -> int:
        """As listed or committed."""

    @property
    def last_modified_ms(self) -> int:
        """The time of the broker's file, -1 if unknown."""

    @property
    def forgets_below(self) -> bool:
        """See `SegmentInput`."""

    def opened(self) -> AbstractContextManager[SegmentInput]:
        """The segment as the stages read it. Raises SegmentChanged if it is not the listed one, PartitionError, StoreError."""


def input_of(source: CompactionSource, read_at: ReadAt = lambda _position, _buffer: 0) -> SegmentInput:
    """The segment, read by a function that the caller has. By default for planning, where only its numbers count."""
    return SegmentInput(
        source.base_offset,
        source.end_offset,
        source.size_bytes,
        read_at,
        file=source.name,
        last_modified_ms=source.last_modified_ms,
        index_bytes=largest_index_bytes(source.size_bytes),
        forgets_below=source.forgets_below,
    )


SourceT = TypeVar("SourceT", bound=CompactionSource, covariant=True)


@dataclass(frozen=True, slots=True)
class LogFile:
    """The batches `[base_offset, end_offset)`: the first `size_bytes` bytes of a file.

    `growing`: the active segment of a running broker, which may have become longer. `read_bytes_per_s`: the limit of all
    processes that read now, None for none; where `run` reads itself, its own limit counts.
    """

    forgets_below: ClassVar = False
    path: Path
    base_offset: int
    end_offset: int
    size_bytes: int
    mtime_ns: int
    growing: bool = False
    read_bytes_per_s: int | None = None

    @classmethod
    def of(cls, segment: SegmentFiles) -> LogFile:
        log = segment.log
        return cls(log.path, segment.base_offset, segment.end_offset, log.size_bytes, log.mtime_ns)

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def last_modified_ms(self) -> int:
        return self.mtime_ns // 1_000_000

    @contextmanager
    def opened(self) -> Iterator[SegmentInput]:
        """The segment as the stages read it. Raises SegmentChanged if it is not the listed one, PartitionError."""
        segment = LocalSegment(str(self.path), self.size_bytes, self.growing)
        with process_store.disk_turn(self.path), segment.opened() as read_at:
            yield input_of(self, process_store.disk_reads(self.read_bytes_per_s).paced(read_at))


Verdicts = npt.NDArray[np.uint8]
"""By batch of a split, not 0 where a transaction decides against it; empty where all are 0."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `[begin, end)` of a segment, whole batches, and the transactional and control batches among them."""

    begin: int
    end: int
    batch_count: int
    events: TransactionEvents


class Cutter:
    """Cuts the batches of a segment into pieces of a size."""

    def __init__(self, split_bytes: int) -> None:
        self._split_bytes = split_bytes
        self._pieces: list[Piece] = []
        self._begin = self._end = self._batches = 0
        self._events: list[TransactionEvents] = []

    def add(self, columns: BatchColumns) -> None:
        while len(columns):
            rows = int(np.searchsorted(columns.position, self._begin + self._split_bytes))
            taken = columns[:rows]
            if len(taken):
                self._events.append(TransactionEvents.of(taken, self._batches))
                self._batches += len(taken)
                self._end = int(taken.position[-1]) + int(taken.size_bytes[-1])
            if rows < len(columns):
                self._cut()
            columns = columns[rows:]

    def _cut(self) -> None:
        self._pieces.append(Piece(self._begin, self._end, self._batches, TransactionEvents.joined(self._events)))
        self._begin, self._batches, self._events = self._end, 0, []

    def finish(self) -> tuple[Piece, ...]:
        if self._end > self._begin:
            self._cut()
        return tuple(self._pieces)


def planned_pieces(size_bytes: int, split_bytes: int) -> tuple[Piece, ...]:
    """As many pieces as a `Cutter` makes at most of so many bytes, for planning before any header is read."""
    begins = range(0, size_bytes, split_bytes)
    return tuple(
        Piece(begin, min(begin + split_bytes, size_bytes), 0, TransactionEvents.joined([])) for begin in begins
    )


def padded(pieces: Sequence[Piece], size_bytes: int, split_bytes: int) -> tuple[Piece, ...]:
    """As many as were planned: empty ones follow, where batches are large."""
    empty = Piece(size_bytes, size_bytes, 0, TransactionEvents.joined([]))
    return (*pieces, *[empty] * (len(planned_pieces(size_bytes, split_bytes)) - len(pieces)))


@dataclass(frozen=True, slots=True, eq=False)
class SurveyedSegment:
    """A segment whose headers have been read. `pieces`: as many as were planned, see `padded`.

    `completed`: the transactions that ended in it, and those that were open at its end. `verdicts`: by piece; those of markers
    count for nothing, because they depend on data of other segments. `crc32c`: what all its bytes must have, as committed.
    """

    segment: SegmentInput
    crc32c: int
    pieces: tuple[Piece, ...]
    completed: tuple[CompletedTransaction, ...]
    verdicts: tuple[SplitVerdicts, ...]


class SegmentSurvey(Protocol):
    """Reads the headers of a segment in the task that scans it, so that its bytes are fetched once; goes through pickle.

    Both raise PartitionError, StoreError, StagingFull. `threads`: for requests.
    """

    def fetch(self, threads: Executor) -> None:
        """What can be done before the segment's turn; there may be nothing."""

    def __call__(self, threads: Executor) -> AbstractContextManager[SurveyedSegment]:
        """The headers; the bytes can be read within the context."""


HASH_KEY_BYTES: Final = 16
"""Of SipHash, by which keys are compared: so that no outsider can choose keys that collide."""


@dataclass(frozen=True, slots=True, eq=False)
class CompactionJob(Generic[SourceT]):
    """Segments, ascending and without a gap, all of them decided, and what is known of them before they are read.

    `pieces`: by file, what each may be split into. `completed`: the transactions that ended in the range or overlap it; more
    do no harm. `last_batches`: of the producers known at the end of the range. `hash_key`: `HASH_KEY_BYTES` random ones.
    `start_offset`: of the log; records below it are deleted, they neither compete nor stay. `first_dirty_offset`: what lies
    below has been compacted before, which decides on tombstones of formats 0 and 1 (None: nothing has).

    `surveys`: by file, who reads its headers while it is scanned; then `pieces` are `planned_pieces`, and `completed` is empty,
    until `as_surveyed`. Empty where the headers have been read.
    """

    files: tuple[SourceT, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    completed: tuple[CompletedTransaction, ...]
    rules: CompactionRules
    last_batches: LastBatches
    hash_key: bytes
    start_offset: int = 0
    first_dirty_offset: int | None = None
    surveys: tuple[SegmentSurvey, ...] = ()

    def as_surveyed(
        self, scans: Sequence[SplitScan], completed: Iterable[CompletedTransaction], judged: Mapping[int, Verdicts]
    ) -> tuple[CompactionJob[SourceT], tuple[SplitVerdicts, ...]]:
        """The job with what its scans found, and its verdicts. `scans`: of all splits, in order. Raises PartitionError.

        `completed`: of the segments. `judged`: by number of a split, the verdicts by which it was scanned, where any is not 0.
        Each segment was judged with the transactions that it can see; all of them together must come to the same.
        """
        pieces: list[list[Piece]] = [[] for _ in self.files]
        for scan in scans:
            split = scan.split
            pieces[split.segment].append(Piece(split.begin, split.end, scan.batch_count, scan.events))
        job = replace(self, pieces=tuple(map(tuple, pieces)), completed=tuple(dict.fromkeys(completed)), surveys=())
        verdicts = job.verdicts()
        for scan, now in zip(scans, verdicts, strict=True):
            data = scan.events.batch[scan.events.kind == DATA]
            before = judged.get(scan.split.number)
            if not np.array_equal(_chosen(before, data), _chosen(now.by_batch, data)):
                raise PartitionError(
                    f"{self.files[scan.split.segment].name}: the segment's own transactions and those of the whole "
                    "log differ on which records are aborted. Nothing was replaced. Run verify --deep to see "
                    "whether the archive is damaged"
                )
        return job, verdicts

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def splits(self) -> tuple[Split, ...]:
        found: list[Split] = []
        for index, pieces in enumerate(self.pieces):
            found += [Split(len(found) + at, index, piece.begin, piece.end) for at, piece in enumerate(pieces)]
        return tuple(found)

    def verdicts(self) -> tuple[SplitVerdicts, ...]:
        return tuple(
            judge_splits(
                [(piece.events, piece.batch_count) for pieces in self.pieces for piece in pieces],
                self.completed,
                self.files[0].base_offset,
                self.files[-1].end_offset,
                spares_deletes=self.rules.spares_deletes,
            )
        )


def _chosen(by_batch: Verdicts | None, batches: npt.NDArray[np.int32]) -> Verdicts:
    if by_batch is None or not len(by_batch):
        return np.zeros(len(batches), dtype=np.uint8)
    return by_batch[batches]


@dataclass(frozen=True, slots=True)
class RewrittenPiece:
    """The first `size_bytes` bytes of a part. Behind them the part may hold an ending that this output does not need."""

    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CompactedOutput(Generic[SourceT]):
    """One output segment `[base_offset, end_offset)`, made of `sources`.

    `pieces`: its bytes, in order: pieces of parts, and sources of which nothing is lost. `unchanged`: it is its one source,
    byte by byte. `transactions`: the aborted ones whose marker it still holds. `crc32c`: of all its bytes, as they were read or
    written by the stages.
    """

    sources: tuple[SourceT, ...]
    pieces: tuple[RewrittenPiece | SourceT, ...]
    unchanged: bool
    size_bytes: int
    crc32c: int
    counts: RewriteCounts
    transactions: tuple[CompletedTransaction, ...]

    @property
    def base_offset(self) -> int:
        return self.sources[0].base_offset

    @property
    def end_offset(self) -> int:
        return self.sources[-1].end_offset

    def to_json(self) -> dict[str, Any]:
        """Names are stable."""
        return {
            "base_offset": self.base_offset,
            "end_offset": self.end_offset,
            "sources": [source.base_offset for source in self.sources],
            "size_bytes": self.size_bytes,
            "unchanged": self.unchanged,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionFigures(Generic[SourceT]):
    """Bytes are those of `.log` files or objects; records count markers.

    `unkeyed`: records without key, which compaction drops. `malformed_versions`: records whose version header is unusable.
    `deleted`: records below the log start (DeleteRecords), which compaction drops without comparing them.
    """

    outputs: tuple[CompactedOutput[SourceT], ...] = ()
    records_before: int = 0
    unkeyed: int = 0
    malformed_versions: int = 0
    deleted: int = 0

    @property
    def bytes_before(self) -> int:
        return sum(source.size_bytes for output in self.outputs for source in output.sources)

    @property
    def bytes_after(self) -> int:
        return sum(output.size_bytes for output in self.outputs)

    @property
    def records_after(self) -> int:
        return self.counts.kept_records

    @property
    def counts(self) -> RewriteCounts:
        """What became of the batches of the segments that were rewritten."""
        return sum((output.counts for output in self.outputs), RewriteCounts())

    def figures_as_json(self) -> dict[str, Any]:
        """Names are stable."""
        return {
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "records_before": self.records_before,
            "records_after": self.records_after,
            "unkeyed_records": self.unkeyed,
            "malformed_versions": self.malformed_versions,
            "deleted_records": self.deleted,
        }
