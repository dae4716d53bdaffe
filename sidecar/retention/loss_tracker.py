"""What this process saw of a log of which nothing is archived yet: no commit can say what of it was gone before the first."""

from typing import Any, Protocol, TypeAlias

from sidecar.archive.coverage import joined_spans
from sidecar.host.archive_cache import HasMemory
from sidecar.host.pinned_files import HasPins
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.domain_events import OffsetsLost
from sidecar.partition.facts import Change, PartitionFacts
from sidecar.ports import HasEmit, HasFacts
from sidecar.segment.log_disk import HasDisk

_Span: TypeAlias = tuple[int, int]


class PinPorts(HasDisk, HasFacts, HasEmit, HasMemory, HasPins, Protocol):
    """What this, and the pinned log, take of the world."""


class LossTracker:
    """Where a log began when it was first seen to be led here, and how much of it was seen to go since.

    In one term of this broker: no other broker leads in between, though there may be times without a leader. What goes under
    another leader is for that leader's sidecar to report. What had gone before the first check is no loss: an archive begins where
    it was begun. What was seen to go stays to be reported, by the next process too, until the archive can be read.
    """

    def __init__(self, context: PinPorts) -> None:
        self._context = context
        self._partition: TopicPartition | None = None
        self._name: tuple[Any, ...] = ()
        self._start_offset: int | None = None
        self._gone_end_offset: int | None = None
        self._retained_end_offset: int | None = None
        self.is_doubted = False
        self._unreported: tuple[_Span, ...] = ()
        self._kept: tuple[_Span, ...] = ()

    def see(self, files: PartitionFiles, facts: PartitionFacts, change: Change) -> None:
        """Take in a check of the partition, whatever is known of the archive. `change`: of its term.

        Retention moves a log's beginning to the base of a segment, also where it rolls and deletes the active one in one step. A
        beginning inside a segment was put there by DeleteRecords: what lies below it was deleted on purpose, and is no loss.

        Source: UnifiedLog.deleteOldSegments, UnifiedLog.maybeIncrementLogStartOffset.
        """
        if change >= Change.LOG:
            self._begin(files)
        elif change is Change.LEADER_EPOCH:
            self._set_aside()
        first_offset = files.first_offset
        # While a cleaner replaces segments, the first ones may have no name: a later check shows whether they are gone.
        if not facts.leads or first_offset is None or files.unstable:
            self._keep()
            return
        log_start_offset = facts.log_start_offset if facts.cluster_start_offset is None else facts.cluster_start_offset
        if self._start_offset is None:
            self._start_offset = max(first_offset, log_start_offset)
        elif _lies_inside(files, log_start_offset):
            if log_start_offset > self._start_offset:
                # What retention had deleted before is still to be reported; nothing else is a loss.
                self._gone_end_offset = self._retained_end_offset
                self._set_aside()
                self._start_offset = log_start_offset
        elif first_offset > self._start_offset:
            self._gone_end_offset = first_offset
            if log_start_offset >= first_offset:
                self._retained_end_offset = first_offset
            self._name = self._name or self._name_of(files)
        self._keep()

    @property
    def has_losses(self) -> bool:
        """Whether offsets were seen to go that are not reported yet. Where nothing is archived, `report` takes them for lost."""
        return bool(self._unreported) or self._gone_end_offset is not None

    def report(
        self,
        facts: PartitionFacts,
        archived_start_offset: int | None,
        archived_end_offset: int | None,
        first_offset: int | None,
    ) -> None:
        """Report what is gone, once: nothing else ever will. Call `see` first.

        `archived_start_offset`, `archived_end_offset`: of the archive, None if it has nothing. `first_offset`: of what can still be
        archived, from the directory or from descriptors; None if there is nothing.
        """
        is_empty = archived_end_offset is None
        begins = first_offset if is_empty else archived_start_offset
        self._report_earlier(facts, is_empty, begins)
        if not is_empty and not self.is_doubted:
            # From here on the archive shows what it lacks.
            self._start_offset = self._gone_end_offset = self._retained_end_offset = None
        start_offset, end_offset = self._start_offset, self._gone_end_offset
        if start_offset is not None and end_offset is not None and begins is not None:
            self._report_gone(facts, start_offset, end_offset, begins)
        self._keep()

    def _report_gone(self, facts: PartitionFacts, start_offset: int, gone_end_offset: int, begins: int) -> None:
        end_offset = min(gone_end_offset, begins)
        reported = facts.cluster_start_offset
        if reported is not None and reported < end_offset and not self.is_doubted:
            # It was asked before the directory was listed: its next response distinguishes retention from DeleteRecords.
            self.is_doubted = True
            return
        end_offset = self._not_in_a_tier(facts, end_offset)
        if end_offset > start_offset:
            self._emit(facts, start_offset, end_offset)
        # What is left can be archived yet, from descriptors that end with the process.
        left = gone_end_offset if end_offset < gone_end_offset else None
        self._start_offset, self._gone_end_offset, self.is_doubted = max(start_offset, end_offset), left, False

    def _report_earlier(self, facts: PartitionFacts, is_empty: bool, begins: int | None) -> None:
        """What was seen to go under an earlier leadership, or by an earlier process, and is not archived by anybody.

        `begins`: where the archive begins, or will.
        """
        if begins is None:
            return
        unreported, self._unreported = self._unreported, ()
        if is_empty:  # Descriptors have the rest, which may come to nothing yet.
            self._unreported = tuple((max(start, begins), end) for start, end in unreported if end > begins)
        for start_offset, gone_end_offset in unreported:
            end_offset = self._not_in_a_tier(facts, min(gone_end_offset, begins))
            if end_offset > start_offset:
                self._emit(facts, start_offset, end_offset)

    def _emit(self, facts: PartitionFacts, start_offset: int, end_offset: int) -> None:
        """No commit can say so: the archive begins above."""
        span, reported = (start_offset, end_offset), facts.cluster_start_offset
        self._context.emit(OffsetsLost(facts.topic_partition, *span, reported, is_recorded=False))

    def _not_in_a_tier(self, facts: PartitionFacts, end_offset: int) -> int:
        """What local retention took above its log start, a broker that tiers the topic still has."""
        reported = facts.cluster_start_offset
        is_tiered = self._context.facts.policy(facts.topic_partition.topic).remote_storage_enable
        return end_offset if reported is None or not is_tiered else min(end_offset, reported)

    def _begin(self, files: PartitionFiles) -> None:
        """Another log; or the same one in another directory, under a name that it has got since, or in a new process."""
        is_first, before = self._partition is None, self._name
        self._partition = files.topic_partition
        known = self._context.memory.gone(files.topic_partition)
        if is_first and known is not None:
            before, self._unreported = known
            self._kept = self._unreported
        self._set_aside()
        self._name = ()
        if self._unreported:
            self._name = self._name_of(files)
            self._unreported = self._unreported if _may_be_one(before, self._name) else ()

    def _set_aside(self) -> None:
        start_offset, end_offset = self._start_offset, self._gone_end_offset
        if start_offset is not None and end_offset is not None and end_offset > start_offset:
            self._unreported = joined_spans((*self._unreported, (start_offset, end_offset)))
        self._start_offset = self._gone_end_offset = self._retained_end_offset = None
        self.is_doubted = False

    def _name_of(self, files: PartitionFiles) -> tuple[Any, ...]:
        """What a log is known by in another process. Devices are not in it: a restart may give them other numbers."""
        found = self._context.disk.fingerprint(files)
        return files.topic_id, str(found.directory), found.inode, found.birth_ns

    def _keep(self) -> None:
        """Store what is not reported yet, so that it outlives the process."""
        spans = self._unreported
        if self._start_offset is not None and self._gone_end_offset is not None:
            spans = joined_spans((*spans, (self._start_offset, self._gone_end_offset)))
        if spans != self._kept and self._partition is not None:
            self._context.memory.note_gone(self._partition, (self._name, spans))
            self._kept = spans


def _may_be_one(name: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether both may be names of one log: its topic id decides. Where one of them has none, a broker may have moved it to another
    log dir; in the same one, another directory is another log.
    """
    if None in (*name[:1], *other[:1]):
        return name[1:2] != other[1:2] or name[2:] == other[2:]
    return name[:1] == other[:1]


def _lies_inside(files: PartitionFiles, offset: int) -> bool:
    """Whether an offset lies inside one of the listed segments; their beginnings do not."""
    if (found := files.first_above(offset)) is not None:
        return found.base_offset < offset
    return files.active_base_offset is not None and offset > files.active_base_offset
