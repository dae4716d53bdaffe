"""Archived segments as what is compacted: values that are read out of the store in any process.

The task that scans a segment reads its headers first: where it is split, and which records are aborted. Each segment is replayed
from the archived state at its base, so that no task waits for another.
"""

import tempfile
from collections.abc import Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Final

from producer_state.replay import CompletedTransaction
from producer_state.table import ProducerTable
from sidecar.archive.bundle import log_size_bytes
from sidecar.archive.keys import below
from sidecar.compaction.segments import SegmentInput
from sidecar.compaction.verdicts import judge_splits
from sidecar.errors import CorruptFile, PartitionError
from sidecar.host import process_store
from sidecar.logformat.batches import HEADERS_WINDOW_BYTES, BatchColumns, SegmentScanner
from sidecar.logformat.files import PositionalFile, cannot_be_written
from sidecar.logformat.window import ReadAt
from sidecar.model import ArchivedSegment, ObjectKey
from sidecar.rewriting.job import Cutter, SurveyedSegment, input_of, padded
from sidecar.rewriting.work_files import WorkFile, named_when_whole, nameless_file
from sidecar.segment.archived_objects import read_committed, reader, table_at_end
from sidecar.segment.replaying import replayed
from sidecar.snapshots.tasks import LocalSegment
from sidecar.store_settings import StoreSettings

LAST_MODIFIED: Final = "last_modified_ms"
"""Strategy parameter of compacted segments: the file time of the newest source, as a cleaner passes it on."""

_NS_PER_MS = 1_000_000
_TIME_DIGITS_MAX = 18
"""Such times fit into 64 bits."""


class Copy(Enum):
    """Of an object, in a file. KEPT: once fetched it stays in the work directory. SCANNED: as long as it is scanned."""

    KEPT = "kept"
    SCANNED = "scanned"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """A `CompactionSource`: the `.log` object of a live segment.

    `work_dir`: a directory for work files that all tasks see; None: each task has its own temporary one.
    """

    store: StoreSettings
    root: str
    segment: ArchivedSegment
    work_dir: Path | None = None
    copy: Copy = Copy.NONE

    @property
    def name(self) -> ObjectKey:
        return below(self.root, self.segment.log_key)

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @property
    def end_offset(self) -> int:
        return self.segment.end_offset

    @property
    def size_bytes(self) -> int:
        return log_size_bytes(self.segment)

    @property
    def last_modified_ms(self) -> int:
        """The time of the broker's file, or of the newest one of which this segment was compacted; -1 if unknown."""
        if self.segment.source_mtime_ns is not None:
            return self.segment.source_mtime_ns // _NS_PER_MS
        text = self.segment.strategy_parameters.get(LAST_MODIFIED, "")
        return int(text) if text.isdecimal() and len(text) <= _TIME_DIGITS_MAX else -1

    @property
    def forgets_below(self) -> bool:
        """So it is where a log goes on that was restored without producers: the replay that gave its snapshot began there."""
        return self.segment.snapshot.start_offset == self.base_offset

    @contextmanager
    def opened(self) -> Iterator[SegmentInput]:
        """See CompactionSource."""
        with self._read() as read_at:
            yield input_of(self, read_at)

    def fetch(self, threads: Executor) -> None:
        """Have the copy that stays, if there is to be one. Raises StagingFull, CorruptFile for a short object, StoreError."""
        copy = self._copy_path
        if copy is not None and not copy.exists():
            with named_when_whole(copy) as file:
                self._fetch_into(file, threads)

    @contextmanager
    def fetched(self, threads: Executor) -> Iterator[ReadAt]:
        """The object for what reads it twice: as a file of this machine, if `copy` allows it. Raises as `fetch`."""
        if self.copy is not Copy.SCANNED:
            self.fetch(threads)
            try:
                with self._read() as read_at:
                    yield read_at
            except PartitionError:
                self.forget_copy()  # it may be what is damaged
                raise
            return
        place = self.work_dir or Path(tempfile.gettempdir())
        with nameless_file(place) as file:
            self._fetch_into(file, threads)
            with cannot_be_written(place):  # a disk that fails may refuse to read, too
                yield PositionalFile(file.file.fileno())

    def _fetch_into(self, file: WorkFile, threads: Executor) -> None:
        """Fill the empty file, each byte requested once."""
        store = process_store.store_of(self.store)

        def fetch(begin: int) -> None:
            file.write_at(begin, read_committed(store, self.name, self.size_bytes, begin, RANGE_BYTES))

        ranges = list[Future[None]]()
        try:
            for begin in range(0, self.size_bytes, RANGE_BYTES):
                ranges.append(threads.submit(fetch, begin))
            for found in ranges:
                found.result()
        finally:
            # None may write to a file that is closed. Trap: of a pool that was shut down, cancelled ones never end.
            wait([found for found in ranges if not found.cancel()])

    def forget_copy(self) -> None:
        """Take the copy away. What cannot be removed now is with the directory."""
        if self._copy_path is not None:
            with suppress(OSError):
                self._copy_path.unlink(missing_ok=True)

    @property
    def _copy_path(self) -> Path | None:
        if self.work_dir is None or self.copy is not Copy.KEPT:
            return None
        # Of a copied archive, two lineages have the same segment ids.
        return self.work_dir / f"{sha256(self.name.encode()).hexdigest()}.copy"

    def _read(self) -> AbstractContextManager[ReadAt]:
        """From the copy, if there is one. Reading raises StoreError."""
        copy = self._copy_path
        if copy is not None and copy.exists():
            return LocalSegment(str(copy), self.size_bytes).opened()
        return nullcontext(reader(process_store.store_of(self.store), self.name, self.size_bytes))


RANGE_BYTES: Final = 8 * 1024 * 1024
"""Of one request. As many as there are threads are in memory."""

_WINDOW_BYTES: Final = 4 * 1024 * 1024
_AHEAD_BYTES: Final = 256 * 1024
"""Of the next segment, at once: transactions that are open at a segment's end mostly end in the first batches behind it."""
_AHEAD_BATCHES: Final = 4
_REMEDY: Final = "run verify --deep to see whether the object is damaged"


@dataclass(frozen=True, slots=True, eq=False)
class ArchivedSurvey:
    """A `SegmentSurvey` of `log`, number `number` of the partition's `live` segments."""

    log: ArchivedLog
    number: int
    live: tuple[ArchivedSegment, ...]
    split_bytes: int
    spares_deletes: bool = False

    def fetch(self, threads: Executor) -> None:
        """See `SegmentSurvey`."""
        self.log.fetch(threads)

    @contextmanager
    def __call__(self, threads: Executor) -> Iterator[SurveyedSegment]:
        """See `SegmentSurvey`."""
        log, cutter, completed = self.log, Cutter(self.split_bytes), list[CompletedTransaction]()
        with log.fetched(threads) as read_at:
            # The scan that follows proves the bytes of a copy; without one they are requested again.
            is_copy = log.copy is not Copy.NONE
            window_bytes = HEADERS_WINDOW_BYTES if is_copy else _WINDOW_BYTES
            for columns, ended in self._replayed(self.number, read_at, window_bytes, check_crc=not is_copy):
                cutter.add(columns)
                completed += ended
            pieces = padded(cutter.finish(), log.size_bytes, self.split_bytes)
            if any(len(piece.events) for piece in pieces):
                completed += self._ended_later()
            verdicts = judge_splits(
                [(piece.events, piece.batch_count) for piece in pieces],
                completed,
                log.base_offset,
                log.end_offset,
                spares_deletes=self.spares_deletes,
            )
            checksum = log.segment.parts[0].crc32c
            yield SurveyedSegment(input_of(log, read_at), checksum, pieces, tuple(completed), tuple(verdicts))

    def _ended_later(self) -> Iterator[CompletedTransaction]:
        """What ends above this segment, up to where the transactions have ended that are open at its end.

        These batches are proven by their own checksums alone: of their offsets and epochs nothing here depends.
        """
        store = process_store.store_of(self.log.store)
        pending = set(table_at_end(store, self.log.root, self.live[self.number]).open_transactions().items())
        for number in range(self.number + 1, len(self.live)):
            if not pending:
                return
            following = replace(self.log, segment=self.live[number])
            with following.opened() as segment:
                for _, ended in self._replayed(number, segment.read_at, _AHEAD_BYTES, _AHEAD_BATCHES):
                    yield from ended
                    pending -= {(transaction.producer_id, transaction.first_offset) for transaction in ended}
                    if not pending:
                        return

    def _replayed(
        self,
        number: int,
        read_at: ReadAt,
        window_bytes: int,
        max_batches: int = 65_536,
        *,
        check_crc: bool = True,
    ) -> Iterator[tuple[BatchColumns, tuple[CompletedTransaction, ...]]]:
        """The headers of a live segment, and the transactions that end there."""
        log = replace(self.log, segment=self.live[number])
        table, before = ProducerTable.blank(log.base_offset), self.live[number - 1] if number else None
        if before is not None and before.end_offset == log.base_offset:
            table = table_at_end(process_store.store_of(log.store), log.root, before)
        scanner = SegmentScanner(
            read_at,
            log.size_bytes,
            base_offset=log.base_offset,
            check_crc=check_crc,
            file=log.name,
            window_bytes=window_bytes,
            max_batches=max_batches,
        )
        last_offset = -1
        for columns in scanner:
            table, ended = replayed(table, columns, log.name, _REMEDY)
            last_offset = int(columns.last_offset[-1])
            yield columns, ended
        scanner.require_exact()
        if last_offset >= log.end_offset:
            raise CorruptFile(f"holds offset {last_offset}, but the segment ends at {log.end_offset}", file=log.name)
