"""What earlier processes left behind in the store: committed, worth going on with, or to be removed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from sidecar.archive.actions import Add
from sidecar.archive.commit import Commit
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_window import AgeCheck
from sidecar.commits.stored_commits import StoredCommits
from sidecar.errors import FROM_STORE
from sidecar.host.journal import Attempt
from sidecar.model import ObjectKey, SegmentFiles
from sidecar.partition.domain_events import committed_events
from sidecar.pipeline.tools import Tools
from sidecar.pipeline.upload import discard_quietly, resumable


def settle_attempts(tools: Tools, state: PartitionState, planned: Sequence[SegmentFiles]) -> dict[int, Attempt]:
    """End every attempt that the journal knows for this lineage, and return those to go on with, by base offset.

    Args:
        state: the archive as it is now, read after this process locked the journal, or the newest part of it.

    An attempt whose commit was sent without an answer is left alone until its commit number is taken, by it or by another:
    removing its objects while a delayed request may still land would leave a commit that names nothing.

    Raises StoreError, CorruptFile.
    """
    segments = {segment.base_offset: segment for segment in planned}
    attempts = tools.journal.attempts(state.lineage.root)
    live = {segment.segment_id for segment in state.segments} if attempts else set()
    known_from = state.segments[0].base_offset if state.segments else 0
    resumed: dict[int, Attempt] = {}

    @cache
    def ages() -> AgeCheck | None:
        try:
            return AgeCheck.begin(tools.store, tools.clock, randomness=tools.randomness)
        except FROM_STORE:
            return None  # Nothing is resumed: its age is unknown.

    for attempt in attempts:
        if attempt.base_offset < known_from:
            continue  # It may be committed. The next start sees the whole archive.
        if attempt.commit_number is not None and state.next_number <= attempt.commit_number:
            continue
        segment = segments.get(attempt.base_offset)
        landed = _landed(tools, attempt)
        if landed is not None or attempt.segment_id in live:
            tools.journal.end(attempt.segment_id)
            if landed is not None:
                leader_epoch = landed.writer.leader_epoch
                for event in committed_events(state.lineage.topic_partition, landed.actions, leader_epoch):
                    tools.emit(event)
        elif (
            segment
            and attempt.is_of(segment)
            and attempt.base_offset not in resumed
            and (known := ages()) is not None
            and resumable(attempt, known)
        ):
            tools.store.delete([below(attempt.root, attempt.indexes_key)])
            resumed[attempt.base_offset] = attempt
        else:
            discard_quietly(tools, attempt)
    return resumed


def _landed(tools: Tools, attempt: Attempt) -> Commit | None:
    """The commit that made the segment live although its outcome was unknown; None if it is proven that there is none.

    Called only once the number of the commit is taken. The segment need not be live any more: another writer may have
    compacted it since, and readers still have their time. Raises StoreError, CorruptFile.
    """
    number = attempt.commit_number
    if number is None:
        return None
    commit, _ = StoredCommits(tools.store, ObjectKey(attempt.root)).commit_below(number, number)
    added = {action.segment.segment_id for action in commit.actions if isinstance(action, Add)}
    return commit if attempt.segment_id in added else None
