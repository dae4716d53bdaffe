"""Reads a rolled segment once: checks every batch, follows producer state, and settles which indexes go into the bundle."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from producer_state.replay import CompletedTransaction
from producer_state.table import ProducerTable
from sidecar.engine_ports import TaskEngine
from sidecar.errors import CorruptFile, PartitionError, SidecarError
from sidecar.host.listed_files import SMALL_FILE_BYTES_MAX, ListedFile, read_unless_deleted
from sidecar.logformat.batches import BatchColumns, SegmentScanner, in_memory
from sidecar.logformat.indexes.offset_index import OffsetIndexCheck
from sidecar.logformat.indexes.rebuild import BuiltIndexes, IndexBuilder
from sidecar.logformat.indexes.time_index import TimeIndexCheck
from sidecar.logformat.indexes.transaction_index import TransactionIndexCheck, merged
from sidecar.logformat.indexes.verdict import IndexState
from sidecar.logformat.leader_epochs import LeaderEpochCheck, LeaderEpochs, complete
from sidecar.model import SegmentFiles
from sidecar.segment.added_markers import AddedMarker, stretches
from sidecar.segment.replaying import replayed, shows_cleaning
from sidecar.storage.checksums import combine_crc32c

WINDOW_BYTES = 2 * 1024 * 1024
"""As fast as larger windows, and each worker has one of its own."""


@dataclass(frozen=True, slots=True)
class ChosenIndexes:
    """The bytes to archive, the broker's own where they agree with the log. `replaced`: why they do not, one sentence each."""

    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    replaced: tuple[str, ...]


class IndexChoice:
    """The index files of a segment against its batches."""

    def __init__(self, segment: SegmentFiles) -> None:
        """Reads the files. Raises SegmentChanged for one that is not what was listed."""
        # What is larger than its log could need is no index; it is rebuilt without being read.
        limit_bytes = max(SMALL_FILE_BYTES_MAX, segment.log.size_bytes // 4)
        base_offset = segment.base_offset
        self._segment = segment
        self._checks: tuple[OffsetIndexCheck | TimeIndexCheck | TransactionIndexCheck, ...] = (
            OffsetIndexCheck(read_unless_deleted(segment.offset_index, segment.log, limit_bytes), base_offset),
            TimeIndexCheck(read_unless_deleted(segment.time_index, segment.log, limit_bytes), base_offset),
            TransactionIndexCheck(read_unless_deleted(segment.transaction_index, segment.log), base_offset),
        )

    def add(self, columns: BatchColumns) -> None:
        for check in self._checks:
            check.add(columns)

    def finish(self, built: BuiltIndexes, tail: tuple[int, int] | None) -> ChosenIndexes:
        """After the last batch. `tail`: offsets between it and the next segment.

        A broker rebuilds an offset or time index that contradicts a sound log (LogLoader.recoverSegment). Where the end of the
        log is missing, it says that records were there. A transaction index may know more than a replay.
        Raises CorruptFile for an index that contradicts the log in one of these cases.
        """
        segment, of_log = self._segment, (built.offset_index, built.time_index, built.transaction_index)
        verdicts = [check.finish(content) for check, content in zip(self._checks, of_log, strict=True)]
        wrong = next((found for found in verdicts if found.state is IndexState.DISAGREES), None)
        if wrong and tail:
            raise CorruptFile(
                f"has no batch from offset {tail[0]} on, the next segment begins at {tail[1]}, and an index contradicts it "
                f"({wrong.reason}): it has lost content",
                file=str(segment.log.path),
                advice="restore it from a replica",
            )
        if (aborted := verdicts[-1]).state is IndexState.DISAGREES:
            raise CorruptFile(
                f"{aborted.reason}: the index disagrees with its log",
                file=str(segment.transaction_index.path) if segment.transaction_index else "",
                position=aborted.position,
                advice="compare with a replica, or stop the broker and delete the segment's .index file: at its start the "
                "broker then rebuilds all three indexes",
            )
        rebuilt = (built.offset_index, built.time_index, _merged(self._checks[-1].data, built))
        offset_index, time_index, transaction_index = (
            check.data if verdict.state is IndexState.FINE else content
            for check, verdict, content in zip(self._checks, verdicts, rebuilt, strict=True)
        )
        return ChosenIndexes(
            bytes(offset_index or b""),
            bytes(time_index or b""),
            None if transaction_index is None else bytes(transaction_index),
            tuple(verdict.reason for verdict in verdicts if verdict.state is not IndexState.FINE),
        )


def _merged(found: bytes | memoryview | None, built: BuiltIndexes) -> bytes | None:
    try:
        return merged(found, built.transaction_index) or None
    except CorruptFile:
        return built.transaction_index or None


@dataclass(frozen=True, slots=True)
class SegmentReading:
    """What one pass over a segment gave.

    `log_crc32c`: of all its bytes. `leader_epochs`: epochs that cover the segment, as far as any are known. `state`: the
    producers at its end.
    `looks_cleaned`: compaction has been here, so replay may know less than the broker did.
    `missing_tail`: offsets `[from, to)` between the last batch and the next segment, though nothing else is missing.
    """

    log_crc32c: int
    built: BuiltIndexes
    indexes: ChosenIndexes
    leader_epochs: LeaderEpochs
    state: ProducerTable
    looks_cleaned: bool
    missing_tail: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class ReadingTask:
    """A segment to be read. `checkpoint`: the partition's `leader-epoch-checkpoint`, None where it does not exist.

    `added`: markers that are archived with it. They move the batches, so that no index of the file is right any more.
    """

    segment: SegmentFiles
    state_at_base: ProducerTable
    checkpoint: LeaderEpochs | None
    log_start_offset: int
    index_interval_bytes: int
    added: tuple[AddedMarker, ...] = ()


ReadSegment: TypeAlias = Callable[[ReadingTask, int, Callable[[int], None]], SegmentReading]
"""`read_segment`, by whoever does it."""


def read_segment(task: ReadingTask, descriptor: int, taken: Callable[[int], None]) -> SegmentReading:
    """Scan a segment through an open descriptor; memory does not grow with the segment.

    Args:
        taken: called with the bytes that were read, window by window; may wait.

    Raises:
        CorruptFile: a batch, a leader epoch, or what an index proves is not what it must be; file, position and offset are named.
        PartitionError: producer state cannot be followed.
        SegmentChanged: an index file is not the one that was listed.
    """
    segment, checkpoint, log_start_offset = task.segment, task.checkpoint, task.log_start_offset
    name = segment.log_name
    scanner = _Scan(task, descriptor)
    no_indexes = replace(segment, offset_index=None, time_index=None, transaction_index=None)
    indexes = IndexChoice(no_indexes if task.added else segment)
    epochs = (
        LeaderEpochCheck(checkpoint, log_start_offset) if checkpoint and checkpoint.covers(log_start_offset) else None
    )
    builder = IndexBuilder(segment.base_offset, task.index_interval_bytes)
    state = task.state_at_base
    completed: list[CompletedTransaction] = []
    looks_cleaned = bool(task.added)
    expected_offset = segment.base_offset
    for columns in scanner:
        taken(int(columns.size_bytes.sum()))
        if int(columns.last_offset[-1]) >= segment.end_offset:
            raise CorruptFile(
                f"holds offset {int(columns.last_offset[-1])}, but the next segment begins at {segment.end_offset}",
                file=name,
            )
        try:
            builder.add(columns)
            if epochs:
                epochs.add(columns)
        except CorruptFile as error:
            raise error.within(name) from error
        state, ended = replayed(state, columns, name)
        completed += ended
        looks_cleaned = looks_cleaned or shows_cleaning(columns, expected_offset)
        expected_offset = int(columns.last_offset[-1]) + 1
        indexes.add(columns)
    tail = (expected_offset, segment.end_offset) if expected_offset < segment.end_offset else None
    built = builder.finish(completed)
    return SegmentReading(
        log_crc32c=scanner.crc32c,
        built=built,
        indexes=indexes.finish(built, tail),
        leader_epochs=complete(checkpoint, built.epochs_from_base, segment.base_offset) or built.leader_epochs,
        state=replace(state, end_offset=segment.end_offset),
        looks_cleaned=looks_cleaned or tail is not None,
        missing_tail=None if looks_cleaned else tail,
    )


@dataclass(slots=True)
class _Scan:
    """The batches of a segment and those that are added to it. `crc32c`: of all bytes so far. Raises CorruptFile."""

    task: ReadingTask
    descriptor: int
    crc32c: int = 0

    def __iter__(self) -> Iterator[BatchColumns]:
        segment, begin = self.task.segment, 0
        read_at = ListedFile(self.descriptor, segment.log, segment.start_position)
        for stretch in stretches(self.task.added, segment.size_bytes):
            source, position = (in_memory(stretch), 0) if isinstance(stretch, bytes) else (read_at, stretch.start)
            scanner = SegmentScanner(
                source,
                position + len(stretch),
                base_offset=segment.base_offset,
                file=segment.log_name,
                window_bytes=WINDOW_BYTES,
                start_position=position,
            )
            for columns in scanner:
                moved = columns.position + (begin - position)
                yield replace(columns, position=moved) if begin != position else columns
            scanner.require_exact()
            self.crc32c = combine_crc32c(self.crc32c, scanner.crc32c, len(stretch))
            begin += len(stretch)


def read_by_engine(
    engine: TaskEngine, task: ReadingTask, descriptor: int, taken: Callable[[int], None]
) -> SegmentReading:
    """See `read_segment`. The engine's tasks must run on this machine, as this user. Raises what the engine raises, too.

    `taken` cannot go to the task, so it is called for the whole segment before: a limit holds on average, not window by window.
    """
    taken(task.segment.size_bytes)
    # Not the file's own path: the broker may have deleted it.
    opened = [(task, f"/proc/{os.getpid()}/fd/{descriptor}")]
    try:
        (found,) = engine.run(read_in_task, opened)
    except SidecarError:
        # A reload of the compaction's settings ends the JVM that both share; the next task starts another.
        (found,) = engine.run(read_in_task, opened)
    if isinstance(found, SidecarError):
        raise found
    return found


def read_in_task(opened: tuple[ReadingTask, str]) -> SegmentReading | SidecarError:
    """The reading, or the error that belongs to the segment: what a task raises would end the run."""
    task, open_file = opened
    try:
        descriptor = _opened(task.segment, open_file)
        try:
            return read_segment(task, descriptor, lambda _bytes: None)
        finally:
            os.close(descriptor)
    except SidecarError as error:
        return error


def _opened(segment: SegmentFiles, open_file: str) -> int:
    try:
        return os.open(open_file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PartitionError(
            f"{segment.log_name}: a worker of Spark cannot open it: {error.strerror}; set spark.engine: local"
        ) from error
