"""What earlier processes left behind in the store: committed, worth going on with, or to be removed."""

import math
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from typing import Protocol

from sidecar.archive.actions import Add
from sidecar.archive.commit import Commit
from sidecar.archive.keys import below, fresh_id
from sidecar.archive.state import PartitionState
from sidecar.clock import HasClock
from sidecar.commits.checked_upload import require_same, send_bytes, send_checked
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.commit_window import AgeCheck
from sidecar.commits.stored_commits import StoredCommits
from sidecar.errors import FROM_STORE, ObjectMissing, SidecarError, StoreUnavailable
from sidecar.host.journal import NO_LIMIT_MS, Attempt, HasJournal
from sidecar.model import ArchivedSegment, ObjectKey, SegmentFiles
from sidecar.partition.domain_events import SegmentUploaded, SegmentUploadFailed, SegmentUploadStarted, committed_events
from sidecar.ports import HasEmit, HasStore
from sidecar.randomness import HasRandomness
from sidecar.segment.bundle import PreparedSegment, fresh_attempt
from sidecar.storage.leftovers import list_uploads


class AttemptPorts(HasStore, HasJournal, HasClock, HasEmit, HasRandomness, Protocol):
    """What this takes of the world."""


def upload_segment(context: AttemptPorts, prepared: PreparedSegment) -> ArchivedSegment:
    """Upload `.log`, then `.indexes`, under the attempt's fresh keys, and check both.

    Until a commit names them, the objects belong to no segment; the journal lists them, so that a crash leaves none unlisted.
    Raises StoreError; SegmentChanged if other bytes were sent, now or by the resumed attempt, than were checked.
    """
    segment, begun_s = prepared.segment, context.clock.monotonic_s()
    context.emit(SegmentUploadStarted(segment))
    with ExitStack() as unless_sent:
        unless_sent.callback(context.emit, SegmentUploadFailed(segment))
        entry = _upload(context, prepared)
        unless_sent.pop_all()
    context.emit(SegmentUploaded(segment, entry.size_bytes, context.clock.monotonic_s() - begun_s))
    return entry


def _upload(context: AttemptPorts, prepared: PreparedSegment) -> ArchivedSegment:
    attempt, source, checked_crc32c = prepared.attempt, prepared.log_source, prepared.log_crc32c
    if attempt.log_crc32c is None:
        context.journal.begin(attempt)
        key = below(attempt.root, attempt.log_key)
        send_checked(context.store, key, source, checked_crc32c, reads_back=prepared.copy is not None)
        context.journal.log_uploaded(attempt.segment_id, checked_crc32c)
    else:
        require_same(source.name, checked_crc32c, attempt.log_crc32c)
    key = below(attempt.root, attempt.indexes_key)
    send_bytes(context.store, key, prepared.indexes)
    return prepared.archived()


def resumed_or_fresh(context: AttemptPorts, prepared: PreparedSegment) -> PreparedSegment:
    """The segment under a fresh attempt where the resumed one has sent another `.indexes`, and ends here.

    Retention and DeleteRecords move the first leader epoch to the new log start, and another release may choose another
    snapshot. Source: LeaderEpochFileCache.truncateFromStart. Raises StoreError.
    """
    attempt = prepared.attempt
    if attempt.log_crc32c is None:
        return prepared
    with suppress(ObjectMissing):
        # One byte more shows a longer object, however long it is.
        stored = context.store.read(below(attempt.root, attempt.indexes_key), 0, len(prepared.indexes) + 1)
        if stored != prepared.indexes:
            discard_quietly(context, attempt)
            segment_id, now_ms = fresh_id(context.randomness), context.clock.now_ms()
            return replace(prepared, attempt=fresh_attempt(attempt.root, prepared.segment, segment_id, now_ms))
    return prepared


def resumable(attempt: Attempt, ages: AgeCheck) -> bool:
    """Whether the `.log` object of an interrupted attempt is complete in the store, and young enough to be committed.

    False also if a DELETE was sent for it, or if the store cannot tell now: a second upload costs time, no data.
    """
    if attempt.log_crc32c is None:
        return False
    try:
        return not ages.fault_of(below(attempt.root, attempt.log_key), attempt.size_bytes, attempt.log_crc32c)
    except FROM_STORE:
        return False


def discard_quietly(context: AttemptPorts, attempt: Attempt) -> None:
    """Remove what an attempt left in the store; it was never committed, so no reader can know it.

    The attempt stays in the journal for the next start if store or journal cannot do it now.
    """
    keys = [below(attempt.root, attempt.log_key), below(attempt.root, attempt.indexes_key)]
    with suppress(SidecarError):  # Of any class: a redirect, for one, is a SettingsError.
        context.journal.discarding(attempt.segment_id)
        context.store.delete(keys)
        for key in keys:
            # A store that does not list uploads is reported at the start: trying again would change nothing.
            for unfinished in list_uploads(context.store, key).uploads:
                context.store.abort_upload(unfinished)
        context.journal.end(attempt.segment_id)


def discard_uncommitted(
    context: AttemptPorts, *, begun_until_ms: int = NO_LIMIT_MS, within_s: float = math.inf
) -> None:
    """Remove what is proven to be uncommitted, of lineages to which nothing was uploaded later. No task may be under way.

    What is left after `within_s`, or where the store does not answer, is for the next start.
    """
    until_s = context.clock.monotonic_s() + within_s
    for root in context.journal.roots(begun_until_ms=begun_until_ms):
        if context.clock.monotonic_s() >= until_s:
            return
        try:
            settle_attempts(context, CommitLog(context.store, ObjectKey(root), context.clock).read(), ())
        except StoreUnavailable:
            return
        except SidecarError:
            continue  # A restored journal may lack the number of a commit: what cannot be read, stays.


def settle_attempts(
    context: AttemptPorts, state: PartitionState, planned: Sequence[SegmentFiles]
) -> dict[int, Attempt]:
    """End every attempt that the journal knows for this lineage, and return those to go on with, by base offset.

    Args:
        state: the archive as it is now, read after this process locked the journal, or the newest part of it: below that
            part, only an attempt that its commit made live is ended. What was removed since, an undo may need.

    An attempt whose commit was sent without an answer is left alone until its commit number is taken, by it or by another.
    A delayed request may still arrive: without its objects, the commit would name nothing.

    Raises StoreError, CorruptFile.
    """
    attempts = context.journal.attempts(state.lineage.root)
    if not attempts:
        return {}
    segments = {segment.base_offset: segment for segment in planned}
    added = {segment.segment_id for segment in state.segments} | {segment.segment_id for segment in state.removed}
    known_from = 0 if state.is_whole or not state.segments else state.segments[0].base_offset
    resumed: dict[int, Attempt] = {}

    @cache
    def ages() -> AgeCheck | None:
        try:
            return AgeCheck.begin(context.store, context.clock, randomness=context.randomness)
        except FROM_STORE:
            return None  # Nothing is resumed: its age is unknown.

    for attempt in attempts:
        if attempt.commit_number is not None and state.next_number <= attempt.commit_number:
            continue
        segment = segments.get(attempt.base_offset)
        landed = _landed(context, attempt)
        if landed is not None or attempt.segment_id in added:
            context.journal.end(attempt.segment_id)
            if landed is not None:
                leader_epoch = landed.writer.leader_epoch
                for event in committed_events(state.lineage.topic_partition, landed.actions, leader_epoch):
                    context.emit(event)
        elif attempt.base_offset < known_from:
            continue  # A restored journal may lack the number of its commit. The next start sees the whole archive.
        elif (
            segment
            and attempt.is_of(segment)
            and attempt.base_offset not in resumed
            and (known := ages()) is not None
            and resumable(attempt, known)
        ):
            resumed[attempt.base_offset] = attempt
        else:
            discard_quietly(context, attempt)
    return resumed


def _landed(context: AttemptPorts, attempt: Attempt) -> Commit | None:
    """The commit that made the segment live although its outcome was unknown; None if it is proven that there is none.

    Called only once the number of the commit is taken. The segment need not be live any more: another writer may have
    compacted it since, and readers still have their time. Raises StoreError, CorruptFile.
    """
    number = attempt.commit_number
    if number is None:
        return None
    commit, _ = StoredCommits(context.store, ObjectKey(attempt.root)).commit_below(number, number)
    added = {action.segment.segment_id for action in commit.actions if isinstance(action, Add)}
    return commit if attempt.segment_id in added else None
