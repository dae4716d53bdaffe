"""The compaction of a surveyed partition: tasks for the stages, the plan between them, and what each output is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from producer_state.replay import CompletedTransaction
from sidecar.compaction.compact import bucket_bits, table_slots
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.outputs import PlannedOutput, legacy_tombstones_kept, plan_outputs
from sidecar.compaction.rewrite import RewriteCounts
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.scan import SplitScan
from sidecar.compaction.segments import MIB, Split
from sidecar.compaction.verdicts import SplitVerdicts, judge_splits
from sidecar.errors import PartitionError, StagingFull
from sidecar.pipeline.compaction.log_file import LogFile
from sidecar.pipeline.compaction.stages import (
    Reduction,
    Rewriting,
    RewrittenSplit,
    ScanTask,
    SplitRewriting,
    WinnerCounts,
    scan,
)
from sidecar.pipeline.compaction.survey import Survey, aborted
from sidecar.ports import StagedRun, StageEngine, Stages

TASK_BYTES: Final = 1024 * MIB
"""A core gets more tasks than one only where its share of the bytes is larger than this: each task costs some 10 ms."""

_BUCKETS_PER_TASK: Final = 4
"""As many buckets' blobs may wait in one reduction task."""


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """Segments `[first, end)` of a survey, all of them decided, and what is known of them before they are read."""

    survey: Survey
    count: int
    rules: CompactionRules
    last_batches: LastBatches
    hash_key: bytes

    @property
    def files(self) -> tuple[LogFile, ...]:
        """The segments to be compacted."""
        return tuple(segment.file for segment in self.survey.segments[: self.count])

    @property
    def size_bytes(self) -> int:
        """Bytes to be compacted."""
        return sum(file.size_bytes for file in self.files)

    def splits(self) -> tuple[Split, ...]:
        """The pieces of all segments, numbered."""
        found: list[Split] = []
        for index, segment in enumerate(self.survey.segments[: self.count]):
            found += [Split(len(found) + at, index, piece.begin, piece.end) for at, piece in enumerate(segment.pieces)]
        return tuple(found)

    def verdicts(self) -> tuple[SplitVerdicts, ...]:
        """By split."""
        pieces = [piece for segment in self.survey.segments[: self.count] for piece in segment.pieces]
        return tuple(
            judge_splits(
                [piece.events for piece in pieces],
                [piece.batch_count for piece in pieces],
                aborted(self.survey.completed),
                self.files[0].base_offset,
                self.files[-1].end_offset,
            )
        )


@dataclass(frozen=True, slots=True)
class CompactedOutput:
    """One output segment `[base_offset, end_offset)`, made of `sources`. `parts`: the numbers of its part files, in order.

    `unchanged`: it is its one source, byte by byte, and there are no parts.
    `transactions`: the aborted ones whose marker it still holds.
    """

    sources: tuple[LogFile, ...]
    parts: tuple[int, ...]
    unchanged: bool
    size_bytes: int
    counts: RewriteCounts
    transactions: tuple[CompletedTransaction, ...]

    @property
    def base_offset(self) -> int:
        """Of its first source."""
        return self.sources[0].base_offset

    @property
    def end_offset(self) -> int:
        """Of its last source."""
        return self.sources[-1].end_offset


@dataclass(frozen=True, slots=True)
class Scanned:
    """The first two stages are done: by split, what was found and how many records win."""

    job: CompactionJob
    scans: tuple[SplitScan, ...]
    winner_counts: tuple[int, ...]
    third_tasks: int
    run: StagedRun


@contextmanager
def scanned(job: CompactionJob, engine: StageEngine) -> Iterator[Scanned]:
    """Run the first two stages. Raises CorruptFile with file and position, SegmentChanged, and what the engine raises."""
    splits, verdicts = job.splits(), job.verdicts()
    bits, cores = bucket_bits(job.size_bytes), engine.cores
    shares = _shares(splits, cores * max(1, -(-job.size_bytes // (cores * TASK_BYTES))))
    tasks = [
        ScanTask(
            job.rules,
            job.hash_key,
            bits,
            table_slots(sum(split.end - split.begin for split in share)),
            tuple((job.files[split.segment], split, verdicts[split.number].by_batch) for split in share),
        )
        for share in shares
    ]
    buckets = 1 << bits
    second_tasks = min(buckets, max(cores, buckets // _BUCKETS_PER_TASK))
    stages = Stages(scan, Reduction(job.rules, len(splits), bits), buckets, second_tasks, max(len(shares), 1))
    with engine.staged(stages, tasks) as run:
        _raise_first(run.answers)
        winners = np.zeros(len(splits), dtype=np.int64)
        for counts in (answer for answer in run.answers if isinstance(answer, WinnerCounts)):
            for split, count in counts.by_split.items():
                winners[split] += count
        scans = [scan_ for answer in run.answers if isinstance(answer, tuple) for scan_ in answer]
        scans.sort(key=lambda scan_: scan_.split.number)
        yield Scanned(job, tuple(scans), tuple(winners.tolist()), stages.third_tasks, run)


def rewritten(found: Scanned, parts: Path | None) -> tuple[CompactedOutput, ...]:
    """Run the third stage: part files in `parts`, or, where that is None, only the sizes that they would have.

    Raises as `scanned`, and StagingFull.
    """
    job, verdicts = found.job, found.job.verdicts()
    segments = [file.unread() for file in job.files]
    outputs = plan_outputs(segments, found.scans, verdicts, found.winner_counts, job.rules)
    protected = legacy_tombstones_kept(segments, job.rules, job.files[0].base_offset)
    plans: list[list[SplitRewriting]] = [[] for _ in range(found.third_tasks)]
    for output in outputs:
        for number in range(output.first_split, 0 if output.unchanged else output.end_split):
            split_scan, ending = found.scans[number], output.endings[number - output.first_split]
            segment = split_scan.split.segment
            plans[number % found.third_tasks].append(
                SplitRewriting(job.files[segment], split_scan, ending, verdicts[number].by_batch, protected[segment])
            )
    answers = found.run.third(Rewriting(job.rules, job.last_batches, parts), plans)
    _raise_first(answers)
    written = {answer.number: answer for answer in answers if isinstance(answer, RewrittenSplit)}
    return tuple(_output(found, output, verdicts, written) for output in outputs)


def _output(
    found: Scanned,
    output: PlannedOutput,
    verdicts: Sequence[SplitVerdicts],
    written: dict[int, RewrittenSplit],
) -> CompactedOutput:
    sources = found.job.files[output.first_segment : output.end_segment]
    held = verdicts[output.first_split : output.end_split]
    transactions = tuple(transaction for verdict in held for transaction in verdict.kept)
    if output.unchanged:
        kept = RewriteCounts(kept_records=sum(found.winner_counts[output.first_split : output.end_split]))
        return CompactedOutput(sources, (), True, sources[0].size_bytes, kept, transactions)
    pieces = [written[number] for number in range(output.first_split, output.end_split)]
    return CompactedOutput(
        sources,
        tuple(piece.number for piece in pieces if piece.size_bytes),
        False,
        sum(piece.size_bytes for piece in pieces),
        sum((piece.counts for piece in pieces), RewriteCounts()),
        transactions,
    )


def _shares(splits: Sequence[Split], tasks: int) -> list[tuple[Split, ...]]:
    """Adjacent splits for each task, about as many bytes for each."""
    total = sum(split.end - split.begin for split in splits)
    shares: list[list[Split]] = [[] for _ in range(tasks)]
    before = 0
    for split in splits:
        shares[min(before * tasks // max(total, 1), tasks - 1)].append(split)
        before += split.end - split.begin
    return [tuple(share) for share in shares if share]


def _raise_first(answers: Sequence[object]) -> None:
    """Of several errors the one that is first in the log."""
    errors = [answer for answer in answers if isinstance(answer, PartitionError | StagingFull)]
    if errors:
        raise min(errors, key=str)
