"""Where a leader's log began, check by check, and how far that shows records that were deleted on purpose.

Also where the logs that an archive was made of had the borders of their segments: small enough to be kept between commits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sidecar.archive.keys import Lineage
from sidecar.archive.state import PartitionState
from sidecar.errors import PartitionError
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.partition.domain_events import DeletedRecordsUnknown, Emit
from sidecar.partition.facts import Change, PartitionFacts, Term
from sidecar.segment.log_disk import LogDisk
from sidecar.topic_policy import TopicPolicy


@dataclass(frozen=True, slots=True)
class Borders:
    """The borders of a lineage that ends at `end_offset`; those below `from_offset` were left out.

    `offsets`: where a segment or a gap begins or ends. `merged`: the ranges, the end exclusive, of segments that were made of
    several, inside which any offset may have been one.
    """

    lineage: Lineage
    from_offset: int
    end_offset: int
    offsets: frozenset[int]
    merged: tuple[tuple[int, int], ...]

    def may_have(self, offset: int) -> bool:
        """Whether a segment of the logs that were archived may have begun at an offset."""
        return offset in self.offsets or any(base < offset < end for base, end in self.merged)

    def up_to(self, state: PartitionState) -> Borders | None:
        """These and the ones of what a later state has above them; None where it does not reach down to their end.

        What compaction replaced below their end had the borders that are known here.
        """
        later = borders_of(state)
        reaches = state.is_whole or (bool(state.segments) and state.segments[0].base_offset <= self.end_offset)
        if state.lineage != self.lineage or later.end_offset < self.end_offset or not reaches:
            return None
        merged = [*self.merged, *(found for found in later.merged if found[1] > self.end_offset)]
        both = Borders(self.lineage, 0, later.end_offset, self.offsets | later.offsets, tuple(dict.fromkeys(merged)))
        return both.above(self.from_offset)

    def above(self, offset: int) -> Borders:
        """Those at this offset and above: no more than segments of a log that begins there have."""
        offsets = frozenset(found for found in self.offsets if found >= offset)
        merged = tuple(found for found in self.merged if found[1] > offset)
        return Borders(self.lineage, max(offset, self.from_offset), self.end_offset, offsets, merged)


def borders_of(state: PartitionState) -> Borders:
    """Of what a state has, be it the whole archive or its newest part."""
    end_offset = -1 if state.end_offset is None else state.end_offset
    offsets = {end_offset}
    for spans in (state.segments, state.removed, state.holes):
        offsets.update(border for span in spans for border in (span.base_offset, span.end_offset))
    merged = tuple(
        (found.base_offset, found.end_offset)
        for found in state.segments
        if found.generation and (found.compacted_from is None or found.compacted_from.base_offset != found.base_offset)
    )
    return Borders(state.lineage, 0, end_offset, frozenset(offsets), merged)


@dataclass(frozen=True, slots=True)
class LogStarts:
    """What was seen since this broker was first seen to lead, in one term. A value: each check gives the next one.

    `inside`: the highest log start that lay inside a segment, where only DeleteRecords can have moved it, as far as the log
    shows; retention may have moved it on since. `border`: a log start of that time that is one of the archive's borders.
    `borders`: those of the whole archive that a log start may still meet under this leadership, once they had to be read.
    `read`: a log start, and whether the batch below it was written under the present leader epoch. `unknown`: a log start for
    which the archive or the log could not be read. `below_files`: the newest log start below all local files, where only
    the broker's own tier has the segments: the archive shows what it is.
    """

    term: Term | None = None
    first_start_offset: int | None = None
    inside: int | None = None
    border: int | None = None
    borders: Borders | None = None
    read: tuple[int, bool] | None = None
    unknown: int | None = None
    below_files: int | None = None

    def in_term(self, term: Term, change: Change) -> LogStarts:
        return replace(self, term=term) if change <= Change.TOPIC_ID else LogStarts(term, unknown=self.unknown)

    def seen(
        self, files: PartitionFiles, facts: PartitionFacts, policy: TopicPolicy, disk: LogDisk, emit: Emit
    ) -> LogStarts:
        """After a check of the partition, in its term. A log that is moved to another log dir has other borders.

        The directory has to be listed after the leader was asked: a segment that it rolled since ends behind its log start.
        """
        start_offset = facts.cluster_start_offset
        if not facts.leads or start_offset is None:
            return self
        found = self if self.first_start_offset is not None else replace(self, first_start_offset=start_offset)
        if start_offset <= (found.inside or 0) or start_offset == found.border or facts.leader_epoch < 0:
            return found
        if start_offset < (files.first_offset or 0):
            # Of another topic, retention came between the two, and a log that was moved has borders that the archive lacks.
            return replace(found, below_files=start_offset) if policy.remote_storage_enable else found
        rolled = _rolled_around(files, start_offset)
        if rolled is None and active_below(files, start_offset) is None:
            return found
        if found.is_moved_by_request(facts, policy):
            return replace(found, inside=start_offset)
        if rolled is None:
            return found  # An active segment is read where something hangs on it: no index spares reading all of it.
        found = found.with_read(rolled, facts, start_offset, disk, emit)
        return replace(found, inside=start_offset) if found.is_in_ours(start_offset) else found

    def learned(self, other: LogStarts) -> LogStarts:
        """With what a commit has found out in the same term, while checks went on."""
        if self.term is None or other.term is None or not self.term.is_one_with(other.term):
            return self
        return replace(
            self,
            border=other.border,
            borders=other.borders or self.borders,
            read=other.read or self.read,
            inside=max(self.inside or 0, other.inside or 0) or None,
            unknown=self.unknown if other.unknown is None else other.unknown,
        )

    def archive_read_again(self) -> LogStarts:
        """Another writer may have undone a compaction: what was merged may show its borders again."""
        return self if self.border is None else replace(self, border=None, borders=None)

    def has_moved(self, facts: PartitionFacts) -> bool:
        """Whether the log start of these facts is higher than it was, under one and the same leader epoch of ours."""
        first, now = self.first_start_offset, facts.cluster_start_offset
        return (
            self.term is not None
            and facts.leader_epoch == self.term.leader_epoch
            and first is not None
            and now is not None
            and now > first
        )

    def unnoted_in(self, state: PartitionState) -> int | None:
        """Up to which archived offset records were probably deleted on purpose, though no commit says so yet; None if
        there are none.

        The next commit of a segment checks this, and records it or not.
        """
        return self._unnoted(self.inside, state)

    def unnoted_at(
        self, state: PartitionState, files: PartitionFiles, facts: PartitionFacts, policy: TopicPolicy
    ) -> int | None:
        """As `unnoted_in`, also by newer facts.

        Args:
            files: from an earlier check: its rolled segments have all the borders to which retention can have moved the start.
        """
        start_offset = facts.cluster_start_offset
        is_inside = (
            start_offset is not None
            and self.term is not None
            and facts.term(files).is_one_with(self.term)
            and self.is_moved_by_request(facts, policy)
            and _rolled_around(files, start_offset) is not None
        )
        return (self._unnoted(start_offset, state) if is_inside else None) or self.unnoted_in(state)

    @property
    def is_unknown(self) -> bool:
        """Whether the archive could not be read to decide if records were deleted on purpose."""
        return self.inside is not None and self.inside == self.unknown

    def with_read(
        self, segment: SegmentFiles, facts: PartitionFacts, start_offset: int, disk: LogDisk, emit: Emit
    ) -> LogStarts:
        """Knowing whether the batch below a log start was written under the present leader epoch, unless it cannot be read."""
        if self.read is not None and self.read[0] == start_offset:
            return self
        try:
            is_ours = disk.leader_epoch_below(segment, start_offset) == facts.leader_epoch
        except PartitionError as error:
            return self.with_unknown(facts, start_offset, error, emit)
        return replace(self, read=(start_offset, is_ours))

    def with_archived(self, archive: PartitionState, facts: PartitionFacts, start_offset: int) -> LogStarts:
        """As `with_read`, by the archive."""
        below = start_offset - 1
        epochs = [found.leader_epochs for found in archive.segments if found.base_offset <= below < found.end_offset]
        is_ours = any(LeaderEpochs(found).epoch_for_offset(below) == facts.leader_epoch for found in epochs)
        return replace(self, read=(start_offset, is_ours))

    def is_in_ours(self, start_offset: int) -> bool:
        return self.read == (start_offset, True)

    def with_unknown(self, facts: PartitionFacts, start_offset: int, error: PartitionError, emit: Emit) -> LogStarts:
        """What cannot be read is reported once: what lies below the archive's end must not stop what lies above it."""
        if start_offset != self.unknown:
            emit(DeletedRecordsUnknown(facts.topic_partition, start_offset, error))
        return replace(self, unknown=start_offset)

    def is_moved_by_request(self, facts: PartitionFacts, policy: TopicPolicy) -> bool:
        """Whether only DeleteRecords can have moved the start to where it is, if that is inside a segment."""
        return self.has_moved(facts) and not policy.unanswered and not policy.remote_storage_enable

    def _unnoted(self, inside: int | None, state: PartitionState) -> int | None:
        if inside is None or inside == self.border:
            return None
        offset = min(inside, state.end_offset or 0)
        return offset if offset > state.deleted_before_offset else None


def _rolled_around(files: PartitionFiles, offset: int) -> SegmentFiles | None:
    found = files.first_above(offset)
    return found if found is not None and found.base_offset < offset else None


def active_below(files: PartitionFiles, offset: int) -> SegmentFiles | None:
    """The active segment, as one that ends behind an offset inside of it; None if it does not begin below."""
    log, base_offset = files.active_log, files.active_base_offset
    if log is None or base_offset is None or base_offset >= offset:
        return None
    return SegmentFiles(files.topic_partition, files.log_dir, base_offset, offset + 1, log, None, None, None, None)
