"""What this process saw of a log of which nothing is archived yet: no commit can say what of it was gone before the first."""

from __future__ import annotations

from bisect import bisect_right

from sidecar.model import PartitionFiles
from sidecar.pipeline.lost_offsets import tell_gone_before_first
from sidecar.pipeline.tools import Tools
from sidecar.ports import PartitionFacts


class SeenOffsets:
    """Where a log began when it was first seen to be led here, and how much of it was seen to go since.

    Of a log in one directory, of one topic id, for as long as this broker leads it: under another leader it is for that one's
    sidecar. What had gone before the first look is nobody's loss: an archive begins where it was begun.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._log: tuple[tuple[int, int], str | None] | None = None
        self._start_offset: int | None = None
        self._gone_end_offset: int | None = None
        self._is_doubted = False

    def see(self, files: PartitionFiles, facts: PartitionFacts) -> None:
        """What a look at the partition tells, whatever is known of the archive.

        Retention moves a log's beginning to the base of a segment, also where it rolls and deletes the active one in one step. A
        beginning inside a segment was put there by DeleteRecords: what lies below it was deleted on purpose, and is no loss.

        Source: UnifiedLog.deleteOldSegments, UnifiedLog.maybeIncrementLogStartOffset.
        """
        log = (files.directory_id, files.topic_id)
        if log != self._log or not (facts.leads or facts.unanswered):
            self._forget()
        first_offset = files.first_offset
        if not facts.leads or first_offset is None:
            return
        log_start_offset = facts.log_start_offset if facts.cluster_start_offset is None else facts.cluster_start_offset
        if self._start_offset is None:
            self._log, self._start_offset = log, max(first_offset, log_start_offset)
        elif _lies_inside(files, log_start_offset):
            if log_start_offset > self._start_offset and (self._gone_end_offset is None or self._is_doubted):
                self._start_offset, self._gone_end_offset, self._is_doubted = log_start_offset, None, False
        elif first_offset > self._start_offset:
            self._gone_end_offset = first_offset

    def tell(self, facts: PartitionFacts, archived_end_offset: int | None, first_offset: int | None) -> None:
        """Tell what is gone, once: nothing else ever will. Call `see` first.

        Args:
            archived_end_offset: of the archive, None if it has nothing.
            first_offset: of what can still be archived, from the directory or from descriptors; None if there is nothing.
        """
        if archived_end_offset is not None and not self._is_doubted:
            self._forget()  # From here on the archive shows what it lacks.
            return
        start_offset, end_offset = self._start_offset, self._gone_end_offset
        if start_offset is None or end_offset is None or first_offset is None:
            return
        end_offset = min(end_offset, first_offset)
        told = facts.cluster_start_offset
        if told is not None and told < end_offset and not self._is_doubted:
            # It was asked before the directory was listed: its next answer tells retention from DeleteRecords.
            self._is_doubted = True
            return
        if told is not None and self._tools.facts.policy(facts.topic_partition.topic).remote_storage_enable:
            end_offset = min(
                end_offset, told
            )  # What local retention took above its log start, the broker has in its tier.
        if end_offset > start_offset:
            tell_gone_before_first(self._tools, facts.topic_partition, (start_offset, end_offset), told)
        self._start_offset, self._gone_end_offset, self._is_doubted = max(start_offset, end_offset), None, False

    def _forget(self) -> None:
        self._log = self._start_offset = self._gone_end_offset = None
        self._is_doubted = False


def _lies_inside(files: PartitionFiles, offset: int) -> bool:
    """Whether an offset lies inside one of the listed segments; their beginnings do not."""
    row = bisect_right(files.segments, offset, key=lambda segment: segment.end_offset)
    if row < len(files.segments):
        return files.segments[row].base_offset < offset
    return files.active_base_offset is not None and offset > files.active_base_offset
