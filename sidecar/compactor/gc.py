"""Objects that no commit names and no reader can need: found, deleted, and noted as deleted. `GcTask` is that of `run`."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from sidecar import __version__
from sidecar.archive.actions import Purge
from sidecar.archive.commit import Writer
from sidecar.archive.keys import (
    COMMITS,
    RESERVED_IDS,
    SEGMENTS,
    below,
    commit_key,
    indexes_key,
    log_key,
    parse_segment_key,
)
from sidecar.archive.state import CommitId, PartitionState, RemovedSegment
from sidecar.clock import Clock, HasClock
from sidecar.commits.commit_log import CommitConflict, CommitLog, StateId, state_id
from sidecar.commits.commit_window import ORPHAN_MS
from sidecar.commits.stored_commits import StoredCommits
from sidecar.compactor.archive.stored_parts import STAGING, is_staged_part
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.errors import CompactionCutOff, Fenced, ObjectExists, PartitionError, StoreUnsupported
from sidecar.event_log import EVENTS
from sidecar.host.journal import HasJournal
from sidecar.metrics.registry import HasMetrics
from sidecar.model import ObjectKey
from sidecar.ports import HasFacts, HasInstance, HasStore, ObjectStore, UnfinishedUpload
from sidecar.randomness import HasRandomness, Randomness
from sidecar.reporting.advice import advised
from sidecar.storage.leftovers import list_uploads, remove_leftovers
from sidecar.storage.store_clock import is_old, read_store_clock

CONFLICTS_IN_A_ROW: Final = 20
PURGED_AT_ONCE: Final = 1000
_TRIAL: Final = log_key(0, min(RESERVED_IDS)), indexes_key(0, min(RESERVED_IDS))
"""No segment has this id. One that a killed process leaves is an orphan, and does not keep the next from its trial.

Two, because a store may delete single objects and refuse a batch.
"""


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
    store_now_ms: int,
    grace_period_ms: int,
    in_progress: Collection[str] = (),
    known: Callable[[], CommitId | None] = lambda: None,
    randomness: Randomness | None = None,
    dry_run: bool = False,
    verified: MutableMapping[ObjectKey, StateId] | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Collected:
    """Delete what no commit has named for the grace period.

    The commit that says so first, then the objects: a compaction may be undone until then, and of an undo and a purge only one
    can be committed. A crash in between leaves objects that no commit names; a later run deletes these. The state is read before
    the objects are listed, so that what is committed in between is too young to be deleted. Where objects may not be deleted,
    nothing is committed.

    Args:
        store_now_ms: by the store's clock (`read_store_clock`), as all times of objects. An earlier one errs on the safe side.
        grace_period_ms: longer than the longest read. Orphans are kept for `ORPHAN_MS` at least.
        in_progress: ids of segments whose upload may go on.
        known: see `CommitLog`.
        dry_run: delete nothing, and commit nothing.
        verified: by root, up to where all commits were read; read and written. Those are not all read again.
        is_stopping: asked before anything is deleted, and for each commit that is read before.

    Raises CorruptFile, StoreError, Fenced, CompactionCutOff.
    """

    def require_going_on() -> None:
        if is_stopping():
            raise CompactionCutOff

    log = CommitLog(store, root, clock, randomness=randomness, known=known, require_going_on=require_going_on)
    state = log.read()
    if not state.next_number:
        return Collected()
    orphans = list(_orphans(store, root, state, orphaned_until_ms(store_now_ms, grace_period_ms), in_progress))
    due = _due(store, root, state, store_now_ms - grace_period_ms)
    if orphans or due:
        if not dry_run:  # Raises StoreError where objects may not be put there, or not deleted.
            trial = [below(root, key) for key in _TRIAL]
            with suppress(ObjectExists):
                store.put_if_absent(trial[0], b"tiered-sidecar gc")
            store.delete(trial)
        # A checkpoint may be wrong: commits may name what it leaves out or calls removed. This also reads what was committed since.
        state = _read_all(log, root, {} if verified is None else verified)
        named = _named(state)
        orphans = [key for key in orphans if _segment_id(root, key) not in named]
        due = _due(store, root, state, store_now_ms - grace_period_ms)
    if dry_run:
        return Collected(len(due), len(orphans))
    require_going_on()
    store.delete(orphans)
    removed = 0
    for first in range(0, len(due), PURGED_AT_ONCE):
        if is_stopping():
            break
        some = due[first : first + PURGED_AT_ONCE]
        state, purged = _purge(log, state, some, writer)
        store.delete([key for found in purged for key in _keys(root, found)])
        removed += len(purged)
    return Collected(removed, len(orphans))


def _read_all(log: CommitLog, root: ObjectKey, verified: MutableMapping[ObjectKey, StateId]) -> PartitionState:
    """What all commits say. Of those that were read before, the state is taken from a checkpoint if it says the same."""
    before = verified.get(root)
    state = None if before is None else log.read_above(before)
    if state is None:
        state = log.read_whole_chain()
    verified[root] = state_id(state)
    return state


def orphaned_until_ms(store_now_ms: int, grace_period_ms: int) -> int:
    """By the store's clock: objects and uploads of this time or earlier that no commit names are deleted."""
    return store_now_ms - max(grace_period_ms, ORPHAN_MS)


def collect_parts(store: ObjectStore, until_ms: int, *, dry_run: bool = False) -> int:
    """Delete work files that compactions on a cluster left in the store when they were killed; how many.

    `until_ms`: see `orphaned_until_ms`. Raises StoreError.
    """
    left = [f.key for f in store.list(STAGING) if is_staged_part(f.key) and is_old(f.modified_ms, until_ms)]
    if not dry_run:
        store.delete(left)
    return len(left)


def abort_uploads(
    store: ObjectStore,
    uploads: Iterable[UnfinishedUpload],
    roots: Collection[ObjectKey],
    until_ms: int,
    *,
    in_progress: Collection[str] = (),
    dry_run: bool = False,
) -> Counter[str]:
    """Abort those multipart uploads of segments and work files that are as old as orphans.

    How many by root, and by `STAGING` for work files. Uploads below other roots, of other keys, and of the segments
    `in_progress` are left alone. `until_ms`: see `orphaned_until_ms`. Raises StoreError.
    """
    aborted = Counter[str]()
    for upload in uploads:
        place = STAGING if is_staged_part(upload.key) else "/".join(upload.key.split("/", 4)[:4])
        if place != STAGING:
            segment_id = _segment_id(place, upload.key) if place in roots else None
            if segment_id is None or segment_id in in_progress:
                continue
        if is_old(upload.started_ms, until_ms):
            if not dry_run:
                store.abort_upload(upload)
            aborted[place] += 1
    return aborted


def _due(store: ObjectStore, root: ObjectKey, state: PartitionState, until_ms: int) -> list[RemovedSegment]:
    """Segments whose grace period is over: it begins when the store got the commit that removed them.

    No writer's clock counts: one commit of a host that was ahead makes the times of all later commits too late. Objects of a
    copy of the archive have later times, which only lengthens the period.
    """
    if not state.removed:
        return []
    first = min(found.removed_by_commit for found in state.removed)
    commits = StoredCommits(store, root).listed(COMMITS, start_after=commit_key(first - 1) if first else "")
    times_ms = {number: facts.modified_ms for number, facts in commits.items()}
    return [found for found in state.removed if is_old(times_ms.get(found.removed_by_commit), until_ms - found.keep_ms)]


def _orphans(
    store: ObjectStore, root: ObjectKey, state: PartitionState, until_ms: int, in_progress: Collection[str]
) -> Iterator[ObjectKey]:
    named = _named(state)
    for facts in store.list(below(root, SEGMENTS)):
        segment_id = _segment_id(root, facts.key)
        if segment_id is None or not is_old(facts.modified_ms, until_ms):
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


def _purge(
    log: CommitLog, state: PartitionState, due: list[RemovedSegment], writer: Writer
) -> tuple[PartitionState, list[RemovedSegment]]:
    """Commit that these are purged, but for those that were live again since; the state after that, and which they are."""
    for _ in range(CONFLICTS_IN_A_ROW):
        # After an undo, a later commit may have removed the same segment. Its own grace period begins there.
        removals = {(found.segment_id, found.removed_by_commit) for found in state.removed}
        left = [found for found in due if (found.segment_id, found.removed_by_commit) in removals]
        if not left:
            break
        try:
            return log.append([Purge(tuple(found.segment_id for found in left))], writer, state), left
        except CommitConflict:
            state = log.refresh(state)  # The state of the conflict may be that of a wrong checkpoint.
    return state, []


class GcPorts(HasStore, HasClock, HasFacts, HasJournal, HasMetrics, HasRandomness, HasInstance, Protocol):
    """What this takes of the world."""


@dataclass(slots=True)
class GcTask:
    """`offer` is called by the uploading thread, the object itself by another.

    `grace_period_ms`: see `collect_garbage`. `is_stopping`: no further partition is to be begun.
    """

    context: GcPorts
    grace_period_ms: int
    is_stopping: Callable[[], bool] = lambda: False
    _led: Sequence[LedPartition] = ()
    _reported: set[str] = field(default_factory=set)
    _verified: dict[ObjectKey, StateId] = field(default_factory=dict)

    def offer(self, partitions: Sequence[LedPartition]) -> None:
        self._led = tuple(partitions)

    def __call__(self) -> None:
        """Once through all. A partition that cannot be read is left out, and logged. Raises StoreError."""
        context = self.context
        try:
            store_now_ms = read_store_clock(context.store, context.clock, randomness=context.randomness).store_ms
        except StoreUnsupported as error:
            self._report_once("unused_objects_not_deleted", str(error), "unused objects remain and cost money")
            return
        until_ms = orphaned_until_ms(store_now_ms, self.grace_period_ms)
        objects = collect_parts(context.store, until_ms) + remove_leftovers(context.store, until_ms)
        self._abort_uploads(until_ms)
        roots = {led.root for led in self._led}
        self._verified = {root: found for root, found in self._verified.items() if root in roots}
        for led in self._led:
            if self.is_stopping():
                return
            try:
                objects += self._clear(led, store_now_ms)
            except CompactionCutOff:
                return
            except (PartitionError, Fenced) as error:
                led.doubt()
                context.metrics.failed(type(error).__name__)
                EVENTS.error("unused_objects_not_deleted", partition=str(led.topic_partition), error=advised(error))
        context.metrics.compaction.garbage_removed(objects)

    def _report_once(self, event: str, reason: str, effect: str) -> None:
        """What the store does not offer, it will not offer an hour later."""
        if event not in self._reported:
            self._reported.add(event)
            EVENTS.warning(event, reason=reason, effect=effect)

    def _abort_uploads(self, until_ms: int) -> None:
        """Of which the journal knows nothing: it was lost, or another broker began them and leads no more."""
        context, roots = self.context, {led.root for led in self._led}
        listed = list_uploads(context.store, "")
        if listed.not_listed:
            effect = f"abandoned multipart uploads remain and cost money: {listed.advice}"
            self._report_once("unfinished_uploads_not_listed", listed.not_listed, effect)
            return
        known = {attempt.segment_id for root in roots for attempt in context.journal.attempts(root)}
        aborted = abort_uploads(context.store, listed.uploads, roots, until_ms, in_progress=known).total()
        if aborted:
            EVENTS.info("unfinished_uploads_aborted", uploads=aborted)
        context.metrics.compaction.uploads_aborted.inc(aborted)

    def _clear(self, led: LedPartition, store_now_ms: int) -> int:
        context = self.context
        writer = Writer(context.facts.broker_id(), led.leader_epoch, context.instance, f"tiered-sidecar {__version__}")
        found = collect_garbage(
            context.store,
            led.root,
            context.clock,
            writer,
            store_now_ms=store_now_ms,
            grace_period_ms=self.grace_period_ms,
            randomness=context.randomness,
            in_progress={attempt.segment_id for attempt in context.journal.attempts(led.root)},
            known=led.newest_commit,
            verified=self._verified,
            is_stopping=self.is_stopping,
        )
        if found.objects:
            EVENTS.info(
                "garbage_removed", partition=str(led.topic_partition), segments=found.removed, orphans=found.orphans
            )
        return found.objects
