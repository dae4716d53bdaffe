"""Whether commits say what was deleted on purpose, where a leader's sidecar has seen the log start move into a segment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from sidecar.archive.actions import LossReason
from sidecar.archive.state import PartitionState
from sidecar.host.pinned_files import PinnedFiles
from sidecar.model import ArchivedSegment, ObjectKey
from tests.simulation.cluster import Partition
from tests.simulation.findings import Finding
from tests.simulation.invariants import Checker
from tests.simulation.processes import Sidecar

_Log: TypeAlias = tuple[int, ObjectKey]
"""A broker, and the root of the lineage that its log belongs to."""
_Term: TypeAlias = tuple[PinnedFiles, int, tuple[int, int]]
"""The pins of a process, and leader epoch and directory of a partition."""


class _Seen(NamedTuple):
    """`first`: the log start at the first check of a term. `inside`: a later one, inside a segment, 0 for none.

    `losses`, `state`: how many losses this broker had recorded by then, and the archive.
    """

    term: _Term
    first: int
    inside: int = 0
    losses: int = 0
    state: PartitionState | None = None


@dataclass(slots=True)
class DeletionWatch:
    """Of all sidecars, by rounds in which nothing happened to the log."""

    _seen: dict[_Log, _Seen] = field(default_factory=dict)

    def forget(self, logs: Iterable[_Log]) -> None:
        """Their sidecars may not know it: the archive could not be read to decide it."""
        for log in logs:
            self._seen.pop(log, None)

    def see(self, sidecar: Sidecar, cluster: Partition, checker: Checker) -> None:
        """After a round. Raises Finding."""
        files, log = cluster.led.files(), (sidecar.number, checker.root)
        if cluster.leader != sidecar.number or files.unstable or checker.is_forked or not sidecar.facts.has_connection:
            self._seen.pop(log, None)
            return
        term, start_offset = (sidecar.pinned, cluster.leader_epoch, files.directory_id), cluster.led.log_start_offset
        before = self._seen.get(log)
        if before is None or before.term != term:
            self._seen[log] = _Seen(term, start_offset)
            return
        losses, state = checker.lost_by.get(sidecar.number, []), checker.state
        last = None if state is None else state.last_segment
        if before.inside and state is not None and not _may_be_border(state, before.inside):
            new = (found for found in losses[before.losses :] if found.reason == LossReason.NOT_ON_DISK)
            if lost := next((found for found in new if found.base_offset < before.inside), None):
                raise Finding("deletion-called-loss", f"sidecar {sidecar.number}: {lost}, log start {before.inside}")
            writer = None if last is None else checker.writers[last.segment_id]
            is_new = last is not None and not last.generation and not _is_known(before.state, last)
            is_ours = writer is not None and (writer.broker_id, writer.leader_epoch) == (sidecar.number, term[1])
            if is_new and is_ours and state.deleted_before_offset < min(before.inside, state.end_offset or 0):
                what = f"{last}: deleted are {state.deleted_before_offset}, the log start is {before.inside}"
                raise Finding("deletion-not-noted", f"sidecar {sidecar.number}: {what}")
        bases = {segment.base_offset for segment in files.segments} | {files.active_base_offset}
        is_inside = (
            start_offset > max(before.first, before.inside, files.first_offset or 0) and start_offset not in bases
        )
        inside = start_offset if is_inside else before.inside
        self._seen[log] = _Seen(term, before.first, inside, len(losses), state)


def _is_known(state: PartitionState | None, last: ArchivedSegment) -> bool:
    """Whether the archive's last segment was so then, or had been before a compaction that an undo has taken back since."""
    if state is None or state.last_segment is None:
        return False
    return last.segment_id in {state.last_segment.segment_id, *(found.segment_id for found in state.removed)}


def _may_be_border(state: PartitionState, offset: int) -> bool:
    """Whether segments of the logs that were archived may have met there: retention may have moved the log start there."""
    spans = (*state.segments, *state.removed, *state.holes)
    if any(offset in {span.base_offset, span.end_offset} for span in spans):
        return True
    return any(found.generation and found.base_offset < offset < found.end_offset for found in state.segments)


def require_shown_deletion_noted(cluster: Partition, state: PartitionState) -> None:
    """At the end, when all that is rolled is archived: the leader's log start alone may show a deletion. Raises Finding.

    It does where it lies above a batch of this leader epoch in the same segment, whatever processes and leaders knew before.
    """
    led, start_offset = cluster.led, cluster.led.log_start_offset
    noted, end_offset = state.deleted_before_offset, state.end_offset or 0
    if noted >= min(start_offset, end_offset) or start_offset > cluster.truth.deleted_before_offset:
        return
    above = next((file.base_offset for file in led.segments if file.base_offset >= start_offset), None)
    for file in led.segments:
        below = next((batch for batch in file.batches if batch.base_offset < start_offset <= batch.end_offset), None)
        is_shown = below is not None and below.leader_epoch == cluster.leader_epoch and start_offset != above
        if is_shown and not _may_be_border(state, start_offset):
            raise Finding("deletion-not-noted", f"{cluster.topic_partition}: up to {start_offset}, noted is {noted}")
