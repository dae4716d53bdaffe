"""What is asked of a compaction of archived partitions, which segments may be compacted now, and how far each has come."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from socket import gethostname
from typing import TypeAlias

from sidecar import __version__
from sidecar.archive.commit import Writer
from sidecar.archive.replacement import newest_replacement
from sidecar.archive.state import CommitId, PartitionState, newest_strategy
from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.commit_window import CommitWindow
from sidecar.commits.stored_commits import proves_not_committed
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rewrite import RewriteCounts
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import StrategyInUse
from sidecar.compactor.archive.archived_log import ArchivedLog
from sidecar.errors import Fenced, PartitionError, SidecarError
from sidecar.event_log import EVENTS
from sidecar.model import ArchivedSegment, ObjectKey
from sidecar.ports import ObjectStore
from sidecar.rewriting.job import CompactedOutput, CompactionFigures, CompactionJob
from sidecar.rewriting.run import Scanned
from sidecar.segment.archived_objects import first_undecided, table_at_end


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """Compact the whole archive of the lineage `root`, clean and dirty, up to `end_offset` (exclusive; None: its end).

    `writer`: None for whoever committed last: a commit of a later leader fences it all the same. `keep_raw_ms`: how long
    raw segments that are replaced stay beyond the grace period. `may_change_strategy`: whether the newest compaction may have
    been by another strategy. `newest_commit`: see `LedPartition`; by hand none is known.
    """

    root: ObjectKey
    rules: CompactionRules
    writer: Writer | None = None
    end_offset: int | None = None
    keep_raw_ms: int = 0
    may_change_strategy: bool = True
    newest_commit: Callable[[], CommitId | None] = field(default=lambda: None, compare=False)


@dataclass(frozen=True, slots=True)
class PartitionCompaction(CompactionFigures[ArchivedLog]):
    """How it ended: with an error, or with outputs, of which those that are `unchanged` stay.

    After an error nothing was committed, unless `is_unknown`.

    `left_alone`: live segments above what may be compacted. `commit_number`: None where there was nothing to commit, and in
    a dry run. `strategy_before`: of the newest compaction before this one, if it was another one.
    `new_malformed_versions`: those of `malformed_versions` that no compaction has met before. `would_commit`: of a dry run.
    """

    request: CompactionRequest
    error: SidecarError | None = None
    left_alone: int = 0
    commit_number: int | None = None
    strategy_before: StrategyInUse | None = None
    new_malformed_versions: int = 0
    would_commit: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether the commit was sent and its outcome is unknown. The objects that it names stay in the store."""
        return self.error is not None and not proves_not_committed(self.error)


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """The first `count` live segments are compacted.

    `last_batches`: of the producers known at the end of the range. `strategy_before`: of the newest compaction, if it was another
    one than that of the request.
    """

    state: PartitionState
    writer: Writer
    count: int
    last_batches: LastBatches
    strategy_before: StrategyInUse | None = None

    @property
    def segments(self) -> tuple[ArchivedSegment, ...]:
        return self.state.segments[: self.count]


def plan_archive(store: ObjectStore, request: CompactionRequest, clock: Clock) -> ArchivePlan:
    """Read the commits, and the producer states that decide. Raises Fenced, CorruptFile, StoreError."""
    state = CommitLog(store, request.root, clock, known=request.newest_commit).read()
    writer = request.writer or operator(state)
    if writer.leader_epoch < state.highest_leader_epoch:
        raise Fenced(
            f"{state.lineage.root}: leader epoch {state.highest_leader_epoch} has committed, this writer has "
            f"{writer.leader_epoch}: another broker leads {state.lineage.topic_partition} now; nothing was compacted"
        )
    newest = newest_strategy(state)
    if not request.may_change_strategy and newest not in (None, request.rules.in_use):
        raise PartitionError(
            f"{state.lineage.root}: its newest compaction used strategy {newest}, this one would use "
            f"{request.rules.in_use}. Nothing was compacted, because neither the settings nor the topic's config "
            "give the strategy. Set it in the topic's entry of compaction.topics, or compact by hand with "
            "--override"
        )
    undecided = first_undecided(store, state)
    limit = min(offset for offset in (request.end_offset, undecided, 2**63 - 1) if offset is not None)
    count = sum(segment.end_offset <= limit for segment in state.segments)
    if not count:
        return ArchivePlan(state, writer, 0, LastBatches())
    table = table_at_end(store, state.lineage.root, state.segments[count - 1])
    before = newest if newest != request.rules.in_use else None
    if before is not None:
        EVENTS.warning(
            "compaction_changes_strategy",
            partition=str(state.lineage.topic_partition),
            old=str(before),
            new=str(request.rules.in_use),
            first_dirty_offset=state.clean_end_offset,
        )
    return ArchivePlan(state, writer, count, LastBatches.of(table), before)


def operator(state: PartitionState) -> Writer:
    """Who compacts or clears up by hand: in the name of the last leader, so that a commit of a later one fences it."""
    return Writer(-1, state.highest_leader_epoch, f"{gethostname()}:{os.getpid()}", f"tiered-sidecar {__version__}")


Job: TypeAlias = CompactionJob[ArchivedLog]


@dataclass(slots=True)
class PartitionInWork:
    """A partition on its way. `result` is set as soon as it is settled.

    `scanned`, `outputs`: as far as it was rewritten. `finished`: uploaded outputs by their number. `window`: begins before the
    first of these uploads. `is_committing`: from here on a commit may name them.
    """

    request: CompactionRequest
    plan: ArchivePlan | None = None
    job: Job | None = None
    scanned: Scanned[ArchivedLog] | None = None
    outputs: tuple[CompactedOutput[ArchivedLog], ...] = ()
    finished: dict[int, ArchivedSegment] = field(default_factory=dict)
    window: CommitWindow | None = None
    is_committing: bool = False
    result: PartitionCompaction | None = None

    @property
    def planned(self) -> ArchivePlan:
        if self.plan is None:
            raise ValueError(f"{self.request.root}: nothing was planned")
        return self.plan

    @property
    def sources(self) -> list[ArchivedLog]:
        return [source for output in self.outputs for source in output.sources]

    def needs_commit(self, state: PartitionState) -> bool:
        """False where the archive says so already."""
        is_same_rule = newest_strategy(state) == self.request.rules.in_use
        return not (self._is_clean(state) and is_same_rule and all(output.unchanged for output in self.outputs))

    def spares_undo(self, state: PartitionState) -> bool:
        """Whether the sources stay: joined segments and new delete horizons alone are not worth the newest compaction's undo."""
        return self._is_clean(state) and not self._loses_records and newest_replacement(state) is not None

    def _is_clean(self, state: PartitionState) -> bool:
        return state.clean is not None and state.clean.end_offset >= self.sources[-1].segment.end_offset

    @property
    def _loses_records(self) -> bool:
        if self.scanned is None:
            return True
        return self.scanned.figures()["records_before"] != sum(output.counts.kept_records for output in self.outputs)

    def leave_sources(self) -> None:
        """The sources stay as they are: nothing is committed in their place."""
        figures = sum((output.counts for output in self.outputs), RewriteCounts())
        self.outputs = tuple(
            CompactedOutput(
                (source,),
                (source,),
                unchanged=True,
                size_bytes=source.size_bytes,
                crc32c=source.segment.parts[0].crc32c,
                # Only their sum is reported.
                counts=RewriteCounts() if number else RewriteCounts(kept_records=figures.kept_records),
                transactions=(),
            )
            for number, source in enumerate(self.sources)
        )

    def fail(self, error: SidecarError) -> None:
        self.result = PartitionCompaction(self.request, error)

    def succeed(self, commit_number: int | None, *, would_commit: bool = False) -> None:
        plan = self.planned
        self.result = PartitionCompaction(
            self.request,
            None,
            len(plan.state.segments) - plan.count,
            commit_number,
            plan.strategy_before,
            0 if self.scanned is None else _new_malformed_versions(self.scanned),
            would_commit,
            outputs=self.outputs,
            **({} if self.scanned is None else self.scanned.figures()),
        )


def _new_malformed_versions(found: Scanned[ArchivedLog]) -> int:
    """Of segments that no compaction has read before, not even one before their upload."""
    job, first_dirty = found.job, found.job.first_dirty_offset or 0
    return sum(
        scan.malformed_versions
        for scan in found.scans
        if scan.last_offset >= first_dirty and not job.files[scan.split.segment].segment.generation
    )


def unsettled(partitions: Sequence[PartitionInWork]) -> list[PartitionInWork]:
    return [found for found in partitions if found.result is None]
