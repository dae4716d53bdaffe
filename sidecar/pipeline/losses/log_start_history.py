"""Where a leader's log began, look by look, and how far that tells of records that were deleted on purpose."""

from __future__ import annotations

from bisect import bisect_right

from sidecar.archive.state import PartitionState
from sidecar.errors import PartitionError
from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.partition.archive_borders import Borders
from sidecar.partition.domain_events import DeletedRecordsUnknown, Emit
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.term import Term
from sidecar.reporting.log_sink import log_event
from sidecar.segment.local_disk import LocalDisk
from sidecar.segment.log_disk import LogDisk
from sidecar.topic_policy import TopicPolicy


class LogStartHistory:
    """What was seen since this broker was first seen to lead, in each term.

    `inside`: the highest log start that lay inside a segment, where only DeleteRecords can have moved it, as far as the log
    tells; retention may have moved it on since. `border`: a log start of that time that is one of the archive's borders.
    The turn of a partition may read it while a look at the disks, on another thread, has it see more.
    `borders`: those of the whole archive that a log start may still meet under this leadership, once they had to be read.
    """

    def __init__(self, emit: Emit = log_event, disk: LogDisk | None = None) -> None:
        self._emit = emit
        self._disk = disk or LocalDisk()
        self._term: Term | None = None
        self._first_start_offset: int | None = None
        self._read: tuple[int, bool] | None = None
        self._unknown: int | None = None
        self.inside: int | None = None
        self.border: int | None = None
        self.borders: Borders | None = None

    def see(self, files: PartitionFiles, facts: PartitionFacts, policy: TopicPolicy) -> None:
        """What a check of the partition found. A log that is moved to another log dir has other borders.

        The directory has to be listed after the leader was asked: a segment that it rolled since ends behind its log start.
        """
        term, before = facts.term(files), self._term
        self._term = term
        if before is None or not term.is_one_with(before):
            self._first_start_offset = self._read = self.inside = self.border = self.borders = None
        start_offset = facts.cluster_start_offset
        if not facts.leads or start_offset is None:
            return
        if self._first_start_offset is None:
            self._first_start_offset = start_offset
        if start_offset > (self.inside or 0) and start_offset != self.border:
            self._look_inside(files, facts, policy, start_offset)

    def has_moved(self, facts: PartitionFacts) -> bool:
        """Whether the log start of these facts is higher than it was, under one and the same leader epoch of ours."""
        first, now = self._first_start_offset, facts.cluster_start_offset
        return (
            self._term is not None
            and facts.leader_epoch == self._term.leader_epoch
            and first is not None
            and now is not None
            and now > first
        )

    def unnoted_in(self, state: PartitionState) -> int | None:
        """Up to which archived offset records look deleted on purpose, though no commit says so yet; None if there are none.

        The next commit of a segment looks closer, and says so or not.
        """
        return self._unnoted(self.inside, state)

    def unnoted_at(
        self, state: PartitionState, files: PartitionFiles, facts: PartitionFacts, policy: TopicPolicy
    ) -> int | None:
        """As `unnoted_in`, also by newer facts than `see` has got. Any thread may call it.

        Args:
            files: from an earlier look: its rolled segments have all the borders to which retention can have moved the start.
        """
        start_offset = facts.cluster_start_offset
        is_inside = (
            start_offset is not None
            and self._term is not None
            and facts.term(files).is_one_with(self._term)
            and self._moved_by_request(facts, policy)
            and _rolled_around(files, start_offset) is not None
        )
        return (self._unnoted(start_offset, state) if is_inside else None) or self.unnoted_in(state)

    @property
    def is_unknown(self) -> bool:
        """Whether the archive could not be read to decide if records were deleted on purpose."""
        return self.inside is not None and self.inside == self._unknown

    def is_in_ours(self, segment: SegmentFiles, facts: PartitionFacts, start_offset: int) -> bool:
        """Whether the batch below a log start was written under the present leader epoch. What cannot be read is told once."""
        read = self._read
        if read is None or read[0] != start_offset:
            try:
                read = start_offset, self._disk.leader_epoch_below(segment, start_offset) == facts.leader_epoch
            except PartitionError as error:
                self.report_unknown(facts, start_offset, error)
                return False
            self._read = read
        return read[1]

    def report_unknown(self, facts: PartitionFacts, start_offset: int, error: PartitionError) -> None:
        """What lies below the archive's end must not keep what lies above it from being archived."""
        if start_offset == self._unknown:
            return
        self._unknown = start_offset
        self._emit(DeletedRecordsUnknown(facts.topic_partition, start_offset, error))

    def _look_inside(
        self, files: PartitionFiles, facts: PartitionFacts, policy: TopicPolicy, start_offset: int
    ) -> None:
        rolled = _rolled_around(files, start_offset)
        if facts.leader_epoch < 0 or (rolled is None and active_below(files, start_offset) is None):
            return
        is_seen = self._moved_by_request(facts, policy)
        # An active segment is read where something hangs on it: it has no index that spares reading all of it.
        if is_seen or (rolled is not None and self.is_in_ours(rolled, facts, start_offset)):
            self.inside = start_offset

    def _moved_by_request(self, facts: PartitionFacts, policy: TopicPolicy) -> bool:
        """Whether only DeleteRecords can have moved the start to where it is, if that is inside a segment."""
        return self.has_moved(facts) and not policy.unanswered and not policy.remote_storage_enable

    def _unnoted(self, inside: int | None, state: PartitionState) -> int | None:
        if inside is None or inside == self.border:
            return None
        offset = min(inside, state.end_offset or 0)
        return offset if offset > state.deleted_before_offset else None


def _rolled_around(files: PartitionFiles, offset: int) -> SegmentFiles | None:
    """The rolled segment inside which an offset lies."""
    row = bisect_right(files.segments, offset, key=lambda segment: segment.end_offset)
    return files.segments[row] if row < len(files.segments) and files.segments[row].base_offset < offset else None


def active_below(files: PartitionFiles, offset: int) -> SegmentFiles | None:
    """The active segment, as one that ends behind an offset inside of it; None if it does not begin below."""
    log, base_offset = files.active_log, files.active_base_offset
    if log is None or base_offset is None or base_offset >= offset:
        return None
    return SegmentFiles(files.topic_partition, files.log_dir, base_offset, offset + 1, log, None, None, None, None)
