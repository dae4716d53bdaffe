"""Pure: which rolled segments of one partition may be archived now, in offset order; and if not all, why not."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.errors import CoverageHole, LineageUnknown, PartitionError
from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.partition.facts import PartitionFacts, Term
from sidecar.partition.wait_reason import (
    AboveCheckpoints,
    AboveHighWatermark,
    AboveLastStableOffset,
    BehindArchive,
    DeletedBelowLogStart,
    NotContiguous,
    NotLeader,
    RecentlyChanged,
    SnapshotGrace,
    Wait,
    WaitReason,
)

STABLE_SOON_MS = 200
LAST_RESORT: Final = (
    "As the last resort, run.record_lost records the range as LOST, and archiving continues above it. That is final: this archive "
    "cannot get the offsets later"
)
"""Of a gap."""


@dataclass(frozen=True, slots=True)
class Settling:
    """How long files must have been left alone before they are believed.

    `settle_ms`: since the last change of the segment's files (start-up recovery rewrites indexes in place). Not where the
    leader itself has returned its last stable offset: it recovers before it leads.
    `snapshot_grace_ms`: a roll writes the snapshot after the new `.log`; a missing one is believed missing only so long
    after the new `.log` came. When the old one was last written says nothing: an idle topic rolls hours later.
    """

    settle_ms: int
    snapshot_grace_ms: int


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What is to be done for a partition now.

    `segments`: contiguous, ascending, to be archived. `waiting`: rolled, but not yet allowed; `reason`: why, None where `error`
    says it. `is_on_purpose`: they wait because the settings say so. `recheck_in_ms`: waiting segments may be ready that soon.
    `error`: set where a person is needed. `hole`: `[from, to)` that no local file covers any more, if the error is that.
    `is_provisional`: made from the disk alone: the segments are worth pinning, and the partition's next plan decides.
    `deadline_ms`: when the broker will delete the first segment that is not archived, None for never or if it is not known.
    """

    files: PartitionFiles
    facts: PartitionFacts
    segments: tuple[SegmentFiles, ...]
    waiting: tuple[SegmentFiles, ...]
    reason: WaitReason | None = None
    error: PartitionError | None = None
    hole: tuple[int, int] | None = None
    recheck_in_ms: int | None = None
    deadline_ms: int | None = None
    is_on_purpose: bool = False
    is_provisional: bool = False

    @property
    def term(self) -> Term:
        return self.facts.term(self.files)

    @property
    def deletion_order(self) -> tuple[int, int, str, int]:
        """Sort key over partitions: what the broker's retention takes first; where nothing is known of it, the oldest file."""
        deadline_ms = 2**63 if self.deadline_ms is None or not self.segments else self.deadline_ms
        oldest_mtime_ns = min([segment.log.mtime_ns for segment in self.segments], default=2**63)
        return (deadline_ms, oldest_mtime_ns, self.files.topic_partition.topic, self.files.topic_partition.partition)


def plan_partition(
    files: PartitionFiles,
    facts: PartitionFacts,
    archived_end_offset: int | None,
    *,
    now_ms: int,
    settling: Settling,
    first_seen_ms: Mapping[int, int] | None = None,
    accept_hole: bool = False,
    decided_end_offset: int | None = None,
    cut: Callable[[SegmentFiles, int], SegmentFiles | None] = lambda _segment, _offset: None,
) -> PartitionPlan:
    """Choose the segments to archive.

    Args:
        archived_end_offset: exclusive end of what the archive covers, None if it has nothing of this partition.
        first_seen_ms: when rolled segments were first seen to be rolled, by their end offset.
        accept_hole: go on above a gap between archive and disk; the caller records it as lost.
        decided_end_offset: see `pins.decided_end_offset`. None: all that is stable is decided.
        cut: gives the part of a segment from an offset on, None where it cannot be cut there. Called where the archive ends
            inside a segment: another broker rolled at other offsets.

    Source of the rule: RemoteLogManager.candidateLogSegments (successor's base at or below the last stable offset, the
    active segment never).
    """
    pending = files.segments
    if archived_end_offset is not None:
        pending = tuple(segment for segment in files.segments if segment.end_offset > archived_end_offset)
    if not facts.leads or facts.reason:
        return PartitionPlan(files, facts, (), pending, facts.reason or NotLeader())
    if files.unstable:
        return PartitionPlan(files, facts, (), pending, Wait.CLEANER_RUNNING)
    hole = None
    first_offset = pending[0].base_offset if pending else files.active_base_offset
    if archived_end_offset is not None and first_offset is not None and first_offset > archived_end_offset:
        hole = (archived_end_offset, first_offset)
        # What lies below the leader's log start no replica has any more: waiting could only lose more.
        is_final = facts.cluster_start_offset is not None and facts.cluster_start_offset >= first_offset
        if not (accept_hole or is_final):
            return PartitionPlan(files, facts, (), pending, error=_hole_error(files, hole), hole=hole)
    if not pending:
        behind = None
        if archived_end_offset is not None and facts.stable_end_offset < archived_end_offset:
            behind = BehindArchive(archived_end_offset, facts.stable_end_offset)
        return PartitionPlan(files, facts, (), (), behind, hole=hole)
    if archived_end_offset is not None and pending[0].base_offset < archived_end_offset:
        rest = cut(pending[0], archived_end_offset)
        if rest is None:
            error = _boundary_error(files, pending[0], archived_end_offset)
            return PartitionPlan(files, facts, (), pending, error=error)
        pending = (rest, *pending[1:])
    rolled_ms = _rolled_at_the_latest_ms(files, now_ms, first_seen_ms or {})
    decided_to = min(facts.stable_end_offset, sys.maxsize if decided_end_offset is None else decided_end_offset)
    ready, reason, recheck_in_ms = _ready_prefix(pending, facts, decided_to, now_ms, settling, rolled_ms)
    return PartitionPlan(files, facts, pending[:ready], pending[ready:], reason, hole=hole, recheck_in_ms=recheck_in_ms)


def _hole_error(files: PartitionFiles, hole: tuple[int, int]) -> CoverageHole:
    return CoverageHole(
        f"{files.topic_partition}: the archive ends at offset {hole[0]}, the first local segment that it lacks "
        f"begins at {hole[1]}: the offsets between them are no longer in {files.directory}. If another replica has "
        f"them, make its broker the leader, and its sidecar archives them. {LAST_RESORT}",
        hole=hole,
    )


def _boundary_error(files: PartitionFiles, first: SegmentFiles, archived_end_offset: int) -> LineageUnknown:
    return LineageUnknown(
        f"{files.topic_partition}: the archive ends at offset {archived_end_offset}, inside local segment {first}, "
        "and no batch is known to begin there (a compacted log, or compressed messages of a format before v2). Make "
        "the broker the leader whose segments were archived before. Or set store.url to another prefix, to archive "
        "this log from its own beginning"
    )


def _ready_prefix(
    pending: tuple[SegmentFiles, ...],
    facts: PartitionFacts,
    decided_end_offset: int,
    now_ms: int,
    settling: Settling,
    rolled_ms: Mapping[int, int],
) -> tuple[int, WaitReason | None, int | None]:
    previous_end = pending[0].base_offset
    for number, segment in enumerate(pending):
        if segment.base_offset != previous_end:
            return number, NotContiguous(segment.base_offset, previous_end), None
        previous_end = segment.end_offset
        rolled_ago_ms = now_ms - rolled_ms.get(segment.end_offset, now_ms)
        if segment.end_offset > decided_end_offset:
            # Replicas follow in a moment, transactions may take their time.
            soon_ms = max(STABLE_SOON_MS, rolled_ago_ms) if facts.transactions_decided else None
            return number, _what_holds(segment, facts, decided_end_offset), soon_ms
        # A leader that answers under its epoch has its recovery behind it.
        age_ms = -1 if facts.transactions_decided else now_ms - newest_change_ms(segment)
        if 0 <= age_ms < settling.settle_ms:
            reason = RecentlyChanged(segment.base_offset, settling.settle_ms, age_ms)
            return number, reason, settling.settle_ms - age_ms
        if segment.snapshot is None and 0 <= rolled_ago_ms < settling.snapshot_grace_ms:
            wait_ms = settling.snapshot_grace_ms - rolled_ago_ms
            return number, SnapshotGrace(segment.base_offset, rolled_ago_ms), wait_ms
    return len(pending), None, None


def _what_holds(segment: SegmentFiles, facts: PartitionFacts, decided_end_offset: int) -> WaitReason:
    if facts.transaction_open:
        return AboveLastStableOffset(segment.base_offset, decided_end_offset)
    if segment.end_offset <= facts.stable_end_offset:
        return DeletedBelowLogStart(segment.base_offset, facts.stable_end_offset)
    above = AboveHighWatermark if facts.transactions_decided else AboveCheckpoints
    return above(segment.base_offset, facts.stable_end_offset)


def _rolled_at_the_latest_ms(files: PartitionFiles, now_ms: int, first_seen_ms: Mapping[int, int]) -> dict[int, int]:
    """Until when each segment was rolled for certain, by its end offset.

    Its successor was there when it was first seen, and when it was last written; no clock says when it was created.
    """
    successors = {segment.base_offset: segment.log for segment in files.segments}
    if files.active_base_offset is not None and files.active_log is not None:
        successors[files.active_base_offset] = files.active_log
    latest: dict[int, int] = {}
    for segment in files.segments:
        end_offset = segment.end_offset
        written_ms = successors[end_offset].mtime_ms if end_offset in successors else now_ms
        latest[end_offset] = min(written_ms, first_seen_ms.get(end_offset, now_ms))
    return latest


def newest_change_ms(segment: SegmentFiles) -> int:
    return max(file.mtime_ms for file in segment.files)
