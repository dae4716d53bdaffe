"""Undoes the newest compaction of an archived partition: one commit makes the segments that it replaced live again."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

from sidecar.archive.actions import UNDONE, Action, Clean, Reinstate, Remove
from sidecar.archive.keys import below
from sidecar.archive.replacement import (
    NoUndo,
    Obstacle,
    Replacement,
    newest_replacement,
    obstacle_in_commit,
    obstacle_to_undo,
)
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.commits.stored_commits import StoredCommits
from sidecar.compactor.archive.plan import operator
from sidecar.errors import CorruptFile, PartitionError
from sidecar.model import ArchivedSegment, ObjectKey
from sidecar.plurals import plural
from sidecar.ports import ObjectStore
from sidecar.randomness import Randomness
from sidecar.verify.segments import check_segment_objects

_TRIES: Final = 20
_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo did, or would do: `replacement` is None where there was nothing to undo, and `obstacle` says why.

    `commit_number`: None in a dry run, and where there was nothing to undo.
    """

    replacement: Replacement | None = None
    live_again: tuple[ArchivedSegment, ...] = ()
    commit_number: int | None = None
    obstacle: Obstacle | None = None

    def to_json(self) -> dict[str, Any]:
        """Names are stable."""
        found = self.replacement
        return {
            "undone_commit": None if found is None else found.number,
            "segments_removed": 0 if found is None else len(found.compacted),
            "segments_live_again": len(self.live_again),
            "bytes_live_again": sum(segment.size_bytes for segment in self.live_again),
            "commit": self.commit_number,
            "nothing_to_undo": None if self.obstacle is None else self.obstacle.reason.value,
        }


def undo_compaction(
    store: ObjectStore, root: ObjectKey, clock: Clock, *, randomness: Randomness | None = None, dry_run: bool = False
) -> Undone:
    """Make the segments that the newest compaction replaced live again, if all of their objects exist.

    Only that one: a compaction before it is not undone. Segments that were archived since stay, and records that were noted as
    deleted stay so. `gc` commits a purge before it deletes objects: so of an undo and a purge only one is committed.

    Raises PartitionError and its kinds, Fenced, StoreError; then nothing was committed, but for OutcomeUnknown.
    """
    log = CommitLog(store, root, clock, randomness=randomness)
    # The commits alone do not show that the newest one is missing; a checkpoint of it does.
    log.read()
    state = log.read_whole_chain()
    found = newest_replacement(state)
    if found is None:
        return Undone(obstacle=obstacle_to_undo(state))
    before = CommitLog(store, root, clock).read_whole_chain(below_number=found.number)
    if (obstacle := _obstacle(store, root, found, before, state)) is not None:
        return Undone(obstacle=obstacle)
    entries = {segment.segment_id: segment for segment in before.segments}
    live_again = tuple(entries[old.segment_id] for old in found.replaced)
    try:
        _require_objects(store, root, live_again)
    except PartitionError:
        # `gc` deletes them once it has committed the purge.
        _require_newest(found, log.refresh(state))
        raise
    if dry_run:
        log.require_fit(_actions(found, live_again, before, state), operator(state), state)
        return Undone(found, live_again)
    for _ in range(_TRIES):
        _require_newest(found, state)
        try:
            after = log.append(_actions(found, live_again, before, state), operator(state), state)
        except CommitConflict:
            state = log.refresh(state)  # The state of the conflict may be that of a wrong checkpoint.
        else:
            return Undone(found, live_again, after.next_number - 1)
    raise PartitionError(f"{root}: other writers committed first {_TRIES} times. Nothing was undone: try again later")


def _require_newest(found: Replacement, state: PartitionState) -> None:
    if newest_replacement(state) != found:
        raise CommitConflict(
            f"{state.lineage.root}: another writer changed the compacted segments; nothing was undone. Check status, then try "
            "again",
            state,
        )


def _obstacle(
    store: ObjectStore, root: ObjectKey, found: Replacement, before: PartitionState, state: PartitionState
) -> Obstacle | None:
    """None if the commit did what the state says; an obstacle if it was an older compaction.

    Raises CorruptFile for a commit that cannot have followed those before it, PartitionError if its segments are not all there.
    """
    stored = StoredCommits(store, root)
    commit, _ = stored.commit_below(found.number, found.number)
    removed = {action.segment_id for action in commit.actions if isinstance(action, Remove)}
    live = {segment.segment_id for segment in before.segments}
    if commit.previous_sha256 != before.last_sha256 or not removed <= live:
        raise CorruptFile("does not follow the commits before it", file=stored.key(found.number))
    obstacle = obstacle_in_commit(found, commit, state)
    if obstacle is None or obstacle.older:
        return obstacle
    if obstacle.reason is NoUndo.PURGED:
        raise PartitionError(
            f"{root}: gc has begun to delete the segments that commit {found.number} replaced; that compaction cannot be undone. "
            f"Nothing was undone: the compacted segments stay live"
        )
    raise PartitionError(
        f"{root}: the segments that commit {found.number} added were changed since; that compaction cannot "
        f"be undone. Nothing was undone: the compacted segments stay live"
    )


def _require_objects(store: ObjectStore, root: ObjectKey, segments: tuple[ArchivedSegment, ...]) -> None:
    """Raise PartitionError unless all objects exist, with the sizes and checksums that were committed."""

    def problems(segment: ArchivedSegment) -> list[str]:
        facts = store.head(below(root, segment.log_key))
        # Where the store has no checksum, every byte is read.
        deep = facts is not None and facts.crc32c is None
        return [f"{p.key} {p.what}" for p in check_segment_objects(store, root, segment, deep=deep).problems]

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="undo") as pool:
        wrong = [text for found in pool.map(problems, segments) for text in found]
    if wrong:
        raise PartitionError(
            f"{root}: {plural(len(wrong), 'problem')} with the objects of replaced segments, such as: {wrong[0]}. Nothing was "
            "undone, and the compacted segments stay live. Restore the objects from a replica of the bucket or "
            "earlier object versions, then try again"
        )


def _actions(
    found: Replacement, live_again: tuple[ArchivedSegment, ...], before: PartitionState, state: PartitionState
) -> list[Action]:
    gone = {segment.segment_id for segment in found.compacted}
    after = [*live_again, *(segment for segment in state.segments if segment.segment_id not in gone)]
    actions: list[Action] = [Remove(s.segment_id, s.base_offset, s.end_offset, UNDONE) for s in found.compacted]
    actions += map(Reinstate, live_again)
    clean = _still_clean(before, after)
    return actions if clean is None else [*actions, clean]


def _still_clean(before: PartitionState, after: Sequence[ArchivedSegment]) -> Clean | None:
    """What was clean before the compaction, up to the first segment that was archived since: no compaction has compared that."""
    clean = before.clean
    if clean is None or clean.base_offset != min(segment.base_offset for segment in after):
        return None
    known = {segment.segment_id for segment in before.segments}
    since = [segment.base_offset for segment in after if segment.segment_id not in known]
    limit = min([clean.end_offset, *since])
    end_offset = max((segment.end_offset for segment in after if segment.end_offset <= limit), default=None)
    return None if end_offset is None else replace(clean, end_offset=end_offset)
