"""Facts about partitions that people and alerts want to know. The core emits them; sinks render them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from sidecar.archive.actions import Action, DeleteRecords, LossReason, Lost
from sidecar.archive.coverage import ArchiveExtent
from sidecar.errors import SidecarError
from sidecar.model import ArchivedSegment, SegmentFiles, TopicPartition
from sidecar.partition.status import PartitionStatus


@dataclass(frozen=True, slots=True)
class DomainEvent:
    """Something that happened. Immutable."""


@dataclass(frozen=True, slots=True)
class SegmentUploadStarted(DomainEvent):
    segment: SegmentFiles


@dataclass(frozen=True, slots=True)
class SegmentUploaded(DomainEvent):
    """A segment's objects are in the store and checked. `duration_s`: since the first byte was sent."""

    segment: SegmentFiles
    size_bytes: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class SegmentUploadFailed(DomainEvent):
    """A segment's objects are not in the store, or not checked. `PartitionFailed` carries the error."""

    segment: SegmentFiles


@dataclass(frozen=True, slots=True)
class SegmentCommitted(DomainEvent):
    """A segment is in the archive. `snapshot_result`: how the broker's producer snapshot compared with the replayed state.

    `replaced_indexes`: suffixes of index files that were rebuilt.
    """

    segment: SegmentFiles
    entry: ArchivedSegment
    snapshot_result: str
    replaced_indexes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotMismatch(DomainEvent):
    """The broker's producer snapshot of a committed segment was damaged or wrong; the archive has the replayed one."""

    segment: SegmentFiles
    entry: ArchivedSegment
    found: str


class CommitFailed(DomainEvent):
    """A commit did not succeed, or its outcome is unknown. `PartitionFailed` names the partition and carries the error."""


@dataclass(frozen=True, slots=True)
class OffsetsLost(DomainEvent):
    """Offsets `[from_offset, to_offset)` are in no archive and not on this broker's disk.

    `log_start_offset`: the leader's, None where it is unknown. `is_recorded`: a commit names the gap. A gap below the archive's
    first segment is named by this event only.
    """

    topic_partition: TopicPartition
    from_offset: int
    to_offset: int
    log_start_offset: int | None = None
    is_recorded: bool = True


@dataclass(frozen=True, slots=True)
class DeletedBeforeArchived(DomainEvent):
    """DeleteRecords removed offsets `[from_offset, to_offset)` before they were archived. This does not count as a loss."""

    topic_partition: TopicPartition
    from_offset: int
    to_offset: int
    log_start_offset: int | None = None


@dataclass(frozen=True, slots=True)
class RecordsDeleted(DomainEvent):
    """A commit says that DeleteRecords removed the archived records below an offset."""

    topic_partition: TopicPartition
    before_offset: int
    leader_epoch: int
    log_start_offset: int | None = None


@dataclass(frozen=True, slots=True)
class DeletedRecordsUnknown(DomainEvent):
    """A file or object that shows whether DeleteRecords moved the log start cannot be read."""

    topic_partition: TopicPartition
    log_start_offset: int
    error: SidecarError


@dataclass(frozen=True, slots=True)
class LostOffsetsOnDisk(DomainEvent):
    """The local log was truncated into the loss that the archive ends with, as far as its leader epochs show."""

    topic_partition: TopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class OffsetsTakenAsCompacted(DomainEvent):
    """Only the topic's `cleanup.policy`, or that a cleaner was there before, explains missing offsets at the end of a segment."""

    segment: SegmentFiles
    offsets: tuple[int, int]
    reason: str


@dataclass(frozen=True, slots=True)
class MarkerAdded(DomainEvent):
    """A segment is archived with an abort marker in the place of one that the broker's cleaner took.

    It hides what the producer wrote from `first_offset` on, below the segment. `may_be_committed`: retention took these records
    from the broker's log, so that they may be committed, and not superseded.
    """

    segment: SegmentFiles
    producer_id: int
    first_offset: int
    marker_offset: int
    may_be_committed: bool


@dataclass(frozen=True, slots=True)
class DeletesMayBeMissing(DomainEvent):
    """The broker's cleaner may have taken tombstones of a segment before it was archived, whose keys the archive still has.

    `away_ms`: since the last commit of the partition, which is more than `delete.retention.ms`.
    """

    segment: SegmentFiles
    away_ms: int


@dataclass(frozen=True, slots=True)
class PinReleased(DomainEvent):
    """The sidecar closed a deleted file of a segment that is not archived."""

    path: str
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class PinsChecked(DomainEvent):
    """A check has pinned what is ready for upload.

    `unpinned`: segments beyond the limit of pins that retention may delete, of partitions that have any.
    """

    unpinned: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TransactionHangs(DomainEvent):
    """A transaction is open for longer than a broker allows. Its partition waits. `held_s`: for how long."""

    segment: SegmentFiles
    producer_id: int
    first_offset: int
    held_s: float


@dataclass(frozen=True, slots=True)
class ExtentChanged(DomainEvent):
    """The archive was read, or a commit changed it. `extent`: what it covers now."""

    topic_partition: TopicPartition
    extent: ArchiveExtent


@dataclass(frozen=True, slots=True)
class BacklogChanged(DomainEvent):
    """What waits in a partition, as after a commit. The fields are those of `PartitionStatus`, under the same names."""

    topic_partition: TopicPartition
    pending_segments: int
    pending_bytes: int
    oldest_pending_ms: int | None
    deadline_ms: int | None
    pinned_deleted_bytes: int

    def applied_to(self, status: PartitionStatus) -> PartitionStatus:
        """An earlier status of the partition, with what waits now."""
        return replace(status, **{field.name: getattr(self, field.name) for field in fields(self)})


@dataclass(frozen=True, slots=True)
class PartitionChecked(DomainEvent):
    status: PartitionStatus


@dataclass(frozen=True, slots=True)
class PartitionsChecked(DomainEvent):
    """A check of the disks has ended. `statuses`: all partitions that it found. `known`: others that the next may find again."""

    statuses: tuple[PartitionStatus, ...]
    known: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionFailed(DomainEvent):
    """A partition's task has failed. It backs off, or needs a person."""

    topic_partition: TopicPartition
    error: SidecarError


@dataclass(frozen=True, slots=True)
class DirectoryUnreadable(DomainEvent):
    """A log directory, or a partition's directory, cannot be listed."""

    path: str
    error: SidecarError


@dataclass(frozen=True, slots=True)
class BrokerFactsRead(DomainEvent):
    """The broker, or its files, were asked. `read_ms`: when they last answered. `missing_rights`: kinds of refused requests."""

    read_ms: int | None
    is_away: bool
    missing_rights: int


@dataclass(frozen=True, slots=True)
class CycleProgressed(DomainEvent):
    """`stopped` partitions or directories have failed in this cycle so far. `archived`: a segment was committed just now."""

    stopped: int
    archived: bool = False


@dataclass(frozen=True, slots=True)
class CycleEnded(DomainEvent):
    """A cycle over all partitions has ended.

    `unfinished_attempts`: uploads in the journal that no commit names. `is_store_silent`: whether requests wait for a store
    that has not answered for long: copy tasks may hang, though nothing has failed.
    """

    stopped: int
    unfinished_attempts: int
    is_store_silent: bool = False


Emit: TypeAlias = Callable[[DomainEvent], None]
"""Hands an event to every sink, in the thread that calls it. Any thread may call it."""


def committed_events(
    topic_partition: TopicPartition,
    actions: Iterable[Action],
    leader_epoch: int,
    log_start_offset: int | None = None,
) -> Iterator[DomainEvent]:
    """What a commit of this sidecar says of lost and deleted offsets: a reader of the archive alone may learn it too late.

    `log_start_offset`: the leader's, None where it is unknown.
    """
    for action in actions:
        if isinstance(action, DeleteRecords):
            yield RecordsDeleted(topic_partition, action.before_offset, leader_epoch, log_start_offset)
        elif isinstance(action, Lost):
            span = action.base_offset, action.end_offset
            if action.reason == LossReason.DELETED_FIRST:
                yield DeletedBeforeArchived(topic_partition, *span, log_start_offset)
            else:
                yield OffsetsLost(topic_partition, *span, log_start_offset)
