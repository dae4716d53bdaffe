"""Objects of one lineage that no commit names and no reader can need: found, deleted, and noted as deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from sidecar.archive.actions import Purge
from sidecar.archive.commit import Writer
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
    if orphans:
        # Writers never commit what is so old. Looking again costs little, should one do it all the same.
        named = _named(log.refresh(state))
        orphans = [key for key in orphans if _segment_id(root, key) not in named]
    if dry_run:
        return Collected(len(due), len(orphans))
    store.delete(orphans)
    for first in range(0, len(due), PURGED_AT_ONCE):
        some = due[first : first + PURGED_AT_ONCE]
        store.delete([key for found in some for key in _keys(root, found)])
        state = _purge(log, state, some, writer)
    return Collected(len(due), len(orphans))


def collect_parts(store: ObjectStore, clock: Clock, *, grace_period_ms: int, dry_run: bool = False) -> int:
    """Delete work files that compactions on a cluster left in the store when they were killed; how many. Raises StoreError."""
    older_than_ms = clock.now_ms() - max(grace_period_ms, ORPHAN_MS)
    left = [f.key for f in store.list(STAGING) if is_staged_part(f.key) and f.modified_ms <= older_than_ms]
    if not dry_run:
        store.delete(left)
    return len(left)


def abort_uploads(
    store: ObjectStore,
    roots: Collection[ObjectKey],
    clock: Clock,
    *,
    grace_period_ms: int,
    in_progress: Collection[str] = (),
    dry_run: bool = False,
) -> Counter[str]:
    """Abort multipart uploads of segments and work files that nobody has ended for as long as orphans are kept.

    How many by root, and by `STAGING` for work files. Uploads below other roots, of other keys, and of the segments
    `in_progress` are left alone. Raises StoreError; StoreDenied where we may not list them.
    """
    older_than_ms = clock.now_ms() - max(grace_period_ms, ORPHAN_MS)
    aborted = Counter[str]()
    for upload in list(store.unfinished_uploads("")):
        place = STAGING if is_staged_part(upload.key) else "/".join(upload.key.split("/", 4)[:4])
        if place != STAGING:
            segment_id = _segment_id(place, upload.key) if place in roots else None
            if segment_id is None or segment_id in in_progress:
                continue
        if upload.started_ms <= older_than_ms:
            if not dry_run:
                store.abort_upload(upload)
            aborted[place] += 1
    return aborted


def _orphans(
    store: ObjectStore, root: ObjectKey, state: PartitionState, older_than_ms: int, in_progress: Collection[str]
) -> Iterator[ObjectKey]:
    named = _named(state)
    for facts in store.list(below(root, SEGMENTS)):
        segment_id = _segment_id(root, facts.key)
        if segment_id is None or facts.modified_ms > older_than_ms:
            continue
        if segment_id not in named and segment_id not in in_progress:
            yield facts.key


def _named(state: PartitionState) -> set[str]:
    """Ids of all segments whose objects are the business of commits."""
    return {segment.segment_id for segment in state.segments} | {found.segment_id for found in state.removed}


def _segment_id(root: str, key: ObjectKey) -> str | None:
    found = parse_segment_key(key.removeprefix(f"{root}/"))
    return None if found is None else found.segment_id


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
