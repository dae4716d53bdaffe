"""Were records deleted on purpose? The broker's log start tells, where retention cannot have moved it there."""

from __future__ import annotations

from sidecar.archive.actions import DeleteRecords
from sidecar.archive.state import PartitionState
from sidecar.errors import PartitionError
from sidecar.logformat.time_index import ENTRY, read_time_index
from sidecar.model import PartitionFiles, SegmentFiles, TopicPolicy
from sidecar.ports import PartitionFacts


def deleted_on_purpose(
    files: PartitionFiles,
    facts: PartitionFacts,
    policy: TopicPolicy,
    state: PartitionState,
    end_offset: int,
    now_ms: int,
) -> list[DeleteRecords]:
    """What the next commit is to say of deleted records: one action or none.

    Retention moves the log start to the base of a segment; only DeleteRecords moves it into one. A follower takes over its
    leader's log start, which lies inside a segment of its own where the two rolled at different offsets. So a start is not
    taken for DeleteRecords if a segment begins there, here or in the archive, or if retention explains it.

    Args:
        end_offset: of the archive after that commit.

    Raises PartitionError for a time index that cannot be read.
    Source: UnifiedLog.deleteOldSegments, UnifiedLog.maybeIncrementLogStartOffset.
    """
    start_offset = max(facts.log_start_offset, facts.cluster_start_offset or 0)
    if min(start_offset, end_offset) <= max(state.deleted_before_offset, state.start_offset or 0):
        return []
    here = {files.active_base_offset, *(segment.base_offset for segment in files.segments)}
    archived = {segment.base_offset for segment in state.segments}
    inside = next((found for found in files.segments if found.base_offset < start_offset < found.end_offset), None)
    if (
        start_offset in here | archived
        or inside is None
        or _retention_explains(files, inside, start_offset, policy, now_ms)
    ):
        return []
    return [DeleteRecords(min(start_offset, end_offset))]


def _retention_explains(
    files: PartitionFiles, inside: SegmentFiles, start_offset: int, policy: TopicPolicy, now_ms: int
) -> bool:
    limit_ms, limit_bytes = policy.local_limit_ms, policy.local_limit_bytes
    local_bytes = sum(segment.size_bytes for segment in files.segments)
    local_bytes += 0 if files.active_log is None else files.active_log.size_bytes
    if limit_bytes is not None and local_bytes >= limit_bytes:
        return True
    if limit_ms is None or inside.time_index is None:
        return False
    path = inside.time_index.path
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return True  # The broker is deleting this segment: the next commit tells.
    except OSError as error:
        raise PartitionError(f"{path} cannot be read: {error.strerror or error}") from error
    index = read_time_index(data[: len(data) // ENTRY.itemsize * ENTRY.itemsize], inside.base_offset, str(path))
    below = index.truncate_to(start_offset)
    # Records are deleted in order: where a young one is gone, its age was not the reason.
    return len(below) > 0 and int(below.timestamp_ms.max()) + limit_ms <= now_ms
