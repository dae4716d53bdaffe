"""Many partitions through the three stages in one run: each ends with its outputs, or with its own error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np

from sidecar.compaction.outputs import PlannedOutput, legacy_tombstones_kept, plan_outputs
from sidecar.compaction.rewrite_counts import RewriteCounts
from sidecar.compaction.scan import SplitScan
from sidecar.compaction.verdicts import SplitVerdicts
from sidecar.engine_ports import StagedRun, StageEngine, Stages
from sidecar.errors import SidecarError
from sidecar.pipeline.compaction.job import CompactedOutput, CompactionJob
from sidecar.pipeline.compaction.packing import placed, scan_tasks
from sidecar.pipeline.compaction.parts import Parts
from sidecar.pipeline.compaction.sources import SourceT
from sidecar.pipeline.compaction.stages import (
    JobFailure,
    JobRewriting,
    Reduction,
    RewriteTask,
    Rewriting,
    RewrittenSplit,
    ScannedShare,
    SplitRewriting,
    WinnerCounts,
    scan,
)

ResultT = TypeVar("ResultT")

_BUCKETS_PER_TASK: Final = 4
"""As many buckets' blobs may wait in one reduction task."""

_BUCKETS_OF_SMALL_JOBS: Final = 1024
"""So many more where each job has one bucket: its winners are decided already, or its blobs are small."""


@dataclass(frozen=True, slots=True, eq=False)
class Scanned(Generic[SourceT]):
    """The first two stages are done for a job: by split, what was found and how many records win.

    `first_split`: the number in the run of the job's first split.
    """

    job: CompactionJob[SourceT]
    first_split: int
    scans: tuple[SplitScan, ...]
    verdicts: tuple[SplitVerdicts, ...]
    winner_counts: tuple[int, ...]

    @property
    def record_count(self) -> int:
        """Markers included."""
        return sum(scan.record_count for scan in self.scans)

    @property
    def unkeyed(self) -> int:
        """Records without key."""
        return sum(scan.unkeyed for scan in self.scans)

    @property
    def malformed_versions(self) -> int:
        """Records whose version header is not there, or is none."""
        return sum(scan.malformed_versions for scan in self.scans)


@dataclass(frozen=True, slots=True, eq=False)
class ScannedRun(Generic[SourceT]):
    """The first two stages are done. `results`: by job, what was found or the error that ended it."""

    results: tuple[Scanned[SourceT] | SidecarError, ...]
    stages: Stages
    run: StagedRun


@contextmanager
def scanned(jobs: Sequence[CompactionJob[SourceT]], engine: StageEngine) -> Iterator[ScannedRun[SourceT]]:
    """Run the first two stages. Raises what the engine raises; CorruptFile and others of a partition are its result."""
    found = placed(jobs)
    verdicts = [job.verdicts() if job.files else () for job in jobs]
    cores = engine.cores
    tasks = scan_tasks(found, verdicts, cores)
    buckets = sum(1 << job.places.bucket_bits for job in found)
    largest = max((1 << job.places.bucket_bits for job in found), default=1)
    per_task = _BUCKETS_PER_TASK if largest > 1 else _BUCKETS_OF_SMALL_JOBS
    second_tasks = min(max(buckets, 1), max(cores, buckets // per_task))
    reduction = Reduction(tuple(job.places for job in found), tuple(job.rules for job in jobs))
    stages = Stages(scan, reduction, buckets, second_tasks, max(len(tasks), 1))
    with engine.staged(stages, tasks) as run:
        failures = _failures(run.answers)
        winners = np.zeros(sum(len(job.splits) for job in found), dtype=np.int64)
        for counts in (answer for answer in run.answers if isinstance(answer, WinnerCounts)):
            for split, count in counts.by_split.items():
                winners[split] += count
        scans: list[list[SplitScan]] = [[] for _ in jobs]
        for share in (answer for answer in run.answers if isinstance(answer, ScannedShare)):
            scans[share.job] += share.scans
        results: list[Scanned[SourceT] | SidecarError] = []
        for number, (job, place) in enumerate(zip(jobs, found, strict=True)):
            first, count = place.places.first_split, place.places.split_count
            in_order = tuple(sorted(scans[number], key=lambda scan_: scan_.split.number))
            results.append(
                failures.get(number)
                or Scanned(
                    job, first, in_order, tuple(verdicts[number]), tuple(winners[first : first + count].tolist())
                )
            )
        yield ScannedRun(tuple(results), stages, run)


def rewritten(
    found: ScannedRun[SourceT], parts: Parts | None
) -> tuple[tuple[CompactedOutput[SourceT], ...] | SidecarError, ...]:
    """Run the third stage: parts into `parts`, or, where that is None, only the sizes that they would have.

    By job, its outputs or the error that ended it, here or before. Raises what the engine raises.
    """
    tasks: list[list[JobRewriting]] = [[] for _ in range(found.stages.third_tasks)]
    planned: list[tuple[PlannedOutput, ...]] = []
    for number, result in enumerate(found.results):
        planned.append(() if isinstance(result, SidecarError) else _plan(found.stages, number, result, tasks))
    plans: list[RewriteTask] = [tuple(task) for task in tasks]
    answers = found.run.third(Rewriting(parts), plans)
    failures = _failures(answers)
    written = {answer.number: answer for answer in answers if isinstance(answer, RewrittenSplit)}
    ended: list[tuple[CompactedOutput[SourceT], ...] | SidecarError] = []
    for number, (result, outputs) in enumerate(zip(found.results, planned, strict=True)):
        if isinstance(result, SidecarError):
            ended.append(result)
        else:
            ended.append(failures.get(number) or tuple(_output(result, output, written) for output in outputs))
    return tuple(ended)


def only(results: Sequence[ResultT | SidecarError]) -> ResultT:
    """The result of a run of one job. Raises the error that it is."""
    (result,) = results
    if isinstance(result, SidecarError):
        raise result
    return result


def _plan(
    stages: Stages, number: int, found: Scanned[SourceT], tasks: Sequence[list[JobRewriting]]
) -> tuple[PlannedOutput, ...]:
    """Plan a job's outputs, and give their splits to the tasks where their winners will be."""
    job = found.job
    segments = [file.unread() for file in job.files]
    if not segments:
        return ()
    outputs = plan_outputs(segments, found.scans, found.verdicts, found.winner_counts, job.rules)
    first_dirty = job.files[0].base_offset if job.first_dirty_offset is None else job.first_dirty_offset
    protected = legacy_tombstones_kept(segments, job.rules, first_dirty)
    splits: defaultdict[int, list[SplitRewriting]] = defaultdict(list)
    for output in outputs:
        for local in range(output.first_split, 0 if output.unchanged else output.end_split):
            split_scan, ending = found.scans[local], output.endings[local - output.first_split]
            segment = split_scan.split.segment
            splits[stages.third_task_of(found.first_split + local)].append(
                SplitRewriting(
                    found.first_split + local,
                    job.files[segment],
                    split_scan,
                    ending,
                    found.verdicts[local].by_batch,
                    protected[segment],
                )
            )
    for task, held in splits.items():
        tasks[task].append(JobRewriting(number, job.rules, job.last_batches, tuple(held)))
    return outputs


def _output(
    found: Scanned[SourceT], output: PlannedOutput, written: dict[int, RewrittenSplit]
) -> CompactedOutput[SourceT]:
    sources = found.job.files[output.first_segment : output.end_segment]
    held = found.verdicts[output.first_split : output.end_split]
    transactions = tuple(transaction for verdict in held for transaction in verdict.kept)
    if output.unchanged:
        kept = RewriteCounts(kept_records=sum(found.winner_counts[output.first_split : output.end_split]))
        return CompactedOutput(sources, (), True, sources[0].size_bytes, kept, transactions)
    pieces = [written[found.first_split + local] for local in range(output.first_split, output.end_split)]
    return CompactedOutput(
        sources,
        tuple(piece.number for piece in pieces if piece.size_bytes),
        False,
        sum(piece.size_bytes for piece in pieces),
        sum((piece.counts for piece in pieces), RewriteCounts()),
        transactions,
    )


def _failures(answers: Iterable[object]) -> dict[int, SidecarError]:
    """By job; of several errors of a job the one that is first in the log."""
    found: defaultdict[int, list[SidecarError]] = defaultdict(list)
    for answer in answers:
        if isinstance(answer, JobFailure):
            found[answer.job].append(answer.error)
    return {job: min(errors, key=str) for job, errors in found.items()}
