"""The active segment of an idle log as the segment that it will be: retention rolls and deletes it in one step."""

from __future__ import annotations

from typing import Final

from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.retention import NS_PER_MS
from sidecar.pipeline.partition_status import AT_RISK_MS
from sidecar.topic_policy import TopicPolicy

HOLD_MS: Final = 2 * AT_RISK_MS
"""So long before its deletion it is held open: before anybody is told that it is at risk."""
STILL_MS: Final = 5_000
"""What was written to so lately may have grown after the leader was asked where the log ends."""


def tail_of(
    files: PartitionFiles, facts: PartitionFacts, policy: TopicPolicy, end_offset: int | None, now_ms: int
) -> SegmentFiles | None:
    """The active segment, rolled where the leader says that the log ends; None where it does not say, or it may grow.

    It has no indexes: the broker's have their full size until the roll, and what retention took is rebuilt in any case.

    Args:
        end_offset: where its batches end, None where nobody has looked.

    A file as long as a segment may be was allocated so (`preallocate`): the roll cuts it, and it is another one then.
    Source: FileRecords.open, LogSegment.onBecomeInactiveSegment.
    """
    active, base_offset = files.active_log, files.active_base_offset
    if active is None or base_offset is None or now_ms - active.mtime_ns // NS_PER_MS < STILL_MS:
        return None
    is_told = facts.leads and not facts.reason and facts.transactions_decided and not facts.transaction_open
    stable_end_offset = facts.stable_end_offset
    if not is_told or stable_end_offset <= base_offset or end_offset not in {None, stable_end_offset}:
        return None
    if policy.segment_bytes is not None and active.size_bytes >= policy.segment_bytes:
        return None
    place = files.topic_partition, files.log_dir, base_offset, stable_end_offset
    return SegmentFiles(*place, active, None, None, None, None)
