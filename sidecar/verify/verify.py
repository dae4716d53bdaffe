"""Proof that an archive is whole: the commit log, the coverage, and every committed object; and the unreferenced ones."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from sidecar.archive.coverage import find_defects
from sidecar.archive.keys import (
    COMMITS,
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    SEGMENTS,
    Lineage,
    SegmentObject,
    below,
    parse_segment_key,
)
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.lineages import find_all_lineages
from sidecar.commits.stored_commits import StoredCommits
from sidecar.errors import FROM_STORE, CorruptFile, SidecarError, StoreError, StoreUnavailable
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore
from sidecar.reporting.advice import advised, finding
from sidecar.storage.leftovers import list_uploads
from sidecar.verify.segments import Check, Checked, Checks, Problem, ProblemKind, check_in_threads
from sidecar.verify.status import Outage, PartitionRow, row_of, unreadable_row

UPLOAD_MS_MAX: Final = 15 * 60 * 1000
"""An object that no commit names counts as being uploaded for so long."""


class SegmentState(StrEnum):
    """FOUND: committed, and the store has it. LOST: committed but missing or damaged, or recorded as lost.
    UPLOADING: beyond the archive's end, begun recently. DELAYED: the same, but too long ago to be still on its way.
    """

    FOUND = "FOUND"
    DELAYED = "DELAYED"
    UPLOADING = "UPLOADING"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class SegmentVerification:
    """One segment or recorded gap. `end_offset` is None where only the object's key is known."""

    base_offset: int
    end_offset: int | None
    segment_id: str | None
    generation: int | None
    state: SegmentState


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object below `segments/` that no commit names, nor ever named: left over by an attempt, or of one under way.

    `age_ms`: by this host's clock, because only a writer can read the store's. None where the store gives no times.
    """

    key: ObjectKey
    size_bytes: int
    age_ms: int | None


@dataclass(frozen=True, slots=True)
class PartitionVerification:
    """The whole finding about one lineage. `unfinished_uploads` is None where the store does not let us list them.

    `removed_objects` counts objects of removed segments that wait for their grace period. `size_only_objects` counts objects of
    which only the size was compared, because the store has no checksum of them.
    """

    row: PartitionRow
    segments: tuple[SegmentVerification, ...]
    problems: tuple[Problem, ...]
    orphans: tuple[Orphan, ...]
    removed_objects: int
    unfinished_uploads: int | None
    size_only_objects: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether there is no problem. Orphans and recorded gaps are none."""
        return not self.problems

    @property
    def is_unread(self) -> bool:
        """Whether nothing can be said but what else is found, because something could not be read."""
        return any(problem.kind is ProblemKind.UNREADABLE for problem in self.problems)

    @property
    def differs(self) -> bool:
        """Whether something is found that is not as it should be."""
        return any(problem.kind is not ProblemKind.UNREADABLE for problem in self.problems)

    def to_json(self) -> dict[str, object]:
        """The stable JSON form: as of `status`, with the segments themselves instead of their number."""
        return {
            **self.row.to_json(),
            "segments": [asdict(segment) for segment in self.segments],
            "problems": [asdict(problem) for problem in self.problems],
            "orphans": [asdict(orphan) for orphan in self.orphans],
            "removed_objects": self.removed_objects,
            "unfinished_uploads": self.unfinished_uploads,
            "size_only_objects": self.size_only_objects,
        }


def unread(lineage: Lineage, reason: str, problem: Problem, error: SidecarError) -> PartitionVerification:
    return PartitionVerification(unreadable_row(lineage, reason, error), (), (problem,), (), 0, None)


@dataclass(slots=True)
class _Unnamed:
    """Objects below `segments/` that no live segment names. `on_their_way`: segments above the archive's end that were begun."""

    orphans: list[Orphan] = field(default_factory=list)
    on_their_way: list[SegmentVerification] = field(default_factory=list)
    removed_objects: int = 0
    unfinished_uploads: int | None = None


def _unnamed(store: ObjectStore, state: PartitionState, now_ms: int) -> _Unnamed:
    """Those of a lineage. Raises StoreError."""
    live = {segment.segment_id for segment in state.segments}
    removed = {segment.segment_id for segment in state.removed}
    found, ages_ms = _Unnamed(), dict[SegmentObject, int]()
    found.unfinished_uploads = list_uploads(store, f"{state.lineage.root}/").count
    for facts in store.list(below(state.lineage.root, SEGMENTS)):
        named = parse_segment_key(facts.key.removeprefix(f"{state.lineage.root}/"))
        if named and named.segment_id in live:
            continue
        if named and named.segment_id in removed:
            found.removed_objects += 1
            continue
        age_ms = None if facts.modified_ms is None else max(0, now_ms - facts.modified_ms)
        found.orphans.append(Orphan(facts.key, facts.size_bytes, age_ms))
        age_ms = age_ms or 0  # Unknown counts as "now".
        if named and named.base_offset >= (state.end_offset or 0) and named.suffix in {LOG_SUFFIX, INDEXES_SUFFIX}:
            attempt = SegmentObject(named.base_offset, named.segment_id, "")
            ages_ms[attempt] = min(age_ms, ages_ms.get(attempt, age_ms))
    for attempt, age_ms in ages_ms.items():
        is_delayed = age_ms > UPLOAD_MS_MAX
        verdict = SegmentState.DELAYED if is_delayed else SegmentState.UPLOADING
        found.on_their_way.append(SegmentVerification(attempt.base_offset, None, attempt.segment_id, None, verdict))
    return found


WORKERS: Final = 8
DEEP_WORKERS: Final = 3
"""Two check logs on two cores. Meanwhile the third waits for a segment's indexes. Each has its indexes and some MiB."""
_SEGMENTS_AT_ONCE: Final = 4096
"""So many segments are handed to a driver at a time: memory does not grow with the archive."""

_MISSING_COMMITS_MAX: Final = 10
"""So many are reported of a partition: one missing commit already shows that the log was damaged."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Planned:
    state: PartitionState
    problems: tuple[Problem, ...]

    @property
    def checks(self) -> list[Check]:
        return [Check(self.state.lineage.root, segment) for segment in self.state.segments]


def verify_archive(
    store: ObjectStore,
    clock: Clock,
    *,
    deep: bool = False,
    include: Callable[[str], bool] = lambda _: True,
    checks: Checks | None = None,
) -> Iterator[PartitionVerification]:
    """Check every lineage, several at once; results ascend by cluster, topic, partition and incarnation.

    Shallow: the commit log from its newest checkpoint on, whether the commits below exist, sizes and the store's checksums
    of all objects, every part of every `.indexes`. Deep: the commit log from commit 0 on, every byte of every object, every batch.
    Nothing is written to the store.

    One that cannot be read is a finding like others. Raises StoreError where the store itself fails, and what `checks` raises:
    who checks the segments, by default threads of this process.
    """
    driver = checks or partial(check_in_threads, store, DEEP_WORKERS if deep else WORKERS, deep=deep)
    outage = Outage()

    def plan(lineage: Lineage) -> _Planned | PartitionVerification:
        return _or_unread(lineage, outage, lambda: _plan(store, lineage, clock, deep=deep))

    def finish(planned: _Planned, checked: Sequence[Checked], unnamed: Future[_Unnamed]) -> PartitionVerification:
        found = _or_unread(planned.state.lineage, outage, lambda: _combined(planned, checked, unnamed.result()))
        if not found.is_unread:
            return found
        return replace(found, problems=(*_problems(planned, checked), *found.problems))

    lineages = iter(find_all_lineages(store, include))
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="verify-partitions") as pool:
        while some := _some(pool, plan, lineages):
            planned = [one for one in some if isinstance(one, _Planned)]
            # Unreferenced objects are listed while segments are read.
            unnamed = iter([pool.submit(_unnamed, store, one.state, clock.now_ms()) for one in planned])
            with closing(driver([check for one in planned for check in one.checks])) as stream:
                for one in some:
                    if isinstance(one, _Planned):
                        checked = list(islice(stream, len(one.state.segments)))
                        yield finish(one, checked, next(unnamed))
                    else:
                        yield one


def _some(
    pool: ThreadPoolExecutor,
    plan: Callable[[Lineage], _Planned | PartitionVerification],
    lineages: Iterator[Lineage],
) -> list[_Planned | PartitionVerification]:
    """The next lineages, until their segments are enough for one go."""
    found: list[_Planned | PartitionVerification] = []
    segments = 0
    while segments < _SEGMENTS_AT_ONCE and len(found) < _SEGMENTS_AT_ONCE:
        more = list(pool.map(plan, islice(lineages, 2 * WORKERS)))
        if not more:
            break
        found += more
        segments += sum(len(one.state.segments) for one in more if isinstance(one, _Planned))
    return found


def _or_unread(lineage: Lineage, outage: Outage, work: Callable[[], Found]) -> Found | PartitionVerification:
    try:
        done = work()
    except FROM_STORE as error:
        outage.failed(error)
        return unread(lineage, str(error), Problem(ProblemKind.UNREADABLE, lineage.root, str(error)), error)
    outage.answered()
    return done


def _plan(store: ObjectStore, lineage: Lineage, clock: Clock, *, deep: bool) -> _Planned | PartitionVerification:
    log = CommitLog(store, lineage.root, clock)
    try:
        state = log.read_whole_chain() if deep else log.read()
    except CorruptFile as error:
        problem = Problem(ProblemKind.COMMIT_LOG, error.file or lineage.root, finding(error))
        return unread(lineage, advised(error), problem, error)
    missing = () if deep else _missing_commits(store, state)
    return _Planned(state, (*_check_checkpoints(log, state, deep=deep), *missing, *_check_coverage(state)))


def _combined(planned: _Planned, checked: Sequence[Checked], unnamed: _Unnamed) -> PartitionVerification:
    """The findings about a lineage. Raises StoreError for a segment that could not be read."""
    for one in checked:
        if one.unread:
            raise StoreUnavailable(one.unread) if one.retryable else StoreError(one.unread)
    state = planned.state
    segments = [
        SegmentVerification(
            segment.base_offset,
            segment.end_offset,
            segment.segment_id,
            segment.generation,
            SegmentState.LOST if one.problems else SegmentState.FOUND,
        )
        for segment, one in zip(state.segments, checked, strict=True)
    ]
    segments += [
        SegmentVerification(hole.base_offset, hole.end_offset, None, None, SegmentState.LOST) for hole in state.holes
    ]
    segments += unnamed.on_their_way
    return PartitionVerification(
        row=row_of(state),
        segments=tuple(sorted(segments, key=lambda segment: segment.base_offset)),
        problems=_problems(planned, checked),
        orphans=tuple(unnamed.orphans),
        removed_objects=unnamed.removed_objects,
        unfinished_uploads=unnamed.unfinished_uploads,
        size_only_objects=sum(one.size_only for one in checked),
    )


def _problems(planned: _Planned, checked: Sequence[Checked]) -> tuple[Problem, ...]:
    return (*planned.problems, *(problem for one in checked for problem in one.problems))


def _missing_commits(store: ObjectStore, state: PartitionState) -> Iterator[Problem]:
    """Gaps in the commit numbers below the newest one, and empty commits. Listings may be stale: each is checked by key."""
    stored = StoredCommits(store, state.lineage.root)
    listed = {number for number, facts in stored.listed(COMMITS).items() if facts.size_bytes}
    unlisted = sorted(set(range(state.next_number)) - listed)
    found = ((number, store.head(stored.key(number))) for number in unlisted)
    gone = (number for number, facts in found if facts is None or not facts.size_bytes)
    for number in islice(gone, _MISSING_COMMITS_MAX):
        yield Problem(
            ProblemKind.COMMIT_LOG,
            stored.key(number),
            f"commit {number} is missing or empty, below a checkpoint. Uploads, compactions and restore go on: they read from the "
            f"checkpoint on. verify --deep, compact --undo, and gc where it has something to delete, stop here. Restore it from a "
            f"replica of the bucket or an earlier version of the object",
        )


def _check_checkpoints(log: CommitLog, state: PartitionState, *, deep: bool) -> Iterator[Problem]:
    """Damaged checkpoints, which readers pass over at a price. Deep also finds one that does not agree with the commits."""
    if deep:
        try:
            checkpointed = log.read_checkpointed()
        except CorruptFile as contradiction:
            yield Problem(ProblemKind.COMMIT_LOG, contradiction.file, finding(contradiction))
            return
        if checkpointed is not None and checkpointed.next_number == state.next_number and checkpointed != state:
            yield Problem(
                ProblemKind.CHECKPOINT,
                state.lineage.root,
                "the newest checkpoint leads to another state than the commits do",
            )
    for error in log.passed_over:
        yield Problem(ProblemKind.CHECKPOINT, error.file, finding(error))


def _check_coverage(state: PartitionState) -> Iterator[Problem]:
    spans = [(segment.base_offset, segment.end_offset) for segment in state.segments]
    spans += [(hole.base_offset, hole.end_offset) for hole in state.holes]
    for defect in find_defects(spans, state.start_offset or 0, state.end_offset or 0):
        yield Problem(ProblemKind.COVERAGE, state.lineage.root, f"offsets {defect}")
