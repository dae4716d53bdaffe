"""The first read of a partition: headers only. Where splits may begin, what transactions decide, producer state at every base."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Final

from producer_state.compare import Allowance, Conformance, compare_snapshots
from producer_state.replay import CompletedTransaction
from producer_state.snapshot import CorruptSnapshot
from producer_state.table import ProducerTable
from sidecar.compaction.segments import MIB, SPLIT_BYTES
from sidecar.errors import CorruptFile, PartitionError, SegmentChanged
from sidecar.logformat.batches import HEADERS_WINDOW_BYTES, BatchColumns, ScanEnd, SegmentScanner, scan_file
from sidecar.logformat.files import read_regular
from sidecar.logformat.indexes.rebuild import IndexBuilder
from sidecar.logformat.leader_epochs import LeaderEpochs, epochs_of
from sidecar.logformat.names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    MAX_OFFSET,
    RECOVERY_POINT_CHECKPOINT,
    Suffix,
    file_name,
)
from sidecar.model import PartitionFiles
from sidecar.rewriting.job import Cutter, LogFile, Piece
from sidecar.rewriting.work_files import write_file
from sidecar.segment.producer_snapshot import state_at_log_start
from sidecar.segment.replaying import replayed, shows_cleaning
from sidecar.snapshots.disk_partition import DiskPartition, checkpointed
from sidecar.snapshots.jobs import Forgetting

_Scan = tuple[LogFile, SegmentScanner, Iterable[BatchColumns]]
"""A segment, what will know how it ended, and its headers."""

_THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class Survey:
    """All segments ascending, the last one active; `completed` are the transactions of the whole log.

    `pieces`: by segment. `last_stable_offset`: the first open transaction, or the log's end. `batch_epochs`: what the batches show.
    `remarks`: what an operator should know of the directory.
    """

    files: PartitionFiles
    segments: tuple[LogFile, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    completed: tuple[CompletedTransaction, ...]
    last_stable_offset: int
    batch_epochs: LeaderEpochs
    remarks: tuple[str, ...]

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].end_offset

    def ended_in(self, segment: LogFile) -> tuple[CompletedTransaction, ...]:
        """The transactions whose markers are in a segment."""
        bounds = segment.base_offset, segment.end_offset
        begin, end = (bisect_left(self.completed, bound, key=attrgetter("last_offset")) for bound in bounds)
        return self.completed[begin:end]

    def compactable(self, *, include_active: bool) -> int:
        """How many of the segments, from the first one on, may be compacted.

        Source: LogCleanerManager.cleanableOffsets, without lags.
        """
        # An empty active segment stays in any case: where the last batches are gone, its name alone says where the log ends.
        takes_active = include_active and self.segments[-1].size_bytes > 0
        candidates = self.segments if takes_active else self.segments[:-1]
        return sum(segment.end_offset <= self.last_stable_offset for segment in candidates)


def survey(files: PartitionFiles, forgetting: Forgetting, staging: Path, *, split_bytes: int = SPLIT_BYTES) -> Survey:
    """Read all batch headers, and write `<E>.snapshot` into `staging` for the end of every segment.

    A snapshot that exists in the directory and does not contradict the log is taken, without transactions that have ended: where
    a cleaner has been, it knows more than a replay. Raises CorruptFile, PartitionError, SegmentChanged, StagingFull.
    """
    if files.unstable:
        raise SegmentChanged(f"{files.directory}: a compaction is in progress there; copy it when that has ended")
    logs = _logs(files)
    return _Surveying(files, forgetting, staging, split_bytes).run(logs)


def _logs(files: PartitionFiles) -> list[LogFile]:
    """The files in order. The active one's end is not known yet: its base is used instead."""
    active = files.active_log
    if active is None or files.active_base_offset is None:
        raise PartitionError(
            f"{files.topic_partition}: no segments in {files.directory}; it must have .log files with the broker's names"
        )
    base = files.active_base_offset
    logs = [
        *map(LogFile.of, files.segments),
        LogFile(active.path, base, base, active.size_bytes, active.mtime_ns, growing=True),
    ]
    for before, after in pairwise(logs):
        if before.end_offset != after.base_offset:
            raise SegmentChanged(
                f"{files.directory}: the segment at {before.end_offset} vanished while it was listed; run again"
            )
    return logs


def _flushed_offset(files: PartitionFiles) -> int:
    """Below it a torn batch is damage. Read before the logs, to which a running broker appends.

    After a clean shutdown a broker truncates nothing at its start. Source: LogLoader.recoverLog.
    """
    if (files.log_dir / CLEAN_SHUTDOWN).exists():
        return MAX_OFFSET
    return checkpointed(files.log_dir / RECOVERY_POINT_CHECKPOINT).get(files.topic_partition, 0)


@dataclass(slots=True)
class _Surveying:
    files: PartitionFiles
    forgetting: Forgetting
    staging: Path
    split_bytes: int
    table: ProducerTable = field(default_factory=ProducerTable.blank)
    log_start_offset: int = 0
    exact: bool = True
    log_time_ms: int = -1
    completed: list[CompletedTransaction] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    was_cleaned: bool = False
    flushed_offset: int = 0

    def run(self, logs: Sequence[LogFile]) -> Survey:
        self.log_start_offset = logs[0].base_offset
        self.was_cleaned = self.files.topic_partition in checkpointed(self.files.log_dir / CLEANER_CHECKPOINT)
        self.flushed_offset = _flushed_offset(self.files)
        known = state_at_log_start(self.files, self.log_start_offset)
        self.table, self.exact = known.table, known.exact
        segments, pieces = zip(*(self._segment(*scan) for scan in _read_ahead(logs)), strict=True)
        return Survey(
            self.files,
            segments,
            pieces,
            tuple(self.completed),
            self.table.decided_below(segments[-1].end_offset),
            epochs_of(self.epochs),
            tuple(self.remarks),
        )

    def _segment(
        self, log: LogFile, scanner: SegmentScanner, batches: Iterable[BatchColumns]
    ) -> tuple[LogFile, tuple[Piece, ...]]:
        builder, cutter, expected = IndexBuilder(log.base_offset), Cutter(self.split_bytes), log.base_offset
        looks_cleaned = self.was_cleaned
        for columns in batches:
            self._follow(log, columns)
            builder.add(columns)
            shows = shows_cleaning(columns, expected)
            self.exact, looks_cleaned = self.exact and not shows, looks_cleaned or shows
            expected = int(columns.last_offset[-1]) + 1
            self.log_time_ms = max(self.log_time_ms, int(columns.max_timestamp_ms.max()))
            cutter.add(columns)
        end_offset = expected if log.growing else log.end_offset
        is_torn = log.growing and scanner.end in (ScanEnd.PARTIAL_TAIL, ScanEnd.ZERO_TAIL)
        if is_torn and expected >= self.flushed_offset:
            self.remarks.append(f"{scanner.problem}; left out")
        else:
            scanner.require_exact()
        if expected > end_offset:
            raise CorruptFile(
                f"holds offset {expected - 1}, but the next segment begins at {end_offset}", file=str(log.path)
            )
        self.exact = self.exact and expected == end_offset
        if expected < end_offset and not looks_cleaned:
            self.remarks.append(
                f"{log.path}: offsets [{expected}, {end_offset}) are missing, and nothing says that the log was ever "
                f"compacted: a .log file is missing in {self.files.directory}, or has lost its content"
            )
        self.epochs += [(entry.epoch, entry.start_offset) for entry in builder.finish().leader_epochs.entries]
        self._settle_state(end_offset)
        found = LogFile(log.path, log.base_offset, end_offset, scanner.valid_bytes, log.mtime_ns, log.growing)
        return found, cutter.finish()

    def _follow(self, log: LogFile, columns: BatchColumns) -> None:
        try:
            self.table, ended = replayed(self.table, columns, str(log.path))
        except PartitionError:
            # Headers whose checksum was not checked: damage explains more than a producer out of order.
            for _ in (scanner := scan_file(log.path, base_offset=log.base_offset)):
                continue
            scanner.require_exact()
            raise
        self.completed += ended

    def _settle_state(self, end_offset: int) -> None:
        disk = DiskPartition(self.files)
        self.table = disk.without_decided(ProducerTable(end_offset, self.table.rows))
        table = self.table.unexpired(self.forgetting.expiration(self.log_time_ms))
        name = file_name(end_offset, Suffix.SNAPSHOT)
        path = self.files.directory / name
        try:
            theirs = disk.without_decided(ProducerTable.from_snapshot(end_offset, read_regular(path)))
            written_ms = path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            theirs = None
        except CorruptSnapshot as error:
            self.remarks.append(f"{path}: cannot be read ({error}); rebuilt from the log")
            theirs = None
        except OSError as error:
            raise PartitionError(f"{path}: cannot be read: {error.strerror}") from error
        if theirs is not None:
            allowance = Allowance(
                now_ms=max(self.log_time_ms, min(self.forgetting.now_ms, written_ms)),
                expiration_ms=self.forgetting.producer_id_expiration_ms,
                exact=self.exact,
                log_start_offset=self.log_start_offset,
                first_offset=self.log_start_offset,
            )
            comparison = compare_snapshots(theirs.entries(), table.entries(), allowance)
            if comparison.conformance is Conformance.WRONG:
                self.remarks.append(f"{path}: contradicts the log ({comparison.describe()}); rebuilt from the log")
            elif self.exact:
                table = theirs
            else:
                table = self.table = theirs.open_as_in(self.table, 0)
        # Most of them are thrown away again: whoever keeps one has it on the disk.
        write_file(self.staging / name, [table.to_snapshot()], synced=False)


def _read_ahead(logs: Sequence[LogFile]) -> Iterator[_Scan]:
    """The scans of the segments in order; the first headers of the next segments are read meanwhile.

    Memory: a window and a chunk of headers for each thread and for the reader. Errors are raised where the scan they belong to is
    iterated.
    """
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="survey") as pool:
        under_way: deque[tuple[SegmentScanner, Iterator[BatchColumns], Future[BatchColumns | None]]] = deque()
        for number, log in enumerate(logs):
            for following in logs[number + len(under_way) : number + _THREADS + 1]:
                scanner = _scanner(following)
                batches = iter(scanner)
                under_way.append((scanner, batches, pool.submit(next, batches, None)))
            scanner, batches, first = under_way.popleft()
            yield log, scanner, chain(_first(first), batches)


def _first(future: Future[BatchColumns | None]) -> Iterator[BatchColumns]:
    chunk = future.result()
    if chunk is not None:
        yield chunk


def _scanner(log: LogFile) -> SegmentScanner:
    # The stages check checksums of what they read; only the active segment is never read again.
    window_bytes = 2 * MIB if log.growing else HEADERS_WINDOW_BYTES
    return scan_file(log.path, base_offset=log.base_offset, check_crc=log.growing, window_bytes=window_bytes)
