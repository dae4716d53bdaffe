"""An archived partition between the request to compact it and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sidecar.commits.commit_window import CommitWindow
from sidecar.compactor.archive.archived_log import ArchivedLog
from sidecar.compactor.archive.first_look import Looked
from sidecar.compactor.archive.plan import ArchivePlan
from sidecar.compactor.archive.request import CompactionRequest, PartitionCompaction
from sidecar.errors import PartitionError, SidecarError
from sidecar.model import ArchivedSegment
from sidecar.rewriting.job import CompactedOutput, CompactionJob
from sidecar.rewriting.run import Scanned
from sidecar.store_settings import StoreSettings

Job: TypeAlias = CompactionJob[ArchivedLog]


@dataclass(slots=True)
class PartitionInWork:
    """A partition on its way. `result` is set as soon as it is settled.

    `figures`: before the compaction, records, records without key, malformed versions, and records below the log start.
    `new_malformed_versions`: see `PartitionCompaction`. `finished`: uploaded outputs by their number.
    `window`: begins before the first of these uploads. `is_committing`: from here on a commit may name them.
    """

    request: CompactionRequest
    plan: ArchivePlan | None = None
    job: Job | None = None
    outputs: tuple[CompactedOutput[ArchivedLog], ...] = ()
    figures: tuple[int, int, int, int] = (0, 0, 0, 0)
    new_malformed_versions: int = 0
    finished: dict[int, ArchivedSegment] = field(default_factory=dict)
    window: CommitWindow | None = None
    is_committing: bool = False
    result: PartitionCompaction | None = None

    def make_job(self, store: StoreSettings, answers: Sequence[Looked], hash_key: bytes) -> None:
        """The job, from what was found in each live segment, in order; or the first error found.

        `hash_key`: see `CompactionJob`.
        """
        error = next((answer.error for answer in answers if answer.error is not None), None)
        if error is not None or self.plan is None:
            self.fail(error or PartitionError(f"{self.request.root}: nothing was planned"))
            return
        plan, state = self.plan, self.plan.state
        self.job = CompactionJob(
            tuple(ArchivedLog(store, state.lineage.root, segment) for segment in plan.segments),
            tuple(answer.pieces for answer in answers[: plan.count]),
            tuple(transaction for answer in answers for transaction in answer.completed),
            self.request.rules,
            plan.last_batches,
            hash_key,
            start_offset=state.deleted_before_offset,
            first_dirty_offset=state.clean_end_offset if state.clean is not None else None,
        )

    def take(self, found: Scanned[ArchivedLog], outputs: Sequence[CompactedOutput[ArchivedLog]]) -> None:
        """What is to come of it, behind what there is already."""
        self.outputs += tuple(outputs)
        self.figures = (found.record_count, found.unkeyed, found.malformed_versions, found.deleted)
        self.new_malformed_versions = _new_malformed_versions(found)

    def fail(self, error: SidecarError) -> None:
        """Nothing comes of it."""
        self.result = PartitionCompaction(self.request, error)

    def succeed(self, commit_number: int | None) -> None:
        """It is done, by that commit where one was needed."""
        left_alone = 0 if self.plan is None else len(self.plan.state.segments) - self.plan.count
        records_before, unkeyed, malformed_versions, deleted = self.figures
        self.result = PartitionCompaction(
            self.request,
            None,
            left_alone,
            commit_number,
            None if self.plan is None else self.plan.strategy_before,
            outputs=self.outputs,
            records_before=records_before,
            unkeyed=unkeyed,
            malformed_versions=malformed_versions,
            new_malformed_versions=self.new_malformed_versions,
            deleted=deleted,
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
    """Those that go on."""
    return [found for found in partitions if found.result is None]


def results(partitions: Sequence[PartitionInWork]) -> tuple[PartitionCompaction, ...]:
    """How those ended that have."""
    return tuple(found.result for found in partitions if found.result is not None)
