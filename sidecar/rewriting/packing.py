"""Pure: which splits are scanned by which task, and in which steps results are written so that work files have a bound."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias

from sidecar.compaction.key_table import DEFAULT_SLOTS, SMALLEST_SLOTS
from sidecar.compaction.segments import MIB, Split
from sidecar.compaction.verdicts import SplitVerdicts
from sidecar.errors import StagingTooSmall
from sidecar.rewriting.job import CompactionJob, CompactionSource
from sidecar.rewriting.stages import JobShare, Places, ScanTask

COPIES: Final = 2
"""What is rewritten of a segment waits as parts, and again in the segment that is joined of them."""

Step: TypeAlias = Mapping[int, range]
"""By number of a job, which of its segments are written."""


@dataclass(frozen=True, slots=True)
class SegmentNeed:
    """What the work files of a segment may take. `is_rewritten`: else its bytes are at most joined to its neighbours'."""

    base_offset: int
    staging_bytes: int
    is_rewritten: bool


def steps(jobs: Mapping[int, Sequence[SegmentNeed]], max_bytes: int) -> tuple[Step, ...]:
    """All segments of all jobs, in order: as many in each step as fit, and at least one.

    Winners are decided over whole partitions before the first step, and a partition is committed after its last one. So
    steps change nothing about what is kept: only that results are not joined over the border of a step.
    """
    found: list[dict[int, range]] = []
    taken_bytes = 0
    for job, needs in jobs.items():
        for number, need in enumerate(needs):
            taken_bytes += need.staging_bytes
            if not found or taken_bytes > max_bytes:
                found.append({})
                taken_bytes = need.staging_bytes
            begin = found[-1][job].start if job in found[-1] else number
            found[-1][job] = range(begin, number + 1)
    return tuple(found)


def plan_copies(sizes: Sequence[int], cores: int, free_bytes: int, max_bytes: int) -> tuple[int, bool]:
    """Which copies fit: of how many segments a copy stays, from the first one on, and whether the others have one while they are
    scanned. Objects are fetched once, twice, or without a copy three times.

    Those that stay take nothing that results may need: half of `max_bytes`, what the largest segment needs, and on the disk all
    that results may take at once.

    Args:
        sizes: of the segments, in bytes.
        cores: so many segments are scanned at once.
        free_bytes: of the disk with the work files.
        max_bytes: that much may wait at once as work files.
    """
    results_bytes = min(max_bytes, COPIES * sum(sizes))
    room = min(max_bytes // 2, max_bytes - COPIES * max(sizes, default=0), free_bytes - results_bytes)
    kept = sum(end <= room for end in accumulate(sizes))
    others = sizes[kept:]
    scanned_bytes = min(cores, len(others)) * max(others, default=0)
    return kept, sum(sizes[:kept]) + scanned_bytes <= min(max_bytes, free_bytes)


def require_room(name: str, needs: Sequence[SegmentNeed], max_bytes: int) -> None:
    """Raises StagingTooSmall if the work files of one segment alone take more than `max_bytes`. `name`: the partition's."""
    largest = max((need for need in needs if need.is_rewritten), key=lambda need: need.staging_bytes, default=None)
    if largest is not None and largest.staging_bytes > max_bytes:
        raise StagingTooSmall(
            f"{name}: work files of the segment at offset {largest.base_offset} would take "
            f"{largest.staging_bytes} bytes, compaction.max_staging_bytes allows {max_bytes}. The partition stays "
            "as it is, and is not compacted. Raise the setting, and give compaction.staging_dir that space"
        )


SCAN_BYTES: Final = 2048 * MIB
"""Most of a scan task: what one task decides is not exchanged, but an interruption waits for its end."""

REWRITING_BYTES: Final = 1024 * MIB
"""Most of a rewriting task, which has the ordinals of its winners in memory."""

WHOLE_BYTES: Final = 16 * MIB
"""Partitions up to this size are scanned by one task in any case."""

_BYTES_PER_BUCKET: Final = 64 * MIB
_BYTES_PER_KEY: Final = 48
_MOST_BUCKET_BITS: Final = 12


def bucket_bits(size_bytes: int) -> int:
    """How many buckets a job of so many log bytes needs, as a power of two: a reduction then takes about 200 MB at most."""
    return min((max(size_bytes - 1, 0) // _BYTES_PER_BUCKET).bit_length(), _MOST_BUCKET_BITS)


def table_slots(size_bytes: int) -> int:
    """Slots for a task that scans so many bytes. A table that gets full is emitted, so any number is enough."""
    return min(max(SMALLEST_SLOTS, 1 << (size_bytes // _BYTES_PER_KEY).bit_length()), DEFAULT_SLOTS)


@dataclass(frozen=True, slots=True)
class PlacedJob:
    job: CompactionJob[CompactionSource]
    splits: tuple[Split, ...]
    places: Places


def placed(jobs: Sequence[CompactionJob[CompactionSource]]) -> tuple[PlacedJob, ...]:
    """Number everything. Buckets of different jobs are different: their keys never meet."""
    found: list[PlacedJob] = []
    first_bucket = first_split = 0
    for number, job in enumerate(jobs):
        splits, bits = job.splits(), bucket_bits(job.size_bytes)
        found.append(PlacedJob(job, splits, Places(number, first_bucket, bits, first_split, len(splits))))
        first_bucket += 1 << bits
        first_split += len(splits)
    return tuple(found)


def scan_tasks(jobs: Sequence[PlacedJob], verdicts: Sequence[Sequence[SplitVerdicts]], cores: int) -> list[ScanTask]:
    """Adjacent splits for each task, about as many bytes for each. `verdicts`: by job and split, where headers were read."""
    total = sum(job.job.size_bytes for job in jobs)
    tasks = _tasks(total, cores, SCAN_BYTES)
    packed: list[list[JobShare]] = [[] for _ in range(tasks)]
    before = 0
    for job, judged in zip(jobs, verdicts, strict=True):
        whole = job.job.size_bytes <= WHOLE_BYTES
        shares: dict[int, list[Split]] = {}
        begin = 0
        for split in job.splits:
            # A segment whose headers are not read yet is one task's, which reads them.
            at = before if whole else before + begin - (split.begin if job.job.surveys else 0)
            shares.setdefault(min(at * tasks // max(total, 1), tasks - 1), []).append(split)
            begin += split.end - split.begin
        for number, splits in shares.items():
            packed[number].append(_share(job, judged, splits, is_whole=len(shares) == 1))
        before += job.job.size_bytes
    return [tuple(shares) for shares in packed if shares]


def rewriting_tasks(jobs: Sequence[PlacedJob], cores: int) -> int:
    tasks = _tasks(sum(job.job.size_bytes for job in jobs), cores, REWRITING_BYTES)
    return max(1, min(tasks, sum(len(job.splits) for job in jobs)))


def _tasks(size_bytes: int, cores: int, most_bytes: int) -> int:
    """As few as may be, and as many for each core: each costs some 10 ms on Spark."""
    return cores * max(1, -(-size_bytes // (cores * most_bytes)))


def _share(job: PlacedJob, verdicts: Sequence[SplitVerdicts], splits: Sequence[Split], *, is_whole: bool) -> JobShare:
    size_bytes = sum(split.end - split.begin for split in splits)
    files, surveys = job.job.files, job.job.surveys
    firsts = [split for split in splits if surveys and split.begin == 0]
    return JobShare(
        job.places,
        job.job.rules,
        job.job.hash_key,
        table_slots(size_bytes),
        is_whole,
        job.job.start_offset,
        () if surveys else tuple((files[split.segment], split, verdicts[split.number].by_batch) for split in splits),
        tuple((split.segment, split.number, surveys[split.segment]) for split in firsts),
    )
