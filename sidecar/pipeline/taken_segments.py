"""Pure: which of the segments that are held open retention has taken from the log's directory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from sidecar.model import PartitionFiles, SegmentFiles


def taken(segments: Iterable[SegmentFiles], files: PartitionFiles) -> tuple[SegmentFiles, ...]:
    """Those that lie below the log's beginning in its directory. What is gone from above it was truncated or compacted."""
    start_offset = files.first_offset or 0
    return tuple(found for found in segments if found.end_offset <= start_offset and not stands(found, files))


def stands(segment: SegmentFiles, files: PartitionFiles) -> bool:
    """Whether its file lies in the directory as it was planned."""
    row = bisect_right(files.segments, segment.base_offset, key=lambda listed: listed.end_offset)
    return row < len(files.segments) and files.segments[row].log == segment.log


def is_active(segment: SegmentFiles, files: PartitionFiles) -> bool:
    """Whether its file is the active one, as it was; also where it went while it was listed: the next listing tells.

    Trap: a rolled segment may be the active one again, after a truncation.
    """
    active = files.active_log
    return active == segment.log or (active is None and files.active_base_offset == segment.base_offset)


def below(
    log_start_offset: int | None, gone: Iterable[SegmentFiles], archived_end_offset: int | None
) -> tuple[SegmentFiles, ...]:
    """Those of them below the log start that the leader tells, each above the one before it.

    Args:
        log_start_offset: None where it is not known.
        archived_end_offset: what they are to continue, None where nothing is archived.
    """
    end_offset = -1 if archived_end_offset is None else archived_end_offset
    found: list[SegmentFiles] = []
    for segment in gone:
        if (
            log_start_offset is not None
            and end_offset <= segment.base_offset
            and segment.end_offset <= log_start_offset
        ):
            found.append(segment)
            end_offset = segment.end_offset
    return tuple(found)
