"""Pure: which pinned segments of a log stay pinned at a check, why each of the others goes, and which of them are decided."""

from collections.abc import Iterable
from typing import Final

from sidecar.archive.state import PartitionState
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles
from sidecar.partition.facts import Change, PartitionFacts
from sidecar.partition.wait_reason import StrayDirectory

NO_LOSS: Final = ""
"""Nothing is lost with the pin: its segment is archived or listed, it was truncated or compacted, or another broker leads."""
RECREATED: Final = "the topic was deleted, and created again, before it was archived"
DELETED: Final = (
    "the topic or this replica was deleted before it was archived; where another replica leads, its sidecar goes on"
)
NOT_CHOSEN: Final = "the settings do not choose its topic any more"
OTHER_LOG: Final = "another log has taken its directory"
OTHER_EPOCH: Final = "the leader epoch changed, and its records may have been truncated"
COPY_BACK: Final = (
    "Set the topic's retention.ms and retention.bytes to -1 at once, and call no DeleteRecords: when the broker's retention "
    "reaches a missing file, the whole log directory goes offline. Unless the broker truncated the log, copy the file back from "
    "the broker's open file before that, and before the broker restarts (docs/explanation/retention.md). Or make another in-sync "
    "replica the leader"
)
"""What to do about a file that neither retention nor the cleaner deleted."""


def why_released(
    segment: SegmentFiles,
    files: PartitionFiles,
    facts: PartitionFacts,
    change: Change,
    *,
    leads: bool,
    kept_end_offset: int | None = None,
    tail: FileIdentity | None = None,
    before: Iterable[SegmentFiles] = (),
) -> str | None:
    """Why a pin goes at a check, None where it stays.

    Wanted are the unchanged files of the directory, those below the log's beginning there, and those that the cleaner has
    replaced, until `replacement` is pinned. Retention takes a log from its beginning; what else is gone was truncated, or
    `is_deleted_between`. That is reported, and not archived from the pin: a broker that ends amid a truncation leaves the same
    files, and others have the records. The broker has the file open until it restarts or its retention reaches it; see
    docs/explanation/retention.md.

    Args:
        change: of the term, `LOG` only for another copy of the log.
        leads: no other leader is named.
        kept_end_offset: up to there this log has what it had under the leader epoch before, None where that is not asked.
        tail: the active segment, if it is pinned.
        before: the rolled segments of the listing before.
    """
    if change is Change.TOPIC or isinstance(facts.reason, StrayDirectory):
        return RECREATED
    if change is Change.LOG:
        return NO_LOSS if _has_offsets(segment, files, facts) else OTHER_LOG
    if not leads:
        return NO_LOSS
    taken = is_taken(segment, files)
    if kept_end_offset is not None and segment.end_offset > kept_end_offset:
        return OTHER_EPOCH if taken else NO_LOSS
    if is_deleted_between(segment, files, before):
        return (
            f"its offsets from {segment.base_offset} to {segment.end_offset - 1} were not archived, and something other than the "
            f"broker's retention and cleaner deleted the file. {COPY_BACK}"
        )
    is_wanted = taken or _stands(segment, files) or (segment.log == tail and _is_active(segment, files))
    return None if is_wanted else NO_LOSS


def is_taken(segment: SegmentFiles, files: PartitionFiles) -> bool:
    return segment.end_offset <= (files.first_offset or 0)


def is_deleted_between(segment: SegmentFiles, files: PartitionFiles, before: Iterable[SegmentFiles]) -> bool:
    """Whether its file is gone, and the file below, which is as it was in the listing `before`, now reaches over its offsets.

    A cleaner writes a new file in the place of those that it takes. A truncation takes the files above, too, one after the other.
    Source: LocalLog.replaceSegments, LocalLog.truncateTo, LocalLog.deleteSegmentFiles.
    """
    found = None if files.unstable else _listed_for(segment, files)
    if found is None or found == segment.log:
        return False
    return any(known.log == found and known.end_offset <= segment.base_offset for known in before)


def _has_offsets(segment: SegmentFiles, files: PartitionFiles, facts: PartitionFacts) -> bool:
    """Whether this copy of the log has the offsets, too, as far as is known."""
    end_offset = max(files.active_base_offset or 0, facts.stable_end_offset)
    return (files.first_offset or 0) <= segment.base_offset and segment.end_offset <= end_offset


def reaches_above(segment: SegmentFiles, archived_end_offset: int | None) -> bool:
    """Whether it reaches above the archive's end. That may lie inside of it: another leader rolled at other offsets."""
    return archived_end_offset is None or segment.end_offset > archived_end_offset


def is_covered(segment: SegmentFiles, archived: PartitionState, start_offset: int | None) -> bool:
    """Whether the archive has all of its offsets, none of them as a recorded loss. `start_offset`: of the archive."""
    if start_offset is None or segment.base_offset < start_offset or reaches_above(segment, archived.end_offset):
        return False
    return not any(
        hole.base_offset < segment.end_offset and segment.base_offset < hole.end_offset for hole in archived.holes
    )


def decided_end_offset(files: PartitionFiles, facts: PartitionFacts, known: int) -> int:
    """Below it no transaction is open, as far as the leader says. `known`: what was found before.

    A leader raises its last stable offset to its log start, also while a transaction is open that began below. So it says
    something about deleted segments only where it is higher.

    Source: UnifiedLog.maybeIncrementFirstUnstableOffset.
    """
    is_raised = facts.stable_end_offset <= max(facts.known_log_start, files.first_offset or 0)
    return known if facts.transactions_decided and is_raised else facts.stable_end_offset


def replacement(segment: SegmentFiles, files: PartitionFiles) -> FileIdentity | None:
    """What the cleaner, or a move to another log dir, has put in its place; None for nothing, or if it is not known yet.

    While the cleaner replaces segments, a listing gives the offsets of those without a name to the segment before.
    """
    found = _listed_for(segment, files)
    return None if files.unstable or found is None or _is_one(found, segment.log) else found


def _stands(segment: SegmentFiles, files: PartitionFiles) -> bool:
    """Whether its file lies in the directory as it was planned, or another one in its place. One that changed was truncated."""
    found = _listed_for(segment, files)
    return found is not None and (found == segment.log or not _is_one(found, segment.log))


def _listed_for(segment: SegmentFiles, files: PartitionFiles) -> FileIdentity | None:
    """The file of the rolled segment that has its last offset; None if none has."""
    found = files.first_above(segment.end_offset - 1)
    return None if found is None or found.base_offset >= segment.end_offset else found.log


def _is_one(file: FileIdentity, other: FileIdentity) -> bool:
    """Whether both are one file, which may have changed in between."""
    return (file.directory, file.inode) == (other.directory, other.inode)


def _is_active(segment: SegmentFiles, files: PartitionFiles) -> bool:
    """Whether its file is the active one, as it was; also where it was deleted while it was listed: the next listing shows it.

    Trap: a rolled segment may be the active one again, after a truncation.
    """
    active = files.active_log
    return active == segment.log or (active is None and files.active_base_offset == segment.base_offset)
