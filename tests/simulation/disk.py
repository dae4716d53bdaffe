"""A broker's disk as one process sees it: symbolic replicas behind the core's port, and the descriptors of that process."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from producer_state.exactness import is_exact, knows_beginning
from producer_state.table import ProducerTable
from sidecar.archive.continuity import LocalBatch
from sidecar.errors import PartitionError, SegmentChanged
from sidecar.host.log_dir_fingerprint import LogDirFingerprint
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition
from sidecar.segment import added_markers, open_transactions
from sidecar.segment.added_markers import AddedMarker
from sidecar.segment.dropped_producers import NOTHING_DROPPED, Dropped
from sidecar.segment.open_transactions import OpenTransactions
from sidecar.segment.producer_snapshot import KnownState
from tests.simulation.batches import BATCH_BYTES, Batch, encode
from tests.simulation.headers import searching
from tests.simulation.host import Host
from tests.simulation.replica import NS_PER_MS, LogFile, Replica, identity_of

FIRST_DESCRIPTOR: Final = 1_000_000
"""No descriptor of the operating system: using one as such fails."""


@dataclass(slots=True)
class SimSource:
    """Implements `UploadSource` for an open file."""

    file: LogFile
    size_bytes: int
    name: str
    start_position: int

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """See `UploadSource`."""
        begin = self.start_position + position
        content = encode(self.file.batches)[begin : begin + size_bytes]
        if len(content) != size_bytes:
            raise SegmentChanged(f"{self.name}: has become shorter")
        return content


class SimDisk:
    """Implements `sidecar.segment.log_disk.LogDisk`. `opened`: files by descriptor; they go with the process."""

    def __init__(self, host: Host, now_ms: Callable[[], int]) -> None:
        """Args: now_ms: real time, not that of the process."""
        self._host, self._now_ms = host, now_ms
        self._next_descriptor = FIRST_DESCRIPTOR
        self.opened: dict[int, tuple[FileIdentity, LogFile]] = {}

    # Open files.

    def _descriptor(self, file: FileIdentity, found: LogFile) -> int:
        self._next_descriptor += 1
        self.opened[self._next_descriptor] = file, found
        return self._next_descriptor

    def _working(self, descriptor: int) -> LogFile:
        """An open file. Raises PartitionError where its disk fails."""
        file, found = self.opened[descriptor]
        if self._host.failing and file.directory.parent in self._host.failing:
            raise PartitionError(f"{file.path}: Input/output error")
        return found

    def _replica(self, directory: Path) -> Replica:
        found = self._host.replica_in(directory)
        if found is None:
            raise SegmentChanged(f"{directory}: vanished")
        return found

    def _named(self, file: FileIdentity) -> LogFile | None:
        replica = self._host.replica_in(file.directory)
        return None if replica is None else replica.file_at(int(file.name.removesuffix(".log")))

    def open(self, file: FileIdentity) -> int:
        """See `OpenFiles`."""
        found = self._named(file)
        if found is None or identity_of(file.directory, found) != file:
            raise SegmentChanged(f"{file.path}: is not what was listed")
        return self._descriptor(file, found)

    def identity(self, file: FileIdentity, descriptor: int) -> FileIdentity:
        """See `OpenFiles`."""
        found = self._working(descriptor)
        return FileIdentity(file.directory, file.name, found.inode, found.size_bytes, found.written_ms * NS_PER_MS)

    def duplicate(self, _file: FileIdentity, descriptor: int) -> int:
        """See `OpenFiles`."""
        return self._descriptor(*self.opened[descriptor])

    def close(self, descriptor: int) -> None:
        """See `OpenFiles`."""
        del self.opened[descriptor]

    def is_unlinked(self, _file: FileIdentity, descriptor: int) -> bool:
        """See `OpenFiles`."""
        return self._working(descriptor).is_unlinked(self._now_ms())

    def has_its_name(self, file: FileIdentity) -> bool:
        """See `OpenFiles`."""
        found = self._named(file)
        return found is not None and found.inode == file.inode

    def free_share(self, _freed_bytes: int, _file: FileIdentity, descriptor: int) -> float:
        """See `OpenFiles`."""
        assert self._working(descriptor)
        return self._host.free_share

    def source(self, descriptor: int, size_bytes: int, name: str, start_position: int = 0) -> SimSource:
        """See `OpenFiles`."""
        return SimSource(self.opened[descriptor][1], size_bytes, name, start_position)

    # The directory.

    def listed_again(self, files: PartitionFiles) -> PartitionFiles:
        """See `LogDisk`."""
        replica = self._replica(files.directory)
        is_touched = replica.is_touched
        replica.changed()
        replica.is_touched = is_touched  # For pins: only the next check pins what this listing shows.
        if replica.directory_id != files.directory_id or replica.topic_id not in {None, files.topic_id}:
            raise SegmentChanged(f"{files.directory}: is another directory")
        return replace(replica.files(), topic_id=files.topic_id)

    def require_unchanged(self, segment: SegmentFiles, listed: PartitionFiles, _now_ms: int) -> None:
        """See `LogDisk`."""
        bases = [file.base_offset for file in self._replica(listed.directory).segments]
        found, base_offset = self._named(segment.log), int(segment.log.name.removesuffix(".log"))
        if found is not None and identity_of(listed.directory, found) != segment.log:
            raise SegmentChanged(f"{segment}: another file, or it has grown or shrunk")
        for offset in (base_offset, segment.end_offset):
            if offset not in bases and bases[0] <= offset:
                raise SegmentChanged(f"{segment}: no segment begins at {offset} any more, the log has {bases}")
        if bases[bisect_right(bases, base_offset) : bisect_left(bases, segment.end_offset)]:
            raise SegmentChanged(f"{segment}: a segment begins inside of it, the log has {bases}")

    def fingerprint(self, files: PartitionFiles) -> LogDirFingerprint:
        """See `LogDisk`."""
        active = files.active_log
        name, inode = ("", 0) if active is None else (active.name, active.inode)
        replica = self._host.replica_in(files.directory)
        if replica is None:
            return LogDirFingerprint(files.directory, 0, 0, name, inode)
        return LogDirFingerprint(files.directory, replica.inode, replica.birth, name, inode)

    def with_snapshot(self, segment: SegmentFiles, files: PartitionFiles) -> SegmentFiles:
        """See `LogDisk`. The core reads snapshots as files, of which there are none here."""
        assert segment.directory.name == files.directory.name  # It may have moved to another log dir.
        return segment

    def leader_epochs(self, files: PartitionFiles) -> LeaderEpochs | None:
        """See `LogDisk`."""
        replica = self._host.replica_in(files.directory)
        return None if replica is None else replica.epochs

    def first_dirty_offset(self, log_dir: Path, topic_partition: TopicPartition) -> int | None:
        """See `LogDisk`."""
        if self._host.is_away(log_dir):
            return 0
        places = ((log.place.topic_partition, log.place.log_dir, log) for log in self._host.replicas())
        return next((log.first_dirty_offset for *place, log in places if place == [topic_partition, log_dir]), None)

    def dropped_producers(self, directory: Path) -> Dropped:
        """See `LogDisk`."""
        assert directory.is_absolute()
        return NOTHING_DROPPED

    def producers_at(self, files: PartitionFiles, base_offset: int) -> KnownState:
        """See `LogDisk`."""
        replica = self._host.replica_in(files.directory)
        entries = replica.snapshots.get(base_offset, ()) if base_offset and replica is not None else ()
        table = ProducerTable.from_entries(base_offset, entries)
        return KnownState(table, base_offset, is_exact(beginning_known=knows_beginning(table), cleaned=False))

    # Batches.

    def batches_of(self, log: FileIdentity, start_position: int = 0) -> list[Batch]:
        """What a file of the directory holds, from a position on. Raises SegmentChanged."""
        found = self._named(log)
        if found is None or found.inode != log.inode:
            raise SegmentChanged(f"{log.path}: vanished, or is another file")
        return found.batches[start_position // BATCH_BYTES :]

    def largest_timestamp_ms(self, segment: SegmentFiles) -> int:
        """See `LogDisk`."""
        try:
            found = self.batches_of(segment.log)
        except SegmentChanged:
            found = []
        return max((batch.timestamp_ms for batch in found), default=segment.log.mtime_ns // NS_PER_MS)

    def first_timestamp_ms(self, active: FileIdentity, base_offset: int) -> int:
        """See `LogDisk`."""
        found = self._named(active)
        assert found is None or found.base_offset == base_offset
        return found.batches[0].timestamp_ms if found is not None and found.batches else -1

    def newest_record(self, active: FileIdentity, base_offset: int) -> tuple[int, int]:
        """See `LogDisk`."""
        found = self.batches_of(active)
        largest_ms = max((batch.timestamp_ms for batch in found), default=-1)
        return largest_ms, found[-1].end_offset if found else base_offset

    def batch_in(self, segment: SegmentFiles, base_offset: int, end_offset: int, *, last: bool) -> LocalBatch | None:
        """See `LogDisk`."""
        found = [batch for batch in self.batches_of(segment.log) if base_offset <= batch.last_offset < end_offset]
        if not found:
            return None
        batch = found[-1 if last else 0]
        return LocalBatch(batch.base_offset, batch.last_offset, batch.content, batch.leader_epoch)

    def leader_epoch_below(self, segment: SegmentFiles, offset: int) -> int | None:
        """See `LogDisk`."""
        found = [batch.leader_epoch for batch in self.batches_of(segment.log) if batch.base_offset < offset]
        return found[-1] if found else None

    def cut(self, segment: SegmentFiles, base_offset: int, descriptor: int) -> SegmentFiles | None:
        """See `LogDisk`."""
        log, file = self.opened[descriptor]
        assert log == segment.log
        batches = file.batches
        number = next((number for number, batch in enumerate(batches) if batch.end_offset > base_offset), len(batches))
        if number < len(batches) and batches[number].base_offset < base_offset:
            return None
        return replace(segment, base_offset=base_offset, start_position=number * BATCH_BYTES)

    def is_of_cleaned_file(self, segment: SegmentFiles, descriptor: int) -> bool:
        """See `LogDisk`."""
        identity, file = self.opened[descriptor]
        assert identity == segment.log
        return file.has_gaps

    def added_markers(
        self,
        files: PartitionFiles,
        segment: SegmentFiles,
        descriptor: int,
        at_base: ProducerTable,
        checkpoint: LeaderEpochs | None,
    ) -> tuple[AddedMarker, ...]:
        """See `LogDisk`."""
        begin = segment.start_position // BATCH_BYTES
        batches = self.opened[descriptor][1].batches[begin : begin + segment.size_bytes // BATCH_BYTES]
        open_at = set(at_base.open_transactions().items())
        replica = self._replica(files.directory)
        # What its leader's cleaner had taken when it fetched, is not in its own history.
        line = next(one.truth.line for one in self._host.partitions if one.replicas.get(self._host.number) is replica)
        begun = (one for one in (*line, *replica.history) if (one.producer_id, one.base_offset) in open_at)
        with searching(self._batches_in, batches, {batch.producer_id: batch.transaction for batch in begun}):
            return added_markers.added_markers(files, segment, descriptor, at_base, checkpoint)

    def undecided(self, files: PartitionFiles, waiting: OpenTransactions) -> OpenTransactions | None:
        """See `LogDisk`."""
        with searching(self._batches_in, (), {}):
            return open_transactions.undecided(files, waiting)

    def _batches_in(self, path: Path) -> list[Batch]:
        found = self._replica(path.parent).file_at(int(path.stem))
        if found is None:
            raise SegmentChanged(f"{path}: vanished")
        return found.batches

    def look_ahead(
        self,
        files: PartitionFiles,
        waiting: OpenTransactions,
        stable_end_offset: int,
        beat: Callable[[], None],
        taken: Callable[[int], None],
    ) -> OpenTransactions | None:
        """See `LogDisk`."""
        beat()
        behind = [batch for batch in self._replica(files.directory).batches() if batch.base_offset < stable_end_offset]
        taken(len(behind) * BATCH_BYTES)
        found = (batch for batch in behind if batch.base_offset >= waiting.segment.end_offset)
        ended = {batch.producer_id for batch in found if batch.is_marker}
        first_offsets = {number: offset for number, offset in waiting.first_offsets.items() if number not in ended}
        return (
            replace(waiting, first_offsets=first_offsets, stable_end_offset=stable_end_offset)
            if first_offsets
            else None
        )
