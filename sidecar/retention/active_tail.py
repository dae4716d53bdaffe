"""When retention deletes an active segment: a log rolls by `segment.ms` only where something is appended, an idle one never."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from sidecar.clock import Clock
from sidecar.errors import PartitionError
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.retention import AT_RISK_MS
from sidecar.partition.status import PartitionStatus
from sidecar.partition.wait_reason import Wait
from sidecar.ports import BrokerFacts
from sidecar.segment.local_disk import LocalDisk
from sidecar.segment.log_disk import LogDisk
from sidecar.topic_policy import TopicPolicy

HOLD_MS: Final = 2 * AT_RISK_MS
"""It is pinned this long before its deletion: before it is reported as at risk."""
STILL_MS: Final = 5_000
"""What was written to so lately may have grown after the leader was asked where the log ends."""


def tail_of(
    files: PartitionFiles, facts: PartitionFacts, policy: TopicPolicy, end_offset: int | None, now_ms: int
) -> SegmentFiles | None:
    """The active segment, rolled where the leader says that the log ends; None where it does not say, or it may grow.

    It has no indexes: the broker's have their full size until the roll, and what retention took is rebuilt in any case.

    `end_offset`: where its batches end, None if they were not read.

    A file as long as a segment may be was allocated so (`preallocate`): the roll cuts it, and it is another one then.
    Source: FileRecords.open, LogSegment.onBecomeInactiveSegment.
    """
    active, base_offset = files.active_log, files.active_base_offset
    if active is None or base_offset is None or now_ms - active.mtime_ms < STILL_MS:
        return None
    is_decided = facts.leads and not facts.reason and facts.transactions_decided and not facts.transaction_open
    stable_end_offset = facts.stable_end_offset
    if not is_decided or stable_end_offset <= base_offset or end_offset not in {None, stable_end_offset}:
        return None
    if policy.segment_bytes is not None and active.size_bytes >= policy.segment_bytes:
        return None
    place = files.topic_partition, files.log_dir, base_offset, stable_end_offset
    return SegmentFiles(*place, active, None, None, None, None)


IDLE_SHARE: Final = 2
"""A log that was not written to for one part of its retention time, of so many, is idle; before that it may roll any moment."""
SCANNED_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(eq=False)
class ActiveTail:
    """The active segment of one partition; remembers what it read of it.

    `taken`: called with the bytes of each segment that is read through.
    """

    facts: BrokerFacts
    clock: Clock
    taken: Callable[[int], None] = lambda _bytes: None
    disk: LogDisk = field(default_factory=LocalDisk)
    _read: tuple[FileIdentity, tuple[SegmentFiles, ...], int, int | None] | None = field(default=None, init=False)
    _known_ms: tuple[int, int] | None = field(default=None, init=False)
    _due_ms: int | None = field(default=None, init=False)

    def deadline_ms(
        self, files: PartitionFiles, archived_end_offset: int | None, stable_end_offset: int | None
    ) -> int | None:
        """When the broker deletes the active segment, in wall-clock milliseconds; None where it will have rolled, or never.

        By time it rolls and deletes an active segment in one step, if the whole log is older than the limit. By size it does so
        only where the limit is 0. What it tiers itself, it deletes only once it has uploaded it.

        Args:
            archived_end_offset: of the archive, None if there is none, or none is known.
            stable_end_offset: exclusive end of the stable offsets, None if it was never known.

        Source: UnifiedLog.deletableSegments, UnifiedLog.deleteRetentionMsBreachedSegments,
        UnifiedLog.deleteRetentionSizeBreachedSegments.
        """
        active, base_offset = files.active_log, files.active_base_offset
        policy = self.facts.policy(files.topic_partition.topic)
        if active is None or base_offset is None or not active.size_bytes or policy.is_tiered:
            return None
        # Replicas roll at other offsets: another leader's segments may have had it all.
        end_offset = math.inf if stable_end_offset is None else stable_end_offset
        if archived_end_offset is not None and archived_end_offset >= end_offset > base_offset:
            return None
        now_ms, limit_ms = self.clock.now_ms(), policy.local_limit_ms
        if policy.local_limit_bytes == 0:
            return now_ms
        if limit_ms is None or now_ms - self._at_least_ms(active, base_offset, now_ms) <= limit_ms // IDLE_SHARE:
            return None
        newest_ms = self._newest_ms(files, active, base_offset)
        self._known_ms = active.inode, newest_ms
        return newest_ms + limit_ms if now_ms - newest_ms > limit_ms // IDLE_SHARE else None

    def expected(self, plan: PartitionPlan) -> tuple[int, SegmentFiles] | None:
        """When it goes, and as which segment, if that is soon and nothing of it is archived; as of the last `with_active_risk`."""
        now_ms = self.clock.now_ms()
        if self._due_ms is None or self._due_ms - now_ms >= HOLD_MS:
            return None
        policy = self.facts.policy(plan.files.topic_partition.topic)
        end_offset = self._read[3] if self._read is not None and self._read[0] == plan.files.active_log else None
        tail = tail_of(plan.files, plan.facts, policy, end_offset, now_ms)
        return None if tail is None else (self._due_ms, tail)

    def _at_least_ms(self, active: FileIdentity, base_offset: int, now_ms: int) -> int:
        """What the newest record's time is not below, for little work: most logs are written to, and are not idle.

        Trap: a replica that was fetched again, or moved to another log dir, is a young file of old records.
        """
        written_ms = active.mtime_ms
        if active.size_bytes > SCANNED_BYTES_MAX:
            return written_ms
        if self._known_ms is None or self._known_ms[0] != active.inode:
            self._known_ms = active.inode, self.disk.first_timestamp_ms(active, base_offset)
        return min(self._known_ms[1], now_ms)

    def _newest_ms(self, files: PartitionFiles, active: FileIdentity, base_offset: int) -> int:
        """The largest timestamp of the log: retention takes nothing from above a segment that it has to leave."""
        if self._read is None or self._read[:2] != (active, files.segments):
            rolled_ms = max((self.disk.largest_timestamp_ms(segment) for segment in files.segments), default=-1)
            largest_ms, end_offset = self._read_through(active, base_offset)
            self._read = active, files.segments, max(rolled_ms, largest_ms), end_offset
        return self._read[2]

    def _read_through(self, active: FileIdentity, base_offset: int) -> tuple[int, int | None]:
        """The largest timestamp of a small segment, and where its batches end; the last write of a larger one, and None.

        Its index is the broker's: none may be read before the roll.
        """
        written_ms = active.mtime_ms
        if active.size_bytes > SCANNED_BYTES_MAX:
            return written_ms, None
        try:
            self.taken(active.size_bytes)
            largest_ms, end_offset = self.disk.newest_record(active, base_offset)
        except PartitionError:
            return written_ms, None  # The deadline is a forecast; an unreadable file is reported when it is archived.
        return (largest_ms if largest_ms >= 0 else written_ms), end_offset

    def with_active_risk(
        self,
        look: PartitionStatus,
        files: PartitionFiles,
        is_held: Callable[[FileIdentity | None], bool] = lambda _: False,
    ) -> PartitionStatus:
        """The status with the risk of the active segment now; the same object if that has not changed.

        `is_held`: whether a file is pinned, to be archived when the broker has deleted it.
        """
        deadline_ms = None
        if look.leads:
            deadline_ms = self.deadline_ms(files, look.archived_end_offset, look.local_end_offset)
        end_offset, reason = look.at_risk_end_offset, look.reason
        is_begun = (look.archived_end_offset or 0) > (files.active_base_offset or 0)
        self._due_ms = None if is_begun else deadline_ms
        if deadline_ms is not None and is_held(files.active_log):
            deadline_ms, reason = None, reason or Wait.ACTIVE_SEGMENT_PINNED
        if deadline_ms is not None and deadline_ms - self.clock.now_ms() < AT_RISK_MS:
            # The broker may have deleted all that has rolled: the pending segments are then only pinned.
            rolled_end_offset = files.active_base_offset if look.pending_segments else None
            if end_offset == rolled_end_offset:
                end_offset = look.local_end_offset
            reason = reason or Wait.ACTIVE_SEGMENT_IDLE
        if (deadline_ms, end_offset, reason) == (look.active_deadline_ms, look.at_risk_end_offset, look.reason):
            return look
        return replace(look, active_deadline_ms=deadline_ms, at_risk_end_offset=end_offset, reason=reason)
