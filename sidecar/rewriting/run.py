"""Many partitions through the three stages in one run: each ends with its outputs, or with its own error."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from sidecar.compaction.outputs import DecidedSplits, OutputPart, legacy_tombstones_kept
from sidecar.compaction.rewrite import RewrittenSplit
from sidecar.compaction.scan import SplitScan
from sidecar.compaction.verdicts import SplitVerdicts
from sidecar.engine_ports import StagedRun, StageEngine, Stages
from sidecar.errors import PartitionError, RowsLost, SidecarError
from sidecar.exchange import staged
from sidecar.rewriting.job import CompactedOutput, CompactionJob, RewrittenPiece, SourceT, input_of
from sidecar.rewriting.packing import COPIES, SegmentNeed, Step, placed, rewriting_tasks, scan_tasks
from sidecar.rewriting.stages import (
    JobFailure,
    JobRewriting,
    Places,
    RewriteTask,
    ScannedShare,
    SplitRewriting,
    WinnerCounts,
    WrittenPart,
    reduce,
    rewrite,
    scan,
)
from sidecar.rewriting.work_files import Parts
from sidecar.storage.checksums import combine_parts

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
    def decided(self) -> DecidedSplits:
        """The same for planning, where nothing is read."""
        segments = [input_of(file) for file in self.job.files]
        return DecidedSplits(segments, self.scans, self.verdicts, self.winner_counts, self.job.rules)

    def needs(self) -> Iterator[SegmentNeed]:
        """By the sizes that they have; only a conversion of legacy formats can make one larger."""
        rewritten = {self.scans[local].split.segment for local in self.decided.endings()}
        for number, file in enumerate(self.job.files):
            joined_bytes = file.size_bytes if file.size_bytes < self.job.rules.segment_bytes / 2 else 0
            is_rewritten = number in rewritten
            staging_bytes = COPIES * file.size_bytes if is_rewritten else joined_bytes
            yield SegmentNeed(file.base_offset, staging_bytes, is_rewritten)

    def figures(self) -> dict[str, int]:
        """Those of `CompactionFigures` that a scan knows."""
        return {
            "records_before": sum(scan.record_count for scan in self.scans),
            "unkeyed": sum(scan.unkeyed for scan in self.scans),
            "malformed_versions": sum(scan.malformed_versions for scan in self.scans),
            "deleted": sum(scan.deleted for scan in self.scans),
        }


@dataclass(frozen=True, slots=True, eq=False)
class ScannedRun(Generic[SourceT]):
    """The first two stages are done. `results`: by job, what was found or the error that ended it."""

    results: tuple[Scanned[SourceT] | SidecarError, ...]
    stages: Stages
    run: StagedRun


@contextmanager
def scanned(jobs: Sequence[CompactionJob[SourceT]], engine: StageEngine) -> Iterator[ScannedRun[SourceT]]:
    """Run the first two stages. Errors of a partition are its result. Raises RowsLost for damaged rows, what the engine raises."""
    found = placed(jobs)
    verdicts = [job.verdicts() if job.files and not job.surveys else () for job in jobs]
    cores = engine.cores
    tasks = scan_tasks(found, verdicts, cores)
    buckets = sum(1 << job.places.bucket_bits for job in found)
    largest = max((1 << job.places.bucket_bits for job in found), default=1)
    per_task = _BUCKETS_PER_TASK if largest > 1 else _BUCKETS_OF_SMALL_JOBS
    second_tasks = min(max(buckets, 1), max(cores, buckets // per_task))
    second = partial(reduce, tuple(job.places for job in found), tuple(job.rules for job in jobs))
    stages = Stages(scan, second, buckets, second_tasks, rewriting_tasks(found, cores))
    with staged(engine, stages, tasks) as run:
        failures = _failures(run.answers)
        winners, decided_from = Counter[int](), Counter[int]()
        shares: list[list[ScannedShare]] = [[] for _ in jobs]
        for answer in run.answers:
            if isinstance(answer, WinnerCounts):
                decided_from[answer.bucket] += answer.entries
                winners.update(answer.by_split)
            elif isinstance(answer, ScannedShare):
                shares[answer.job].append(answer)
        results: list[Scanned[SourceT] | SidecarError] = []
        for number, (job, place) in enumerate(zip(jobs, found, strict=True)):
            first, of_job = place.places.first_split, shares[number]
            scans = sorted((one for share in of_job for one in share.scans), key=lambda scan_: scan_.split.number)
            error = failures.get(number) or _lost(place.places, scans, of_job, decided_from)
            if error is not None:
                results.append(error)
                continue
            known, judged = job, verdicts[number]
            if job.surveys:
                try:
                    completed = (one for share in of_job for one in share.completed)
                    by_split = {split: found for share in of_job for split, found in share.judged.items()}
                    known, judged = job.as_surveyed(scans, completed, by_split)
                except PartitionError as differs:
                    results.append(differs)
                    continue
            counts = tuple(winners[first + split] for split in range(len(scans)))
            results.append(Scanned(known, first, tuple(scans), judged, counts))
        yield ScannedRun(tuple(results), stages, run)


def rewritten(
    found: ScannedRun[SourceT], parts: Parts | None, step: Step | None = None
) -> tuple[tuple[CompactedOutput[SourceT], ...] | SidecarError, ...]:
    """Run the third stage: parts into `parts`, or, where that is None, only the sizes that they would have.

    `step`: only these segments, None for all of all jobs. A job without any has no outputs.

    By job, its outputs or the error that ended it, here or before. Raises RowsLost for damaged rows, and what the engine raises.
    """
    tasks: list[list[JobRewriting]] = [[] for _ in range(found.stages.third_tasks)]
    chosen: dict[int, range] = {}
    for number, result in enumerate(found.results):
        if not isinstance(result, SidecarError) and (step is None or number in step):
            chosen[number] = range(len(result.job.files)) if step is None else step[number]
            _assign(found.stages, number, result, tasks, chosen[number])
    plans: list[RewriteTask] = [tuple(task) for task in tasks]
    answers = found.run.third(partial(rewrite, parts), plans, parts is not None and parts.in_store)
    failures = _failures(answers)
    written = {answer.number: answer for answer in answers if isinstance(answer, WrittenPart)}
    ended: list[tuple[CompactedOutput[SourceT], ...] | SidecarError] = []
    for number, result in enumerate(found.results):
        if isinstance(result, SidecarError):
            ended.append(result)
        elif number not in chosen:
            ended.append(())
        else:
            ended.append(failures.get(number) or _outputs(result, written, chosen[number]))
    return tuple(ended)


def required(result: ResultT | SidecarError) -> ResultT:
    """The result of a job. Raises the error that it is."""
    if isinstance(result, SidecarError):
        raise result
    return result


def _assign(
    stages: Stages, number: int, found: Scanned[SourceT], tasks: Sequence[list[JobRewriting]], chosen: range
) -> None:
    """Give the splits of a job that must be rewritten to the tasks where their winners will be."""
    job, decided = found.job, found.decided
    if not job.files:
        return
    first_dirty = job.files[0].base_offset if job.first_dirty_offset is None else job.first_dirty_offset
    protected = legacy_tombstones_kept(decided.segments, job.rules, first_dirty)
    splits: defaultdict[int, list[SplitRewriting]] = defaultdict(list)
    for local, ending in decided.endings().items():
        split_scan = found.scans[local]
        segment = split_scan.split.segment
        if segment not in chosen:
            continue
        splits[stages.third_task_of(found.first_split + local)].append(
            SplitRewriting(
                found.first_split + local,
                job.files[segment],
                split_scan,
                found.winner_counts[local],
                ending,
                found.verdicts[local].by_batch,
                protected[segment],
            )
        )
    for task, held in splits.items():
        tasks[task].append(JobRewriting(number, job.rules, job.last_batches, tuple(held)))


def _lost(
    places: Places, scans: Sequence[SplitScan], shares: Sequence[ScannedShare], decided_from: Counter[int]
) -> RowsLost | None:
    """The error if the winners were decided from other keys than the scans sent, or the scans are not one for each split."""
    sent = Counter[int]()
    for share in shares:
        sent.update(share.entries)
    buckets = range(places.first_bucket, places.first_bucket + (1 << places.bucket_bits))
    received = sum(decided_from[bucket] for bucket in buckets)
    numbers = [scan_.split.number for scan_ in scans]
    if numbers == list(range(places.split_count)) and all(sent[bucket] == decided_from[bucket] for bucket in buckets):
        return None
    return RowsLost(
        f"{len(scans)} of {places.split_count} splits were scanned and sent {sent.total()} keys, but "
        f"{received} were received: rows were lost or duplicated between the stages. Nothing was replaced: compact "
        "again"
    )


def _outputs(
    found: Scanned[SourceT], written: dict[int, WrittenPart], chosen: range
) -> tuple[CompactedOutput[SourceT], ...] | SidecarError:
    """Join a job's segments by the sizes that they have now; the error if that cannot be."""
    first, files = found.first_split, found.job.files
    splits = {at: written[first + at].split for at in range(len(found.scans)) if first + at in written}
    try:
        planned = found.decided.outputs(splits, chosen)
    except PartitionError as error:
        return error
    outputs: list[CompactedOutput[SourceT]] = []
    for one in planned:
        sources = files[one.first_segment : one.end_segment]
        pieces = tuple(
            files[part.segment] if part.split is None else RewrittenPiece(first + part.split, part.size_bytes)
            for part in one.parts
        )
        made_of = sources if one.unchanged else pieces
        crc = combine_parts([known for part in one.parts for known in _checksums(part, found.scans, splits)])
        outputs.append(
            CompactedOutput(sources, made_of, one.unchanged, one.size_bytes, crc, one.counts, one.transactions)
        )
    return tuple(outputs)


def _checksums(
    part: OutputPart, scans: Sequence[SplitScan], splits: dict[int, RewrittenSplit]
) -> list[tuple[int, int]]:
    """(CRC-32C, size in bytes) of what a part of an output is made of, in order."""
    if part.split is None:
        return [(scan_.crc32c, scan_.split.size_bytes) for scan_ in scans if scan_.split.segment == part.segment]
    split = splits[part.split]
    ending = [(split.ending_crc32c, split.ending_bytes)] if part.size_bytes > split.size_bytes else []
    return [(split.crc32c, split.size_bytes), *ending]


def _failures(answers: Iterable[object]) -> dict[int, SidecarError]:
    """By job; of several errors of a job the one that is first in the log."""
    found: defaultdict[int, list[SidecarError]] = defaultdict(list)
    for answer in answers:
        if isinstance(answer, JobFailure):
            found[answer.job].append(answer.error)
    return {job: min(errors, key=str) for job, errors in found.items()}
