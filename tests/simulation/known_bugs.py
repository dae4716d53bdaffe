"""Bugs that the product had, or could have had, each as a patch: the simulation must find every one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest import mock

import numpy as np

from sidecar.archive import fold
from sidecar.archive.commit import Commit
from sidecar.archive.continuity import ContinuityCheck, Verdict
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.commits import archive_view, attempts, commit_log, continuity
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.commit_window import AgeCheck, CommitWindow
from sidecar.commits.stored_commits import StoredCommits
from sidecar.compaction import key_table
from sidecar.compactor import archive_job, before_upload, gc
from sidecar.compactor.archive_job import ArchiveJobs
from sidecar.compactor.before_upload import BeforeUpload, CopyGroup
from sidecar.errors import ObjectExists, PartitionError
from sidecar.host.journal import Attempt
from sidecar.logformat.leader_epochs import LeaderEpochs, complete
from sidecar.model import ObjectKey, PartitionFiles, SegmentFiles
from sidecar.partition import copy_task, pins
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan, plan_partition
from sidecar.partition.wait_reason import NotContiguous
from sidecar.ports import ObjectStore, UploadSource
from sidecar.retention import deleted_records
from sidecar.retention.log_starts import LogStarts
from sidecar.retention.loss_tracker import LossTracker
from sidecar.retention.pinned_log import PinnedLog
from sidecar.runner import checks, copy_executor, partition_archiver
from sidecar.segment import added_markers, prepare
from sidecar.segment.bundle import PreparedSegment
from sidecar.segment.reading import SegmentReading
from sidecar.topic_policy import TopicPolicy
from tests.simulation import reading
from tests.simulation.link import SimLink
from tests.simulation.volume import MemoryJournal


@dataclass(frozen=True, slots=True)
class Bug:
    """`replaced`: holder, name and what stands there instead. `rule`: which it breaks.

    `schedules`: within so many it is found. `first_seed`: of a run that finds it sooner, for the gate.
    """

    rule: str
    replaced: tuple[tuple[Any, str, Any], ...]
    schedules: int
    first_seed: int = 1

    @contextmanager
    def patch(self) -> Iterator[None]:
        """The product has it, while this lasts."""
        with ExitStack() as stack:
            for holder, name, value in self.replaced:
                stack.enter_context(mock.patch.object(holder, name, value))
            yield


def _nothing(*_given: object, **_options: object) -> None:
    """In the place of a check."""


def _put_without_proof(stored: StoredCommits, _clock: Clock, commit: Commit, body: bytes, _settle_s: float) -> bool:
    """Whoever put a commit of this number was us."""
    try:
        stored.put(commit.number, body)
    except ObjectExists:
        return True
    return True


def _sent_unchecked(
    store: ObjectStore, key: ObjectKey, source: UploadSource, _checked_crc32c: int, *, reads_back: bool = False
) -> None:
    """Whatever the second read of a file gives."""
    assert reads_back in {False, True}
    store.upload(key, source)


def _group_or_its_first_segments(waiting: BeforeUpload, segments: Sequence[SegmentFiles]) -> CopyGroup | None:
    """Copies of the first segments go without the others, where the plan has no more."""
    held = waiting._find(segments[0])
    group = None if held is None else held.group
    count = 0 if group is None else min(len(segments), len(group.segments))
    if group is None or tuple(segments[:count]) != group.segments[:count]:
        return None
    return CopyGroup(group.segments[:count], group.copies[:count], group.policy)


def _resumable_without_indexes(attempt: Attempt, ages: AgeCheck) -> bool:
    """Of an upload that is resumed only the `.log` is kept."""
    found = _resumable(attempt, ages)
    if found:
        ages.store.delete([below(attempt.root, attempt.indexes_key)])
    return found


_resumable = attempts.resumable


def _lies_above(segment: SegmentFiles, archived_end_offset: int | None) -> bool:
    """What the archive ends inside of is passed over."""
    return segment.base_offset >= (archived_end_offset or 0)


_plannable = PinnedLog.plannable


def _plannable_below_the_log_start(
    log: PinnedLog, files: PartitionFiles, facts: PartitionFacts, *given: Any
) -> tuple[SegmentFiles, ...]:
    """What the leader's answer does not call deleted is passed over, though it may be an answer of the past."""
    start_offset = facts.log_start_offset if facts.cluster_start_offset is None else facts.cluster_start_offset
    found = _plannable(log, files, facts, *given)
    return tuple(segment for segment in found if segment.end_offset <= start_offset)


def _stands_unless_replaced(segment: SegmentFiles, files: PartitionFiles) -> bool:
    """What the cleaner replaces is released before the new file is pinned."""
    found = files.first_above(segment.base_offset)
    return found is not None and found.log == segment.log


def _all_that_is_stable(_files: PartitionFiles, facts: PartitionFacts, _known: int) -> int:
    """Whatever the log start is."""
    return facts.stable_end_offset


def _plan_over_any_gap(*given: Any, **options: Any) -> PartitionPlan:
    return plan_partition(*given, **options | {"accept_hole": True})


def _lost_tail_in_any_case(
    _context: object, _segment: SegmentFiles, _descriptor: int, reading: SegmentReading
) -> tuple[int, int] | None:
    return reading.missing_tail


def _plan_during_a_swap(files: PartitionFiles, *given: Any, **options: Any) -> PartitionPlan:
    return plan_partition(replace(files, unstable=False), *given, **options)


def _seen_afresh(starts: LogStarts, *given: Any) -> LogStarts:
    """What checks before this one have found is not remembered."""
    return _seen(replace(starts, inside=None), *given)


def _any_offset_below_the_loss(
    _disk: object, files: PartitionFiles, archived: PartitionState, log_start_offset: int
) -> ContinuityCheck | None:
    """A replica that still has what the archive ends with as lost is taken for a truncated one."""
    loss, first_offset = archived.loss_at_end, files.first_offset
    if loss is None or first_offset is None or max(first_offset, log_start_offset) >= loss.end_offset:
        return None
    return ContinuityCheck(Verdict.CONTRADICTED, f"{loss}, and the local log begins at {first_offset}")


def _judged_without_policy(*given: Any) -> ContinuityCheck:
    with mock.patch.object(TopicPolicy, "is_compacted", False):
        return _judge_local_log(*given)


_judge_local_log = continuity.judge_local_log
_seen = LogStarts.seen
_insert_blob = key_table.insert_blob


def _insert_first_of_ties(
    blob: Any, _count: int, table: Any, slots: int, skip: int, shift: int, words: int, scratch: Any
) -> None:
    """Of records with the same key and the same sort key the first one stays."""
    rows: dict[object, Any] = {}
    for row in blob.view(np.uint64).reshape(-1, words):
        versioned = int(row[2]) >> 63
        rows.setdefault((int(row[1]), versioned, int(row[3])) if words > key_table.WITHOUT_SORT_KEY else len(rows), row)
    firsts = np.array(list(rows.values()), dtype=np.uint64)
    _insert_blob(firsts.view(np.uint8).reshape(-1), len(firsts), table, slots, skip, shift, words, scratch)


def _complete_or_refused(checkpoint: LeaderEpochs | None, batches: LeaderEpochs, base_offset: int) -> LeaderEpochs:
    """No segment without the leader epoch at its base."""
    found = complete(checkpoint, batches, base_offset)
    if not found.covers(base_offset):
        raise PartitionError(f"no leader epoch is known at offset {base_offset}")
    return found


KNOWN_BUGS: Final[dict[str, Bug]] = {
    # An error after the put was sent was taken for a commit that failed, and its objects were deleted.
    "commit-discard": Bug(
        "live-object-missing", ((copy_executor, "proves_not_committed", lambda _error: True),), 100, 24
    ),
    # A checkpoint was believed whose commit the store had lost.
    "checkpoint-without-its-commit": Bug("history-forked", ((CommitLog, "require_commit", _nothing),), 100, 61),
    # Of a group of compacted copies some were committed without the others.
    "group-prefix": Bug("record-lost", ((BeforeUpload, "group_from", _group_or_its_first_segments),), 100, 18),
    # A copy of a whole segment was committed for what another leader had not archived of it.
    "copy-of-a-part": Bug(
        "other-content", ((before_upload, "_name", lambda segment: (segment.log, segment.end_offset)),), 10_000, 8183
    ),
    # gc purged what an operator could still have reinstated.
    "purged-without-grace": Bug("purged-too-early", ((gc, "is_old", lambda _modified_ms, _until_ms: True),), 20),
    # A log was appended to an archive that had other batches at the same offsets.
    "log-not-compared": Bug(
        "appended-to-fork",
        ((archive_view, "require_continuation", _nothing), (continuity, "require_continuation", _nothing)),
        1_000,
        519,
    ),
    # The journal forgot under which number a commit was sent that may still arrive.
    "number-forgotten": Bug("live-object-missing", ((MemoryJournal, "committing", _nothing),), 4_000, 3346),
    # An upload was resumed and committed though a DELETE of its objects was on its way.
    "resumed-after-a-delete": Bug("live-object-missing", ((MemoryJournal, "discarding", _nothing),), 100, 35),
    # A resume deleted the `.indexes` of the interrupted upload, and sent them under the same key.
    "resumed-under-a-deleted-key": Bug(
        "live-object-missing", ((attempts, "resumable", _resumable_without_indexes),), 20
    ),
    # An upload was committed that gc had every right to delete.
    "commit-of-expired-upload": Bug("live-object-missing", ((CommitWindow, "require_open", _nothing),), 500, 61),
    # gc did not wait until an upload may have been given up.
    "orphans-without-grace": Bug(
        "live-object-missing", ((gc, "orphaned_until_ms", lambda now_ms, _grace_ms: now_ms),), 500, 350
    ),
    # gc took what is named for garbage.
    "gc-names-nothing": Bug("live-object-missing", ((gc, "_named", lambda _state: frozenset()),), 5),
    # What was sent was not compared with what was checked.
    "sent-unchecked": Bug("live-object-damaged", ((attempts, "send_checked", _sent_unchecked),), 20),
    # A put that was refused because the number was taken was taken for ours.
    "put-taken-for-ours": Bug("live-object-missing", ((commit_log, "put_once", _put_without_proof),), 50, 32),
    # A leader of the past could commit.
    "not-fenced": Bug(
        "epoch-fell",
        ((copy_task, "require_not_fenced", _nothing), (fold._Draft, "_check_succession", _nothing)),
        100,
        24,
    ),
    # A commit was sent though the broker no longer led.
    "commit-without-a-leader": Bug("commit-unconfirmed", ((copy_task, "require_leads", _nothing),), 50, 10),
    # A commit was sent while it was not known whether the store lets two writers win.
    "commit-before-proof": Bug("commit-unproven", ((SimLink, "require_safe_store", _nothing),), 5),
    # What rolled while the store refused was not pinned.
    "not-pinned-in-an-outage": Bug("not-pinned", ((checks, "_is_outage", lambda _error, _files: False),), 20, 5),
    # Pins were released before anything of them was archived.
    "pins-released": Bug("pin-released", ((pins, "is_taken", lambda _segment, _files: False),), 500, 329),
    # Pins of files that the cleaner replaced were released before the new files were pinned.
    "cleaned-pin-released": Bug("pin-released", ((pins, "_stands", _stands_unless_replaced),), 1_000, 614),
    # What waited for a transaction was not pinned, though retention deletes up to the high watermark.
    "not-pinned-above-the-stable-offset": Bug("not-pinned", ((partition_archiver, "NotStable", NotContiguous),), 20),
    # The last stable offset was believed of deleted segments, though the leader had only raised it to its log start.
    "stable-offset-raised": Bug("undecided", ((pins, "decided_end_offset", _all_that_is_stable),), 500, 425),
    # Pins of a topic that was deleted and created again at once went without a word.
    "recreated-in-silence": Bug("released-silently", ((pins, "RECREATED", pins.NO_LOSS),), 100, 46),
    # A pinned file that someone had deleted from between others was released as if a cleaner had replaced it.
    "deleted-between-in-silence": Bug(
        "released-silently", ((pins, "is_deleted_between", lambda _segment, _files, _before: False),), 200, 96
    ),
    # A file's time had changed, and its directory's listing was believed until something else changed.
    "listing-believed": Bug("not-pinned", ((checks.Checks, "_doubted", lambda _checks: frozenset()),), 200, 134),
    # What only a pin has was released where the archive ends inside of it.
    "pinned-not-cut": Bug("pin-released", ((pins, "reaches_above", _lies_above),), 10_000, 23935),
    # Offsets were recorded as lost by an old answer of the broker, though a pinned segment has them.
    "lost-by-an-old-answer": Bug(
        "lost-while-pinned", ((PinnedLog, "plannable", _plannable_below_the_log_start),), 10_000, 11319462
    ),
    # A gap that another replica may fill was recorded as lost, though the settings say that it stops the partition.
    "gap-recorded-unasked": Bug(
        "passed-over",
        ((partition_archiver, "plan_partition", _plan_over_any_gap),),
        100,
        25,
    ),
    # The same of offsets at the end of a segment, behind which a file is gone.
    "lost-file-recorded-unasked": Bug("passed-over", ((prepare, "lost_tail", _lost_tail_in_any_case),), 50),
    # A loss whose commit had an unknown outcome was not reported; it was stored.
    "loss-of-unknown-outcome": Bug(
        "loss-not-reported", ((deleted_records, "proves_not_committed", lambda _error: True),), 500, 232
    ),
    # What went of a log before its first commit was never reported.
    "loss-below-the-archive": Bug("loss-not-reported", ((LossTracker, "report", _nothing),), 1_000, 684),
    # Without a connection, a segment was archived while its transaction was open.
    "open-transaction-archived": Bug(
        "undecided", ((copy_executor, "open_transactions", lambda _segment, _at_end: None),), 1_000, 116
    ),
    # What a cleaner had taken from the end of a segment was recorded as lost.
    "cleaned-tail-lost": Bug("false-loss", ((prepare, "lost_tail", _lost_tail_in_any_case),), 500, 367),
    # A directory was believed while a cleaner replaced segments in it: what had no name then was passed over.
    "swap-believed": Bug(
        "other-content", ((partition_archiver, "plan_partition", _plan_during_a_swap),), 1_000, 15000161
    ),
    # Where a cleaner had taken a marker, its producer's next commit showed what was aborted.
    "no-marker-added": Bug("aborted-readable", ((added_markers, "added_markers", lambda *_: ()),), 2_000, 1830),
    # A log was taken for another because a cleaner had changed the replica that was archived, and not this one.
    "cleaned-by-another-broker": Bug(
        "not-archived", ((continuity, "judge_local_log", _judged_without_policy),), 10_000, 14514
    ),
    # A new leader that had not yet fetched the log start of the one before stopped its partition.
    "replica-behind-a-loss": Bug(
        "not-archived", ((archive_view, "truncated_into_loss", _any_offset_below_the_loss),), 500, 308
    ),
    # A log was continued though it had been truncated into the loss that its archive ends with.
    "truncated-into-a-loss": Bug(
        "truncation-passed-over", ((archive_view, "truncated_into_loss", _nothing),), 1_000, 589
    ),
    # A segment that a cleaner had emptied stopped its partition, where DeleteRecords had moved the log start into it.
    "emptied-around-the-log-start": Bug("not-archived", ((reading, "complete", _complete_or_refused),), 10_000, 3808),
    # Whatever the strategy, the highest offset won.
    "always-by-offset": Bug(
        "record-lost", ((key_table, "slot_words", lambda _rules: key_table.WITHOUT_SORT_KEY),), 100
    ),
    # Of records with the same timestamp or version the first one won.
    "tie-won-by-the-earlier": Bug("record-lost", ((key_table, "insert_blob", _insert_first_of_ties),), 100),
    # The topic's strategy changed while the archive was compacted, and the result of the old one was committed.
    "old-strategy-committed": Bug("other-strategy", ((archive_job, "require_rule", _nothing),), 1_000, 300),
    # Copies that were made by the topic's former strategy were committed.
    "copies-by-the-old-strategy": Bug(
        "other-strategy",
        ((before_upload, "_change", lambda _group, _rule: None), (BeforeUpload, "require_rule", _nothing)),
        200,
        22,
    ),
    # A strategy that nothing declares, offset by default, followed on another one.
    "default-after-another-strategy": Bug(
        "strategy-mixed",
        (
            (before_upload, "strategy_refusal", lambda _rule, _newest: ""),
            (ArchiveJobs, "_is_declared", lambda _jobs, _one: True),
        ),
        500,
        80,
    ),
    # What DeleteRecords deleted was not noted with the next segment.
    "deletion-not-noted": Bug(
        "deletion-not-noted",
        ((deleted_records.LogStartCheck, "deleted_on_purpose", lambda _check, starts, _end_offset: ([], starts)),),
        100,
    ),
    # A deletion was forgotten when retention moved the log start on before the next commit.
    "deletion-forgotten-after-retention": Bug("deletion-called-loss", ((LogStarts, "seen", _seen_afresh),), 1_000, 355),
    # A descriptor was kept for each segment.
    "descriptor-kept": Bug("descriptor-leak", ((PreparedSegment, "close", _nothing),), 5),
}
