"""The known state of one partition's archive between scans, so that an idle partition costs no request."""

from sidecar.archive.continuity import require_continuation
from sidecar.archive.coverage import ArchiveExtent
from sidecar.archive.state import PartitionState, newest_part, newest_strategy
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.continuity import (
    ArchivePorts,
    OpenedLineage,
    needs_reach,
    open_lineage,
    require_alone,
    require_kept,
    require_reach,
    resume_lineage,
    truncated_into_loss,
)
from sidecar.compaction_strategy import StrategyInUse
from sidecar.errors import CorruptFile, LineageUnknown
from sidecar.host.archive_cache import SEGMENTS_KEPT, Remembered, newest_segments
from sidecar.model import FileIdentity, PartitionFiles
from sidecar.partition.domain_events import ExtentChanged, LostOffsetsOnDisk
from sidecar.partition.facts import Change
from sidecar.segment.prepare import LogPosition
from sidecar.segment.producer_snapshot import state_at_archive_end


class ArchiveView:
    """Of the archive, what local files can be compared with: memory must not grow with the archive.

    `state`: its newest part, None while no lineage was opened. `last_end_offset`: where it ended when that was last known.
    `position`: where the preparation of the next segment begins, None if it has to be worked out. `extent`: what all of it
    covers, as it was last known.
    `reported_lost_below`: the offsets below this were reported as lost while nothing of the partition was archived.
    """

    def __init__(self, context: ArchivePorts, files: PartitionFiles) -> None:
        self._context = context
        self._topic_partition = files.topic_partition
        self._commits: CommitLog | None = None
        self._largest_archived_ms = -1
        self._may_resume = True
        self._is_alone = False
        self._before: PartitionState | None = None
        self._newest: FileIdentity | None = None
        self._reached: FileIdentity | None = None
        self._strategy: StrategyInUse | None = None
        self._knows_strategy = False
        self.state: PartitionState | None = None
        self.last_end_offset: int | None = None
        self.position: LogPosition | None = None
        self.extent = ArchiveExtent()
        self.reported_lost_below = 0

    @property
    def end_offset(self) -> int | None:
        """Exclusive end of the archive as far as it is known; None if there is none, or nothing was ever known."""
        return self.last_end_offset if self.state is None else self.state.end_offset

    def opened(self) -> tuple[PartitionState, CommitLog]:
        """The state and the log to append to. Only after `open`."""
        if self.state is None or self._commits is None:
            raise RuntimeError(f"{self._topic_partition}: no lineage was opened")
        return self.state, self._commits

    def as_known(self, files: PartitionFiles) -> PartitionState | None:
        """As `open`, but without a request: None if the archive would have to be read."""
        if self._newest_has_changed(files):
            # Truncated, or created again: another lineage may be the right one, or none.
            self.forget()
            self.reported_lost_below = 0
        return self.state

    def reset(self, change: Change) -> None:
        """The partition's term is another one, or this broker does not lead: the next `open` reads the archive again."""
        self.forget()
        if change >= Change.LOG:
            self.reported_lost_below = 0
        if change is Change.TOPIC:
            self.last_end_offset = None

    def open(self, files: PartitionFiles) -> PartitionState:
        """The state of the lineage that these files continue. Reads the archive only where nothing is known of it.

        What was known before must still be in the store: an archive that has lost its newest commits is not continued.

        Raises LineageUnknown, CorruptFile, StoreError.
        """
        known = self.as_known(files)
        if known is not None:
            return known
        opened = self._resumed(files) or open_lineage(self._context, files)
        self._commits, remembered = opened.commits, opened.remembered
        self._is_alone = False
        self._largest_archived_ms = -1 if remembered is None else remembered.largest_timestamp_ms
        self._grow(ArchiveExtent() if remembered is None else remembered.extent, opened.state)
        state = self.keep(self._require_kept(opened, files), files)
        self._before = None
        number, mark = state.next_number, opened.commits.mark(state.next_number - 1)
        if remembered is None or (remembered.state.next_number, remembered.mark) != (number, mark):
            self.remember()
        return self._newest_of(state)

    def newest_strategy(self, files: PartitionFiles) -> StrategyInUse | None:
        """By which strategy the archive's newest compaction decided, None if nothing is compacted.

        Reads the archive where the newest part of it is all that was known. Raises LineageUnknown, CorruptFile, StoreError.
        """
        state = self.open(files)
        if not (_tells_strategy(state) or self._knows_strategy):
            self.forget()
            state = self.open(files)
        return newest_strategy(state) if _tells_strategy(state) else newest_strategy(state) or self._strategy

    def require_alone(self, files: PartitionFiles) -> None:
        """To be called before anything is appended. Raises LineageUnknown, CorruptFile, StoreError."""
        if not self._is_alone:
            require_alone(self._context, files, self.opened()[0])
            self._is_alone = True

    def _require_kept(self, opened: OpenedLineage, files: PartitionFiles) -> PartitionState:
        """The state, after a check that the store still has the last commit that this process or the one before knew.

        Raises CorruptFile, StoreError.
        """
        if opened.remembered is not None:
            return opened.state  # Resuming has checked it.
        if self._before is None:
            recalled = self._context.memory.recall(self._topic_partition)
            self._before = None if recalled is None else recalled.state
        return opened.state if self._before is None else require_kept(self._context, files, opened, self._before)

    def _resumed(self, files: PartitionFiles) -> OpenedLineage | None:
        # Once in a process: whoever forgot what it knew wants to see the archive itself.
        may_resume, self._may_resume = self._may_resume, False
        return resume_lineage(self._context, files) if may_resume else None

    def rest(self) -> None:
        """A task has committed, and ended: write what saves the next process and other readers many requests."""
        if self.state is not None and self._commits is not None:
            self._commits.leave_checkpoint(self.state)
            self.remember()
            self._newest_of(self.state)

    def _newest_of(self, state: PartitionState) -> PartitionState:
        """Keep no more of the state than a process keeps that resumes it; that many segments of many partitions are much."""
        if len(state.segments) > SEGMENTS_KEPT:
            return self._cut(state, state.segments[-SEGMENTS_KEPT].base_offset)
        return state

    def remember(self) -> None:
        """Have what is known outlive the process."""
        if self.state is not None and self._commits is not None:
            commits, mark = self._commits, self._commits.mark(self.state.next_number - 1)
            found = Remembered(self.state, self._largest_archived_ms, commits.newest_checkpoint, self.extent, mark)
            self._context.memory.remember(found)

    def forget(self) -> None:
        """The next `open` reads the archive again."""
        if self.state is not None:
            self.last_end_offset = self.state.end_offset
            self._before = newest_segments(self.state) if self.state.next_number else None
        self.state, self._commits, self.position = None, None, None
        self._newest, self._reached = None, None

    def keep(self, state: PartitionState, files: PartitionFiles) -> PartitionState:
        """Remember this state, as far as local files reach down. Returns what is remembered."""
        known_end_offset = -1 if self.state is None or self.state.end_offset is None else self.state.end_offset
        for segment in reversed(state.segments):
            if segment.end_offset <= known_end_offset:
                break
            self._largest_archived_ms = max(self._largest_archived_ms, segment.max_timestamp_ms)
        return self._cut(state, files.first_offset or 0)

    def _cut(self, state: PartitionState, from_offset: int) -> PartitionState:
        """Remember the newest part of this state, and by which strategy the rest was compacted.

        All of it while the journal has attempts: which of them are committed only the segments tell.
        """
        has_attempts = bool(self._context.journal.attempts(state.lineage.root))
        self.state = state if has_attempts else newest_part(state, from_offset)
        if self.state is not state:
            found = newest_strategy(state)
            if _tells_strategy(state):
                self._strategy, self._knows_strategy = found, True
            else:
                self._strategy = found or self._strategy
        return self.state

    def overtaken(self, state: PartitionState, files: PartitionFiles) -> None:
        """Another writer has committed, and this is the state now; its newest part where `open` has read it."""
        self._grow(ArchiveExtent() if state.is_whole else self.extent, state)
        self._knows_strategy = False  # It may have undone a compaction.
        self.keep(state, files)
        self.position, self._reached = None, None

    def recorded(self, state: PartitionState, files: PartitionFiles) -> PartitionState:
        """We have committed that offsets above the archive are lost. Returns what is remembered of the state now."""
        self._grow(self.extent, state)
        self.position = None
        return self.keep(state, files)

    def committed(self, state: PartitionState, files: PartitionFiles, log: FileIdentity, position: LogPosition) -> bool:
        """We have committed `log`, and this is the state now; whether it is the first since the lineage was opened."""
        is_first, self._newest = self._newest is None, log
        self._grow(self.extent, state)
        self.keep(state, files)
        self.position = position
        return is_first

    def is_reach_in_doubt(self, files: PartitionFiles) -> bool:
        """Whether the active segment is another than at the last `require_reach`, and has to be read for the next one."""
        if self._reached is not None and _continues(files.active_log, self._reached):
            return False
        if not needs_reach(files, self.opened()[0]):
            self._reached = files.active_log
            return False
        return True

    def require_reach(self, files: PartitionFiles, log_start_offset: int) -> None:
        """Raise LineageUnknown if the local log ends below the archive, or was truncated below it, into a recorded loss.

        The latter is only reported where losses are accepted (run.record_lost).
        """
        state = self.opened()[0]
        try:
            require_reach(self._context, files, state)
        except LineageUnknown:
            self.forget()  # Only a log that is proven to be another one is appended to it.
            raise
        found = truncated_into_loss(self._context.disk, files, state, log_start_offset)
        if found is not None:
            self._context.emit(LostOffsetsOnDisk(self._topic_partition, found.reason))
            if not self._context.policy.record_lost:
                require_continuation(state, files.topic_id, found)
        self._reached = files.active_log

    def position_before(self, files: PartitionFiles, base_offset: int, state: PartitionState) -> LogPosition:
        """The position at the base of what is to be archived next.

        The kept data may be of another segment: one that was read, and that retention deleted before it was archived.
        """
        if self.position is None or self.position.known.table.end_offset != base_offset:
            try:
                self.position = self._position_at(files, base_offset, state)
            except CorruptFile:
                # Compacted since it was read, and deleted by gc: its replacement proves the same.
                self.forget()
                state = self.open(files)
                self.position = self._position_at(files, base_offset, state)
        return self.position

    def _position_at(self, files: PartitionFiles, base_offset: int, state: PartitionState) -> LogPosition:
        """From what is archived below the offset, else from the local log."""
        store, disk = self._context.store, self._context.disk
        known = (
            state_at_archive_end(store, state, disk.dropped_producers(files.directory))
            if state.end_offset == base_offset
            else None
        )
        return LogPosition(known or disk.producers_at(files, base_offset), self._largest_archived_ms)

    def _grow(self, extent: ArchiveExtent, state: PartitionState) -> None:
        """The archive covers this extent and what the state has above it."""
        self.extent = extent.grown(state.segments, state.holes)
        self._context.emit(ExtentChanged(self._topic_partition, self.extent))

    def _newest_has_changed(self, files: PartitionFiles) -> bool:
        newest = self._newest
        if newest is None:
            return False
        present = next((segment.log for segment in reversed(files.segments) if segment.log.has_place_of(newest)), None)
        is_active = files.active_log is not None and files.active_log.has_place_of(newest)
        return is_active or present not in (None, newest)


def _tells_strategy(state: PartitionState) -> bool:
    """Whether older segments, which are left out, say nothing more of the newest compaction."""
    return state.is_whole or state.clean is not None


def _continues(active: FileIdentity | None, earlier: FileIdentity) -> bool:
    """Whether the active segment is the one of an earlier scan, and has not become shorter."""
    return active is not None and active.inode == earlier.inode and active.size_bytes >= earlier.size_bytes
