"""The pinned segments of one partition's log: planned, not archived yet, and perhaps already deleted from its directory."""

from collections import defaultdict
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from sidecar.archive.continuity import is_archived_log
from sidecar.archive.state import PartitionState
from sidecar.errors import CoverageHole, PartitionError, SidecarError
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles
from sidecar.partition import pins
from sidecar.partition.facts import Change, PartitionFacts, Term
from sidecar.partition.plan import PartitionPlan
from sidecar.partition.wait_reason import BrokerAway, StrayDirectory
from sidecar.retention.loss_tracker import LossTracker, PinPorts
from sidecar.segment.prepare import LogPosition
from sidecar.segment.producer_snapshot import KnownState


class PinnedLog:
    """Segments that were worth pinning when they were planned. In another term they are released.

    Under another leader epoch those stay that this log's epochs show to be in it still (KIP-101), or that lie below the end of the
    epoch before if no other broker led in between. KRaft gives a leader that stays new epochs: one in a reassignment, two where
    the only replica restarts. They also stay where the log moves to another log dir.

    `tail`: the active segment, if it is expected to go as one of them, and when the broker deletes it, in wall-clock milliseconds.
    `is_outdated`: a file was not what is listed when it was to be pinned. `decided_end_offset`: see the function of this name.
    """

    def __init__(self, context: PinPorts) -> None:
        self._context = context
        self._pinned = context.pinned
        self._segments: tuple[SegmentFiles, ...] = ()
        self._gone: tuple[SegmentFiles, ...] = ()
        self._listed: tuple[SegmentFiles, ...] = ()
        self._failed_once: set[FileIdentity] = set()
        self._start: KnownState | None = None
        self._is_newly_seen = False
        self._leads = self.is_outdated = False
        self._leader_epoch = -1
        self._epochs: LeaderEpochs | None = None
        self._term: Term | None = None
        self.decided_end_offset = 0
        self.losses = LossTracker(context)
        self.tail: tuple[int, FileIdentity] | None = None

    @property
    def logs(self) -> tuple[FileIdentity, ...]:
        """Files that are pinned, or will be; ascending."""
        return tuple(segment.log for segment in self._segments)

    @property
    def gone(self) -> tuple[SegmentFiles, ...]:
        """Segments of which only the pinned file is left, as of the last scan; ascending."""
        return tuple(segment for segment in self._gone if self._pinned.has(segment.log))

    @property
    def gone_logs(self) -> tuple[FileIdentity, ...]:
        """Segments that lay below the log's beginning at the last scan: they cannot be opened again."""
        return tuple(segment.log for segment in self._gone)

    def planned(self, plan: PartitionPlan, beyond_limit: Container[FileIdentity] = ()) -> None:
        """Remember the segments of a plan that are pinned now, in addition to those planned before.

        `beyond_limit`: files for which there are too few descriptors.
        """
        self.is_outdated = False
        if not (plan.segments or self._segments):
            return
        if plan.segments:
            self._leader_epoch = max(self._leader_epoch, plan.facts.leader_epoch)
            self._epochs = self._epochs or self._epochs_of(plan.files)
        by_log = {segment.log: segment for segment in (*self._segments, *plan.segments)}
        self._segments = tuple(sorted(by_log.values(), key=lambda segment: segment.base_offset))
        pinned = {segment.log for segment in self._segments if self._pinned.has(segment.log)}
        unpinned = [segment for segment in self._segments if segment.log not in pinned]
        self.is_outdated = any(segment.log not in beyond_limit for segment in unpinned)
        replaced = [segment for segment in self._segments if pins.replacement(segment, plan.files) in pinned]
        self._release([*unpinned, *replaced])

    def expect(self, plan: PartitionPlan, tail: tuple[int, SegmentFiles] | None) -> None:
        """Pin the active segment, too, from the next `planned` on; see `tail`. None: it is not deleted soon, or may grow.

        While this leadership is unknown, the earlier expectation stays, until `see` drops it.
        """
        if tail is None and (plan.facts.unanswered or plan.facts.reason):
            return
        self.tail = None if tail is None else (tail[0], tail[1].log)
        if tail is not None:
            self._segments = (*(known for known in self._segments if known.log != tail[1].log), tail[1])

    def holds(self, file: FileIdentity | None) -> bool:
        return file is not None and any(known.log == file for known in self._segments) and self._pinned.has(file)

    def see(
        self, files: PartitionFiles, facts: PartitionFacts, archived_end_offset: int | None, *, is_answer: bool = True
    ) -> None:
        """A partition was checked: release all that is not wanted any more; see `why_released`.

        `is_answer`: the leader was asked since the last time.
        """
        term, is_led = facts.term(files), facts.leads or facts.unanswered
        change = term.since(self._term)
        self.losses.see(files, facts, change if is_led else Change.NONE)
        self._is_newly_seen |= is_answer
        self._leads = self._may_lead(facts)
        # Of a directory without an id, a node that does not know the topic shows no other one.
        if not (is_led or (change is Change.TOPIC and files.topic_id)) or self._is_copied(facts, change):
            change = Change.NONE
        if change >= Change.LOG or not self._leads:
            self._start, self.tail, self.decided_end_offset = None, None, 0
        kept_end_offset = None
        if facts.leads and facts.leader_epoch != self._leader_epoch:
            # Not before it answers as leader: the checkpoint has the epoch's beginning only then. Source: Partition.makeLeader.
            self.tail, kept_end_offset = None, self._same_below(files, facts.leader_epoch)
            self.decided_end_offset = min(self.decided_end_offset, max(0, kept_end_offset))
        why_released = partial(
            pins.why_released,
            files=files,
            facts=facts,
            change=change,
            leads=self._leads,
            kept_end_offset=kept_end_offset,
            tail=self.tail and self.tail[1],
            before=self._listed,
        )
        self.archived(archived_end_offset)
        released = defaultdict[str, list[SegmentFiles]](list)
        for segment in self._segments:
            if (why := why_released(segment)) is not None:
                released[why].append(segment)
        for why, segments in released.items():
            self._release(segments, why)
        if not files.unstable:  # Else what has no name may get one yet.
            self._listed = files.segments
            with_snapshot = self._context.disk.with_snapshot
            gone = {s.log: with_snapshot(s, files) for s in self._segments if pins.is_taken(s, files)}
            self._segments = tuple(gone.get(segment.log, segment) for segment in self._segments)
            self._gone = tuple(gone.values())
        if facts.leads:
            self.decided_end_offset = pins.decided_end_offset(files, facts, self.decided_end_offset)
        if is_led:
            self._term = term

    def _may_lead(self, facts: PartitionFacts) -> bool:
        """Whether no other leader is named. While the broker is away, what it answered last holds."""
        return facts.names_no_other_leader or (self._leads and isinstance(facts.reason, BrokerAway))

    def _is_copied(self, facts: PartitionFacts, change: Change) -> bool:
        """Whether the log was moved to another log dir, fetched from this very leader. Source: ReplicaAlterLogDirsThread."""
        return change is Change.LOG and facts.topic_id is not None and facts.leader_epoch == self._leader_epoch

    def _same_below(self, files: PartitionFiles, leader_epoch: int) -> int:
        """Up to there this log has, under the leader epoch that begins, what it had when the segments were pinned."""
        end_offset, epochs = None, self._epochs_of(files) if self._segments else None
        if epochs is not None and leader_epoch == self._leader_epoch + 1:
            end_offset = epochs.end_offset_of(self._leader_epoch)
        elif epochs is not None and self._epochs is not None:
            end_offset = self._epochs.same_below(epochs)
        self._leader_epoch, self._epochs = leader_epoch, epochs
        return -1 if end_offset is None else end_offset

    def _epochs_of(self, files: PartitionFiles) -> LeaderEpochs | None:
        with suppress(PartitionError):  # Whoever archives the next segment reports it.
            return self._context.disk.leader_epochs(files)
        return None

    def see_unlisted(self, facts: PartitionFacts | None) -> bool:
        """Its directory cannot be listed: nothing says that anything in it has changed, but the leader may have.

        False if it is not this broker's to archive, for all that is known. `facts`: None if they cannot be read.
        """
        if facts is not None and not self._may_lead(facts):
            self._leads = False
            self._drop(pins.RECREATED if isinstance(facts.reason, StrayDirectory) else pins.NO_LOSS)
        return self._leads

    def plannable(
        self,
        files: PartitionFiles,
        facts: PartitionFacts,
        archived_end_offset: int | None,
        archived_start_offset: int | None = None,
        waiting: SegmentFiles | None = None,
    ) -> tuple[SegmentFiles, ...]:
        """Segments that the directory lacks, and that can be archived from their descriptors; ascending. Call `see` first.

        Whatever log start the leader reports: it may have answered before retention took them, and what the plan leaves out
        would be recorded as lost. Where the archive is empty, reports what of the log is gone and will never be in it.

        `archived_start_offset`, `archived_end_offset`: of the archive that these segments are to continue, None if it has nothing.
        `waiting`: the segment that waits for a transaction, if one does.
        """
        if waiting is not None:
            self.give_up(waiting, "it waits for a transaction whose end marker can only be found in the directory")
        found = tuple(segment for segment in self.gone if pins.reaches_above(segment, archived_end_offset))
        is_newly_seen, self._is_newly_seen = self._is_newly_seen, False
        if is_newly_seen:
            # Once for each answer of the leader: only its next one can settle a doubt of `losses`.
            self._remember_start(None if found or archived_end_offset is not None else files)
            first_offset = found[0].base_offset if found else files.first_offset
            self.losses.report(facts, archived_start_offset, archived_end_offset, first_offset)
        return found

    def _remember_start(self, files: PartitionFiles | None) -> None:
        """Of an empty archive, the producers at the log's beginning: the broker deletes their snapshot with the first segment."""
        base_offset = None if files is None else files.first_offset
        if files is None or base_offset is None:
            return
        if self._start is None or self._start.start_offset != base_offset:
            self._start = self._context.disk.producers_at(files, base_offset)

    def cut(self, segment: SegmentFiles, base_offset: int) -> SegmentFiles | None:
        """See `LogDisk.cut`, from the pinned file where there is one."""
        descriptor = self._pinned.take(segment.log)
        try:
            return self._context.disk.cut(segment, base_offset, descriptor)
        finally:
            self._context.disk.close(descriptor)

    def start_of(self, plan: PartitionPlan) -> LogPosition | None:
        """Where the preparation of a plan begins whose first segment is gone, and is to be the first of its archive."""
        start = self._start
        if start is None or not plan.segments or plan.segments[0].log not in self.gone_logs:
            return None
        return LogPosition(start, -1) if start.start_offset == plan.segments[0].base_offset else None

    def only_gone(self, plan: PartitionPlan) -> PartitionPlan:
        """The plan with only the deleted segments: no other process can open them, so they do not wait to be compacted first."""
        own = sum(segment.log in self.gone_logs for segment in plan.segments)
        if own == len(plan.segments):
            return plan
        # What waits only for these has no reason of its own, and is pinned.
        later = (*plan.segments[own:], *plan.waiting)
        return replace(plan, segments=plan.segments[:own], waiting=later, reason=None, recheck_in_ms=0)

    def archived(self, end_offset: int | None) -> None:
        """The archive reaches so far: what lies below is not needed any more. None: nothing is archived, or none of it is known."""
        self._start = self._start if end_offset is None else None
        self._release(segment for segment in self._segments if not pins.reaches_above(segment, end_offset))

    def archive_read(self, files: PartitionFiles, archived: PartitionState, start_offset: int | None) -> None:
        """Another writer may have archived what is pinned. Release what is proven to be archived, from this very log.

        An idle partition is not seen again. `start_offset`: of the archive.
        """
        covered = [segment for segment in self._segments if pins.is_covered(segment, archived, start_offset)]
        epochs = self._epochs_of(files) if covered else None
        if epochs is not None and is_archived_log(archived, epochs.entries):
            self._release(covered)

    def failed(self, segment: SegmentFiles, error: SidecarError) -> None:
        """It could not be prepared. Where its own bytes are at fault, a third read does not help; a gap in it needs a person.

        A second one may: a disk or memory may have failed once, and no other file has these bytes.
        """
        if isinstance(error, PartitionError) and not error.retryable and not isinstance(error, CoverageHole):
            if segment.log in self._failed_once:
                self.give_up(segment, str(error))
            else:
                self._failed_once = {*self._failed_once & set(self.gone_logs), segment.log}

    def give_up(self, segment: SegmentFiles, why: str) -> None:
        """Nothing happens unless it is gone from the directory: else it would keep what lies above from being archived for ever."""
        if segment.log in self.gone_logs:
            self._release([segment], why)

    def vanished(self, files: PartitionFiles) -> None:
        """It is not listed any more: its directory is gone, or the settings exclude it. Reports what only the pins have."""
        try:
            self._context.disk.listed_again(files)
        except PartitionError:
            self._drop(pins.DELETED)
        else:
            self._release(self.gone, pins.NOT_CHOSEN)
            self._drop(pins.NO_LOSS)

    def _drop(self, why: str) -> None:
        self._release(self._segments, why)
        self._start = self.tail = None

    def _release(self, segments: Iterable[SegmentFiles], why: str = pins.NO_LOSS) -> None:
        """The only way that pins of this log go. `why`: see `PinnedFiles.let_go`."""
        logs = dict.fromkeys(segment.log for segment in segments)
        if not logs:
            return
        self._pinned.let_go(logs, why)
        self._segments = tuple(segment for segment in self._segments if segment.log not in logs)
        self._gone = tuple(segment for segment in self._gone if segment.log not in logs)
