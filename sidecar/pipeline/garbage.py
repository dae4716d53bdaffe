"""Objects of one lineage that no commit names and no reader can need: found, deleted, and noted as deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from sidecar.archive.commit import Purge, Writer
from sidecar.archive.keys import SEGMENTS, below, indexes_key, log_key, parse_segment_key
from sidecar.archive.state import PartitionState, RemovedSegment
from sidecar.clock import Clock
from sidecar.model import ObjectKey
from sidecar.pipeline.commit_log import CommitConflict, CommitLog
from sidecar.pipeline.compaction.stored_parts import STAGING, is_staged_part
from sidecar.ports import ObjectStore

CONFLICTS_IN_A_ROW: Final = 20
PURGED_AT_ONCE: Final = 1000
ORPHAN_MS: Final = 86_400_000
"""An upload that is in no commit after so long never will be: compactions give up earlier."""


@dataclass(frozen=True, slots=True)
class Collected:
    """`removed`: segments that were replaced; `orphans`: objects of uploads that were given up."""

    removed: int = 0
    orphans: int = 0

    @property
    def objects(self) -> int:
        """How many objects are gone: a segment has two."""
        return 2 * self.removed + self.orphans


def collect_garbage(
    store: ObjectStore,
    root: ObjectKey,
    clock: Clock,
    writer: Writer,
    *,
    grace_period_ms: int,
    in_progress: Collection[str] = (),
    dry_run: bool = False,
) -> Collected:
    """Delete what has been nobody's for the grace period.

    Objects first, then the commit that says so: a crash in between makes the next run delete nothing and say it again. The
    state is read before the objects are listed, so that what is committed in between is too young to be looked at.

    Args:
        grace_period_ms: longer than the longest read. Orphans are kept for `ORPHAN_MS` at least.
        in_progress: ids of segments whose upload may go on.
        dry_run: delete nothing, and commit nothing.

    Raises CorruptFile, StoreError, Fenced.
    """
    log, now_ms = CommitLog(store, root, clock), clock.now_ms()
    state = log.read()
    if not state.next_number:
        return Collected()
    orphans = list(_orphans(store, root, state, now_ms - max(grace_period_ms, ORPHAN_MS), in_progress))
    due = [found for found in state.removed if found.removed_at_ms + found.keep_ms + grace_period_ms <= now_ms]
    if dry_run:
        return Collected(len(due), len(orphans))
    store.delete(orphans)
    for first in range(0, len(due), PURGED_AT_ONCE):
        some = due[first : first + PURGED_AT_ONCE]
        store.delete([key for found in some for key in _keys(root, found)])
        state = _purge(log, state, some, writer)
    return Collected(len(due), len(orphans))


def collect_parts(store: ObjectStore, clock: Clock, *, grace_period_ms: int) -> int:
    """Delete work files that compactions on a cluster left in the store when they were killed; how many. Raises StoreError."""
    older_than_ms = clock.now_ms() - max(grace_period_ms, ORPHAN_MS)
    left = [f.key for f in store.list(STAGING) if is_staged_part(f.key) and f.modified_ms <= older_than_ms]
    store.delete(left)
    return len(left)


def _orphans(
    store: ObjectStore, root: ObjectKey, state: PartitionState, older_than_ms: int, in_progress: Collection[str]
) -> Iterator[ObjectKey]:
    named = {segment.segment_id for segment in state.segments} | {found.segment_id for found in state.removed}
    for facts in store.list(below(root, SEGMENTS)):
        found = parse_segment_key(facts.key.removeprefix(f"{root}/"))
        if found is None or facts.modified_ms > older_than_ms:
            continue
        if found.segment_id not in named and found.segment_id not in in_progress:
            yield facts.key


def _keys(root: ObjectKey, found: RemovedSegment) -> tuple[ObjectKey, ObjectKey]:
    name = (found.base_offset, found.segment_id)
    return below(root, log_key(*name)), below(root, indexes_key(*name))


def _purge(log: CommitLog, state: PartitionState, due: list[RemovedSegment], writer: Writer) -> PartitionState:
    ids = {found.segment_id for found in due}
    for _ in range(CONFLICTS_IN_A_ROW):
        left = tuple(found.segment_id for found in state.removed if found.segment_id in ids)
        if not left:
            break
        try:
            return log.append([Purge(left)], writer, state)
        except CommitConflict as conflict:
            state = conflict.state
    return state
