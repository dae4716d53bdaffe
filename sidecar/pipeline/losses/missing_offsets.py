"""Offsets that a segment should have and has not: taken by a compaction, or with a `.log` file that is gone."""

from __future__ import annotations

from sidecar.errors import CoverageHole
from sidecar.model import SegmentFiles
from sidecar.partition.domain_events import OffsetsTakenAsCompacted
from sidecar.pipeline.tools import Tools
from sidecar.segment.reading import SegmentReading


def lost_tail(tools: Tools, segment: SegmentFiles, descriptor: int, reading: SegmentReading) -> tuple[int, int] | None:
    """The offsets that are missing before the next segment, where no compaction explains it: a `.log` is gone between them.

    They may be all of the segment's. Then its file is empty, or the archive ends where the file does, as it does wherever
    all was archived that had been rolled. A broker rolls no empty segment: only a cleaner leaves one.
    A log that was compacted by another replica, and fetched from there, has no note of this broker's cleaner: there the
    batches tell, else the topic's `cleanup.policy`, as far as it is known.

    Raises CoverageHole unless such ranges are to be recorded as lost.
    Source: LogSegment.shouldRoll, LogCleanerManager.updateCheckpoints.
    """
    missing, topic = reading.missing_tail, segment.topic_partition.topic
    if missing is None or tools.disk.was_cleaned(segment.log_dir, segment.topic_partition):
        return None
    # The whole file would be taken for what a cleaner left: where the archive happens to end changes nothing in that.
    if segment.start_position and tools.disk.is_of_cleaned_file(segment, descriptor):
        return None
    policy = tools.facts.policy(topic)
    if policy.is_compacted:
        why = f"cleanup.policy has compact ({policy.origins['cleanup_policy']})"
        tools.emit(OffsetsTakenAsCompacted(segment, missing, why))
        return None
    if not tools.policy.record_lost:
        raise CoverageHole(
            f"{segment}: {_what_is_there(segment, missing[0])}, the next segment begins at {missing[1]}, and nothing says "
            f"that the log was ever compacted: a .log file is missing in {segment.directory}, or has lost its content. Restore "
            f"it from a replica, or set run.record_lost to record the range as LOST and go on. If another replica compacted "
            f"the log, say so in topics.policies: {{pattern: {topic}, cleanup_policy: compact}}",
            hole=missing,
        )
    return missing


def _what_is_there(segment: SegmentFiles, missing_from: int) -> str:
    if missing_from > segment.base_offset:
        return f"its last batch ends at offset {missing_from - 1}"
    if segment.start_position:
        return f"{segment.log.path} has nothing from offset {missing_from} on, where the archive ends"
    return f"{segment.log.path} is empty"
