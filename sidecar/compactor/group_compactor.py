"""Compacts rolled segments on the broker's disk into copies of ours, each group within itself, many groups in one job."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from producer_state.replay import CompletedTransaction
from producer_state.table import ProducerTable
from sidecar.clock import HasClock
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.segments import SPLIT_BYTES
from sidecar.compactor.archive.archived_log import LAST_MODIFIED
from sidecar.compactor.before_upload import BeforeUpload, CopyGroup, RolledGroup, remove_if_empty
from sidecar.compactor.topic_counts import RawReason
from sidecar.compactor.topic_rule import rules_of
from sidecar.engine_ports import CompactionEngines
from sidecar.errors import CompactionCrashed, CompactionCutOff, PartitionError, SidecarError
from sidecar.event_log import EVENTS
from sidecar.host import process_store
from sidecar.host.disk_readers import HasDiskReaders
from sidecar.host.page_cache import spared
from sidecar.logformat.batches import BatchColumns, scan_file
from sidecar.logformat.files import cannot_be_written
from sidecar.metrics.registry import HasMetrics
from sidecar.model import SegmentFiles
from sidecar.partition.run_limits import HasLimits
from sidecar.ports import HasBeat
from sidecar.randomness import HasRandomness
from sidecar.reporting.advice import advised
from sidecar.rewriting.job import HASH_KEY_BYTES, CompactedOutput, CompactionJob, Cutter, LogFile, Piece
from sidecar.rewriting.run import Scanned, required, rewritten, scanned
from sidecar.rewriting.segment_files import checked_file, write_log
from sidecar.rewriting.work_files import LocalParts
from sidecar.segment.bundle import CompactedCopy
from sidecar.segment.open_transactions import logs_behind
from sidecar.segment.replaying import replayed
from sidecar.storage.bandwidth import HasBudget


class GroupPorts(HasBudget, HasClock, HasMetrics, HasLimits, HasRandomness, HasDiskReaders, HasBeat, Protocol):
    """What this takes of the world."""


@dataclass(eq=False)
class GroupCompactor:
    """One task takes what waits, and hands copies back. Segments that cannot be compacted go as they are, and at once.

    `staging`: gives an existing directory of ours. May raise StagingFull. `is_stopping`: copies are not needed any more. Asked
    before each read and each step: what is begun ends there, and errors are of the end.
    """

    waiting: BeforeUpload
    context: GroupPorts
    engines: CompactionEngines
    staging: Callable[[], Path]
    is_stopping: Callable[[], bool] = lambda: False
    _number: int = 0

    def cycle(self) -> bool:
        """Compact what waits; whether there was something. Never raises for the data, a store, or an engine."""
        groups = () if self.is_stopping() else self.waiting.take()
        if not groups:
            return False
        with ExitStack() as sparing:
            # What only we bring into the page cache is given back, as that of segments which are archived as they are.
            if self.context.policy.spares_cache:
                for log in (segment.log for group in groups for segment in group.segments):
                    sparing.enter_context(spared(log.path, log.size_bytes))
            self._compact_all(groups)
        self.waiting.wake()
        return True

    def _compact_all(self, groups: Sequence[RolledGroup]) -> None:
        now_ms = self.context.clock.now_ms()
        jobs = [(group, job) for group in groups if (job := self._job_of(group, now_ms)) is not None]
        try:
            if jobs:
                self._compact(jobs)
        except SidecarError as error:
            self._give_up([group for group, _ in jobs], error)
        except Exception as error:  # noqa: BLE001 - odd data may meet a fault of ours: the segments go as they are
            if not self.is_stopping():
                EVENTS.critical("group_compaction_crashed", error=repr(error), exc_info=error)
            self._give_up([group for group, _ in jobs], CompactionCrashed(f"a fault of this program: {error!r}"))

    def _turn(self, device: int, *, goes_on: bool) -> AbstractContextManager[None]:
        """Our turn at a disk, for one split or less: uploads go on between two of them, and urgent ones at once.

        Raises CompactionCutOff.
        """
        self._require_going_on()
        beat = self.context.beat
        return self.context.disk_readers.reading(device, beat=beat, is_urgent=False, gives_way=True, goes_on=goes_on)

    def _require_going_on(self) -> None:
        if self.is_stopping():
            raise CompactionCutOff

    def _in_turns(self, device: int, scanner: Iterable[BatchColumns]) -> Iterator[BatchColumns]:
        """What the scanner yields, each read after a wait for the disk. The limit for reads is waited for between them."""
        batches, goes_on = iter(scanner), False
        while True:
            with self._turn(device, goes_on=goes_on):
                columns = next(batches, None)
            if columns is None:
                return
            self.context.budget.reads.take(int(columns.size_bytes.sum()))
            goes_on = True
            yield columns

    @contextmanager
    def _taking_turns(self, groups: Sequence[RolledGroup]) -> Iterator[None]:
        """In this process each split is read after a wait for its disk. Tasks in others wait for each disk at their beginning only:
        uploads never wait for them, and the limit for reads holds for both.
        """
        devices = {segment.log.path: group.files.directory_id[0] for group in groups for segment in group.segments}
        for device in sorted(set(devices.values())):
            with self._turn(device, goes_on=False):
                pass
        with process_store.taking_turns(lambda path: self._turn(devices[path], goes_on=True)):
            yield

    def _job_of(self, group: RolledGroup, now_ms: int) -> CompactionJob[LogFile] | None:
        """What is to be compacted of the group, by its headers; the rest goes as it is, after an error all of it."""
        files, pieces, completed = list[LogFile](), list[tuple[Piece, ...]](), list[CompletedTransaction]()
        tables, lag_ms = [group.known.table], group.policy.min_compaction_lag_ms
        try:
            for segment in group.segments:
                file, found, table, largest_ms = self._look_at(
                    group.files.directory_id[0], segment, tables[-1], completed
                )
                if lag_ms and largest_ms > self.context.clock.now_ms() - lag_ms:
                    break
                files.append(file)
                pieces.append(found)
                tables.append(table)
            decided_below = self._decided_below(group, tables[-1], completed) if files else 0
            count = sum(file.end_offset <= decided_below for file in files)
            self.waiting.goes_raw(group.segments[len(files) :], RawReason.TOO_YOUNG)
            self.waiting.goes_raw(group.segments[count : len(files)], RawReason.OPEN_TRANSACTION)
        except SidecarError as error:
            self._give_up([group], error)
            return None
        if not count:
            return None
        return CompactionJob(
            tuple(files[:count]),
            tuple(pieces[:count]),
            tuple(completed),
            # What a tombstone or a marker deletes may be archived already, or go raw after all.
            replace(rules_of(group.policy, now_ms), joins_segments=False, spares_deletes=True),
            LastBatches.of(tables[count]),
            self.context.randomness.random_bytes(HASH_KEY_BYTES),
        )

    def _look_at(
        self, device: int, segment: SegmentFiles, table: ProducerTable, completed: list[CompletedTransaction]
    ) -> tuple[LogFile, tuple[Piece, ...], ProducerTable, int]:
        """A segment with its pieces, the producers at its end, and its largest timestamp; to `completed` what ended in it."""
        log = segment.log
        file = replace(LogFile.of(segment), read_bytes_per_s=self.context.budget.reads.bytes_per_s)
        scanner, cutter = scan_file(log.path, base_offset=segment.base_offset), Cutter(SPLIT_BYTES)
        largest_ms = -1
        for columns in self._in_turns(device, scanner):
            table, ended = replayed(table, columns, str(log.path))
            completed += ended
            largest_ms = max(largest_ms, int(columns.max_timestamp_ms.max()))
            cutter.add(columns)
        scanner.require_exact()
        self.context.beat()
        # Where no record has a timestamp, the file's own counts. Source: LogSegment.largestTimestamp.
        largest_ms = log.mtime_ms if largest_ms < 0 else largest_ms
        return file, cutter.finish(), ProducerTable(segment.end_offset, table.rows), largest_ms

    def _decided_below(self, group: RolledGroup, table: ProducerTable, completed: list[CompletedTransaction]) -> int:
        """Up to where the end of every transaction is known, for which the log behind the table's end is read too."""
        end_offset = table.end_offset
        for base_offset, log in logs_behind(group.files, end_offset):
            if table.decided_below(end_offset) == end_offset or base_offset >= group.stable_end_offset:
                break
            self.context.beat()
            # The active segment's tail may be half written; batches below the stable end are whole.
            scanner = scan_file(log.path, base_offset=base_offset)
            for columns in self._in_turns(group.files.directory_id[0], scanner):
                stable = columns[: int(np.searchsorted(columns.base_offset, group.stable_end_offset))]
                table, ended = replayed(table, stable, str(log.path))
                completed += ended
                if len(stable) < len(columns) or table.decided_below(end_offset) == end_offset:
                    break
        return table.decided_below(end_offset)

    def _compact(self, jobs: Sequence[tuple[RolledGroup, CompactionJob[LogFile]]]) -> None:
        self._number += 1
        parts = LocalParts(self.staging() / f"{self._number:08d}")
        with cannot_be_written(parts.directory):
            parts.directory.mkdir()
        try:
            engine = self.engines.for_bytes(sum(job.size_bytes for _, job in jobs), local_files=True)
            self._require_going_on()  # A JVM that was ended must not start again.
            _ = engine.cores  # A JVM starts before the wait for the disks, not after it.
            groups = [group for group, _ in jobs]
            with self._taking_turns(groups):
                self._require_going_on()
                with scanned([job for _, job in jobs], engine) as run:
                    results = rewritten(run, parts)
                for group, scan, result in zip(groups, run.results, results, strict=True):
                    self._take(group, scan, result, parts)
        finally:
            parts.forget_all()
            remove_if_empty(parts.directory)

    def _take(
        self,
        group: RolledGroup,
        scan: Scanned[LogFile] | SidecarError,
        result: tuple[CompactedOutput[LogFile], ...] | SidecarError,
        parts: LocalParts,
    ) -> None:
        try:
            self._require_going_on()
            found, outputs = required(scan), required(result)
            self._stage(group, found, outputs, parts)
        except SidecarError as error:
            self._give_up([group], error)
            return
        EVENTS.info(
            "group_compacted",
            partition=str(group.topic_partition),
            segments=len(outputs),
            bytes_before=found.job.size_bytes,
            bytes_after=sum(output.size_bytes for output in outputs),
        )

    def _stage(
        self,
        group: RolledGroup,
        found: Scanned[LogFile],
        outputs: Sequence[CompactedOutput[LogFile]],
        parts: LocalParts,
    ) -> None:
        """Hand all copies of a group over at once, so that none is archived without the others."""
        segments = group.segments[: len(outputs)]
        if all(output.unchanged for output in outputs):
            self.waiting.unchanged(segments)
            return
        copies: list[CompactedCopy | None] = []
        with ExitStack() as unless_whole:
            for segment, output in zip(segments, outputs, strict=True):
                if output.unchanged:
                    copies.append(None)
                    continue
                path = parts.directory / f"{segment.topic_partition}-{segment.base_offset:020d}.log"
                unless_whole.callback(path.unlink, missing_ok=True)
                copies.append(_copy(path, segment, output, found.job, parts))
            unless_whole.pop_all()
        # What goes as it is keeps its records: a compaction of the archive meets them.
        scans = [scan for scan in found.scans if copies[scan.split.segment] is not None]
        unkeyed, malformed = sum(scan.unkeyed for scan in scans), sum(scan.malformed_versions for scan in scans)
        self.waiting.compacted(CopyGroup(segments, tuple(copies), group.policy, unkeyed, malformed))

    def _give_up(self, groups: Sequence[RolledGroup], error: SidecarError) -> None:
        if self.is_stopping():
            EVENTS.info("group_compaction_abandoned", groups=len(groups), reason=str(CompactionCutOff()))
            return
        for group in groups:
            self.context.metrics.failed(type(error).__name__)
            self.waiting.goes_raw(group.segments, RawReason.COMPACTION_FAILED, advised(error))


def _copy(
    path: Path,
    segment: SegmentFiles,
    output: CompactedOutput[LogFile],
    job: CompactionJob[LogFile],
    parts: LocalParts,
) -> CompactedCopy:
    """Write the copy of a segment. Raises StagingFull, SegmentChanged, CorruptFile, PartitionError."""
    if (output.base_offset, output.end_offset) != (segment.base_offset, segment.end_offset):
        raise PartitionError(f"{segment}: its copy would cover [{output.base_offset}, {output.end_offset})")
    write_log(path, parts, output)
    built = checked_file(path, output)
    parameters = {**job.rules.parameters, LAST_MODIFIED: str(segment.log.mtime_ns // 1_000_000)}
    strategy = str(job.rules.effective_strategy)
    return CompactedCopy(path, output.size_bytes, output.crc32c, built, strategy, parameters)
