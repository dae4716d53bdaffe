"""The three stages as tasks: what an engine runs, in any process. Errors that lie in a partition are answers about it."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from producer_state.replay import CompletedTransaction
from sidecar.compaction.inflating import Inflater
from sidecar.compaction.key_table import ORDINAL_BYTES, Blob, KeyTable, Winners, entries_of, reduce_blobs
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rewrite import Ending, RewrittenSplit, rewrite_split
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.scan import SplitScan, scan_split
from sidecar.compaction.segments import Split
from sidecar.engine_ports import TO_DRIVER, Row
from sidecar.errors import CorruptFile, SidecarError
from sidecar.rewriting.job import CompactionSource, SegmentSurvey, SurveyedSegment, Verdicts
from sidecar.rewriting.work_files import Parts, WorkFile
from sidecar.storage.checksums import combine_parts


@dataclass(frozen=True, slots=True)
class Places:
    """A job's number in its run, and which buckets and splits of the run are its own."""

    job: int
    first_bucket: int
    bucket_bits: int
    first_split: int
    split_count: int


@dataclass(frozen=True, slots=True, eq=False)
class JobShare:
    """Adjacent splits of one job, to be scanned into one key table of so many slots. `is_whole`: they are all of the job.

    `surveys`: whole segments instead, each by number and first split, which are split where they are scanned.
    """

    places: Places
    rules: CompactionRules
    hash_key: bytes
    slots: int
    is_whole: bool
    start_offset: int
    splits: tuple[tuple[CompactionSource, Split, Verdicts], ...]
    surveys: tuple[tuple[int, int, SegmentSurvey], ...] = ()


ScanTask = tuple[JobShare, ...]


@dataclass(frozen=True, slots=True)
class JobFailure:
    """An answer of any stage: this job ends here, the others go on."""

    job: int
    error: SidecarError


@dataclass(frozen=True, slots=True)
class ScannedShare:
    """An answer of stage one. `entries`: by bucket of the run, how many keys it goes with to the reduction.

    Of segments whose headers were read here: see `CompactionJob.as_surveyed`.
    """

    job: int
    scans: tuple[SplitScan, ...]
    entries: dict[int, int]
    completed: tuple[CompletedTransaction, ...]
    judged: dict[int, Verdicts]


@dataclass(frozen=True, slots=True)
class WinnerCounts:
    """An answer of stages one and two: how many records of each split of the run win, as far as one bucket decides it.

    `entries`: how many keys the decision was made from.
    """

    bucket: int
    entries: int
    by_split: dict[int, int]


def scan(task: ScanTask) -> Iterator[Row]:
    """Stage one. Rows (bucket, blob), or (bucket, winners) where one key table has all of a job; `ScannedShare`s to the driver."""
    inflater = Inflater()
    for share in task:
        try:
            yield from _scan_share(share, inflater)
        except SidecarError as error:
            yield TO_DRIVER, JobFailure(share.places.job, error)


def _scan_share(share: JobShare, inflater: Inflater) -> Iterator[Row]:
    places, waiting, scans = share.places, list[tuple[int, memoryview]](), list[SplitScan]()
    entries = Counter[int]()

    def emit(bucket: int, blob: memoryview) -> None:
        waiting.append((places.first_bucket + bucket, blob))
        entries[places.first_bucket + bucket] += entries_of(blob)

    table = KeyTable(share.rules, share.hash_key, emit, slots=share.slots, bucket_bits=places.bucket_bits)
    for source, split, verdicts in share.splits:
        with source.opened() as segment:
            scans.append(scan_split(segment, split, table, inflater, verdicts, start_offset=share.start_offset))
        yield from _handed_out(waiting)
    completed, all_judged = list[CompletedTransaction](), dict[int, Verdicts]()
    # The newest first: where it keeps a copy, the one before it finds there how its open transactions ended.
    surveys = share.surveys[::-1]
    with _fetching([survey for *_, survey in surveys]) as (threads, fetched):
        for (number, first_split, survey), _ in zip(surveys, fetched, strict=True):
            with survey(threads) as held:
                judged = {at: found.by_batch for at, found in enumerate(held.verdicts, start=first_split)}
                before = len(scans)
                for at, piece in enumerate(held.pieces, start=first_split):
                    split = Split(at, number, piece.begin, piece.end)
                    scans.append(
                        scan_split(held.segment, split, table, inflater, judged[at], start_offset=share.start_offset)
                    )
                    yield from _handed_out(waiting)
                _require_committed(held, scans[before:])
                completed += held.completed
                all_judged |= {at: found for at, found in judged.items() if len(found)}
    if share.is_whole and not entries:
        # All keys of the job are still in this table: it decides, and nothing is left to reduce.
        found = table.winners(places.split_count)
        entries[places.first_bucket] = table.key_count
        yield TO_DRIVER, _counts(places, places.first_bucket, table.key_count, found)
        yield places.first_bucket, tuple(found)
    else:
        table.emit()
    yield TO_DRIVER, ScannedShare(places.job, tuple(scans), dict(entries), tuple(completed), all_judged)
    yield from _handed_out(waiting)


_THREADS: Final = 4
"""That request objects, of each task."""


@contextmanager
def _fetching(surveys: Sequence[SegmentSurvey]) -> Iterator[tuple[Executor, Iterator[None]]]:
    """Threads for requests, and what says that the next segment is fetched, which goes on while one is scanned."""
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="object-copy")
    ahead = ThreadPoolExecutor(1, thread_name_prefix="next-object")
    try:
        yield threads, ahead.map(lambda survey: survey.fetch(threads), surveys)
    finally:
        ahead.shutdown(wait=False, cancel_futures=True)
        threads.shutdown(cancel_futures=True)
        ahead.shutdown()


def _require_committed(held: SurveyedSegment, scans: Sequence[SplitScan]) -> None:
    """What was scanned must be the object that was committed: batches' own checksums cover no offset and no leader epoch."""
    found = combine_parts([(scan_.crc32c, scan_.split.size_bytes) for scan_ in scans])
    if found != held.crc32c:
        raise CorruptFile(
            f"has CRC-32C {found:08x}, but the commit says {held.crc32c:08x}; the partition stays as it is",
            file=held.segment.file,
        )


def _handed_out(waiting: list[tuple[int, memoryview]]) -> Iterator[Row]:
    """Blobs share their memory: each is copied as it is packed."""
    yield from waiting
    waiting.clear()


def reduce(
    places_of: Sequence[Places], rules_of: Sequence[CompactionRules], bucket: int, values: Sequence[Any]
) -> Iterator[Row]:
    """Stage two: rows (split of the run, ordinals of winners), and `WinnerCounts` to the driver.

    `places_of`, `rules_of`: by job, in the order of their buckets. `values`: blobs, or one tuple of winners.
    """
    number = bisect_right(places_of, bucket, key=lambda places: places.first_bucket) - 1
    places = places_of[number]
    found: Iterable[Winners] = ()
    if isinstance(values[0], tuple):
        found = values[0]
    else:
        try:
            found = reduce_blobs(values, rules_of[number], places.split_count, places.bucket_bits)
        except CorruptFile as error:
            yield TO_DRIVER, JobFailure(places.job, error)
            return
        yield TO_DRIVER, _counts(places, bucket, sum(map(entries_of, values)), found)
    yield from ((places.first_split + winners.split, winners.ordinals) for winners in found)


def _counts(places: Places, bucket: int, entries: int, found: Iterable[Winners]) -> WinnerCounts:
    by_split = {places.first_split + winners.split: len(winners.ordinals) // ORDINAL_BYTES for winners in found}
    return WinnerCounts(bucket, entries, by_split)


@dataclass(frozen=True, slots=True, eq=False)
class SplitRewriting:
    """What stage three must know of a split besides its winners: also how many these must be. `number`: in the run."""

    number: int
    source: CompactionSource
    scan: SplitScan
    winner_count: int
    ending: Ending
    verdicts: Verdicts
    keeps_legacy_tombstones: bool


@dataclass(frozen=True, slots=True, eq=False)
class JobRewriting:
    """The splits of one job that one task rewrites."""

    job: int
    rules: CompactionRules
    last_batches: LastBatches
    splits: tuple[SplitRewriting, ...]


RewriteTask = tuple[JobRewriting, ...]


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """An answer of stage three: part `number`, that of a split, holds what was written of it, the ending last."""

    number: int
    split: RewrittenSplit


def rewrite(parts: Parts | None, rows: Iterable[Row], task: RewriteTask) -> Iterator[WrittenPart | JobFailure]:
    """Stage three: also a `JobFailure` for each job that ends here. `parts`: None where they are only measured."""
    winners: defaultdict[int, list[Blob]] = defaultdict(list)
    for number, ordinals in rows:
        winners[number].append(ordinals)
    inflater = Inflater()
    for todo in task:
        try:
            for split in todo.splits:
                yield _rewrite(parts, todo, split, winners.pop(split.number, []), inflater)
        except SidecarError as error:
            yield JobFailure(todo.job, error)


def _rewrite(
    parts: Parts | None, todo: JobRewriting, split: SplitRewriting, winners: list[Blob], inflater: Inflater
) -> WrittenPart:
    writing: AbstractContextManager[WorkFile | None]
    writing = nullcontext() if parts is None else parts.writing(split.number)
    with split.source.opened() as segment, writing as part:
        found = rewrite_split(
            segment,
            split.scan,
            winners,
            split.winner_count,
            todo.rules,
            (lambda _batches: None) if part is None else part.write,
            ending=split.ending,
            inflater=inflater,
            verdicts=split.verdicts,
            last_batches=todo.last_batches,
            keeps_legacy_tombstones=split.keeps_legacy_tombstones,
        )
    return WrittenPart(split.number, found)
