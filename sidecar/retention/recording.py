"""Commits that offsets are gone from the disk, before anything is archived above them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sidecar import __version__
from sidecar.archive.actions import Action, DeleteRecords, LossReason, Lost
from sidecar.archive.commit import Writer
from sidecar.archive.state import PartitionState
from sidecar.commits.archive_view import ArchiveView
from sidecar.commits.stored_commits import proves_not_committed
from sidecar.errors import SidecarError
from sidecar.partition.domain_events import committed_events
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.leadership import require_leads
from sidecar.partition.plan import PartitionPlan
from sidecar.ports import HasEmit, HasFacts, HasInstance
from sidecar.retention.deleted_records import deleted_in_hole
from sidecar.retention.log_starts import LogStarts
from sidecar.segment.log_disk import HasDisk


class RecordingPorts(HasDisk, HasEmit, HasFacts, HasInstance, Protocol):
    """What this takes of the world."""


def record_lost(
    tools: RecordingPorts, known: ArchiveView, plan: PartitionPlan, starts: LogStarts, hole: tuple[int, int]
) -> tuple[PartitionState, LogStarts]:
    """Commit that the offsets above the archive's end are lost, or, up to one of them, deleted on purpose.

    Returns the state after that, and what was found out of the log's beginning.

    Raises CommitConflict, OutcomeUnknown, and the errors of `require_leads` and the store.
    """
    state, commits = known.opened()
    require_leads(plan.facts, tools.facts.confirm(plan.files))
    said, starts = _what_is_said(tools, state, starts, plan, hole, commits.read)
    try:
        after = commits.append(said, writer_of(tools, plan.facts), state)
    except SidecarError as error:
        if not proves_not_committed(error):
            # If it is stored, the next turn finds no gap to record. Reporting twice is better than never.
            _emit(tools, plan.facts, said)
        raise
    _emit(tools, plan.facts, said)
    return known.recorded(after, plan.files), starts


def _what_is_said(
    tools: RecordingPorts,
    state: PartitionState,
    starts: LogStarts,
    plan: PartitionPlan,
    hole: tuple[int, int],
    read_whole: Callable[[], PartitionState],
) -> tuple[list[Action], LogStarts]:
    deleted_end, starts = deleted_in_hole(
        plan.files, plan.facts, state, starts, hole, read_whole, tools.disk, tools.emit
    )
    said: list[Action] = []
    if deleted_end > hole[0]:
        said.append(Lost(hole[0], deleted_end, LossReason.DELETED_FIRST))
    if deleted_end < hole[1]:
        said.append(Lost(deleted_end, hole[1], LossReason.NOT_ON_DISK))
    # Whoever restores what lies below is to know, too, if nothing is ever archived above.
    if deleted_end > max(hole[0], state.deleted_before_offset):
        said.append(DeleteRecords(deleted_end))
    return said, starts


def _emit(tools: RecordingPorts, facts: PartitionFacts, said: list[Action]) -> None:
    for event in committed_events(facts.topic_partition, said, facts.leader_epoch, facts.cluster_start_offset):
        tools.emit(event)


def writer_of(tools: RecordingPorts, facts: PartitionFacts) -> Writer:
    """This process, as its commits name it."""
    return Writer(tools.facts.broker_id(), facts.leader_epoch, tools.instance, f"tiered-sidecar {__version__}")
