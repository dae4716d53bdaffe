"""Proof that an archive is whole: the commit log, the coverage, and every committed object; and what lies beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import StrEnum

from sidecar.archive.coverage import find_defects
from sidecar.archive.keys import (
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    SEGMENTS,
    SegmentObject,
    below,
    parse_root,
    parse_segment_key,
)
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.errors import CorruptFile, StoreDenied, StoreError
from sidecar.model import ArchivedSegment, ObjectKey
from sidecar.pipeline.advice import advised, finding
from sidecar.pipeline.commit_log import CommitLog
from sidecar.pipeline.lineages import find_all_lineages
from sidecar.pipeline.outage import Outage
from sidecar.pipeline.status import PartitionRow, row_of, unreadable_row
from sidecar.pipeline.verify_segment import Problem, ProblemKind, check_segment_objects
from sidecar.ports import ObjectFacts, ObjectStore

WORKERS = 8
DEEP_WORKERS = 2
UPLOAD_MS_MAX = 15 * 60 * 1000
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
    """One segment or recorded hole. `end_offset` is None where only the object's key is known."""

    base_offset: int
    end_offset: int | None
    segment_id: str | None
    generation: int | None
    state: SegmentState


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object below `segments/` that no commit names, nor ever named: left over by an attempt, or of one under way."""

    key: ObjectKey
    size_bytes: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class PartitionVerification:
    """The whole finding about one lineage. `unfinished_uploads` is None where the store does not let us list them.

    `removed_objects` counts objects of removed segments that wait for their grace period.
    """

    row: PartitionRow
    segments: tuple[SegmentVerification, ...]
    problems: tuple[Problem, ...]
    orphans: tuple[Orphan, ...]
    removed_objects: int
    unfinished_uploads: int | None

    @property
    def is_sound(self) -> bool:
        """Whether there is no problem. Orphans and recorded holes are none."""
        return not self.problems

    @property
    def is_unread(self) -> bool:
        """Whether nothing can be said, because something could not be read."""
        return any(problem.kind is ProblemKind.UNREADABLE for problem in self.problems)

    def to_json(self) -> dict[str, object]:
        """The stable JSON form: as of `status`, with the segments themselves instead of their number."""
        return {
            **self.row.to_json(),
            "segments": [asdict(segment) for segment in self.segments],
            "problems": [asdict(problem) for problem in self.problems],
            "orphans": [asdict(orphan) for orphan in self.orphans],
            "removed_objects": self.removed_objects,
            "unfinished_uploads": self.unfinished_uploads,
        }


def verify_partition(
    store: ObjectStore, root: ObjectKey, clock: Clock, *, deep: bool = False, workers: int = WORKERS
) -> PartitionVerification:
    """Check one lineage.

    Shallow: the commit log from its newest checkpoint on, sizes and the store's checksums of all objects, every part of
    every `.indexes`. Deep: the commit log from commit 0 on, every byte of every object, every batch.

    Raises:
        StoreError: the store itself fails, so that nothing can be said.
    """
    log = CommitLog(store, root, clock)
    try:
        state = log.read_whole_chain() if deep else log.read()
    except CorruptFile as error:
        return _unread(root, advised(error), Problem(ProblemKind.COMMIT_LOG, error.file or root, finding(error)))
    problems = [*_check_checkpoints(log, state, deep=deep), *_check_coverage(state)]

    def check(segment: ArchivedSegment) -> tuple[Problem, ...]:
        return check_segment_objects(store, root, segment, deep=deep)

    with ThreadPoolExecutor(workers, thread_name_prefix="verify") as pool:
        found = list(pool.map(check, state.segments))
    segments = [_segment_row(segment, bool(wrong)) for segment, wrong in zip(state.segments, found, strict=True)]
    segments += [
        SegmentVerification(hole.base_offset, hole.end_offset, None, None, SegmentState.LOST) for hole in state.holes
    ]
    beside = _Beside(state, clock.now_ms())
    for facts in store.list(below(root, SEGMENTS)):
        beside.take(facts, facts.key.removeprefix(f"{root}/"))
    segments += beside.on_their_way()
    return PartitionVerification(
        row=row_of(state),
        segments=tuple(sorted(segments, key=lambda segment: segment.base_offset)),
        problems=(*problems, *(problem for wrong in found for problem in wrong)),
        orphans=tuple(beside.orphans),
        removed_objects=beside.removed_objects,
        unfinished_uploads=_count_unfinished(store, root),
    )


def verify_archive(
    store: ObjectStore,
    clock: Clock,
    *,
    deep: bool = False,
    include: Callable[[str], bool] = lambda _: True,
    workers: int | None = None,
) -> Iterator[PartitionVerification]:
    """Check every lineage, several at once; results ascend by cluster, topic, partition and incarnation.

    One that cannot be read is a finding like others. Raises StoreError where the store itself fails.
    """
    at_once = workers or (DEEP_WORKERS if deep else WORKERS)

    outage = Outage()

    def check(root: ObjectKey) -> PartitionVerification:
        try:
            found = verify_partition(store, root, clock, deep=deep, workers=max(1, at_once // 2))
        except StoreError as error:
            outage.failed(error)
            return _unread(root, str(error), Problem(ProblemKind.UNREADABLE, root, str(error)))
        outage.answered()
        return found

    roots = [lineage.root for lineage in find_all_lineages(store, include)]
    with ThreadPoolExecutor(at_once, thread_name_prefix="verify-partitions") as pool:
        yield from pool.map(check, roots)


def _unread(root: ObjectKey, reason: str, problem: Problem) -> PartitionVerification:
    return PartitionVerification(unreadable_row(parse_root(root), reason), (), (problem,), (), 0, None)


def _segment_row(segment: ArchivedSegment, damaged: bool) -> SegmentVerification:
    state = SegmentState.LOST if damaged else SegmentState.FOUND
    return SegmentVerification(segment.base_offset, segment.end_offset, segment.segment_id, segment.generation, state)


def _check_checkpoints(log: CommitLog, state: PartitionState, *, deep: bool) -> Iterator[Problem]:
    """Damaged checkpoints, which readers pass over at a price; and, deep, one that tells another story than the commits."""
    if deep and (checkpointed := log.read()).next_number == state.next_number and checkpointed != state:
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


class _Beside:
    """Sorts the objects below `segments/` into live ones, removed ones, and those that no commit names."""

    def __init__(self, state: PartitionState, now_ms: int) -> None:
        self._live = {segment.segment_id for segment in state.segments}
        self._removed = {segment.segment_id for segment in state.removed}
        self._end_offset = state.end_offset or 0
        self._now_ms = now_ms
        self._ages_ms: dict[SegmentObject, int] = {}
        self.orphans: list[Orphan] = []
        self.removed_objects = 0

    def take(self, facts: ObjectFacts, relative: str) -> None:
        found = parse_segment_key(relative)
        if found and found.segment_id in self._live:
            return
        if found and found.segment_id in self._removed:
            self.removed_objects += 1
            return
        age_ms = max(0, self._now_ms - facts.modified_ms)
        self.orphans.append(Orphan(facts.key, facts.size_bytes, age_ms))
        if found and found.base_offset >= self._end_offset and found.suffix in {LOG_SUFFIX, INDEXES_SUFFIX}:
            attempt = SegmentObject(found.base_offset, found.segment_id, "")
            self._ages_ms[attempt] = min(age_ms, self._ages_ms.get(attempt, age_ms))

    def on_their_way(self) -> Iterator[SegmentVerification]:
        for attempt, age_ms in self._ages_ms.items():
            state = SegmentState.UPLOADING if age_ms <= UPLOAD_MS_MAX else SegmentState.DELAYED
            yield SegmentVerification(attempt.base_offset, None, attempt.segment_id, None, state)


def _count_unfinished(store: ObjectStore, root: ObjectKey) -> int | None:
    try:
        return sum(1 for _ in store.unfinished_uploads(f"{root}/"))
    except StoreDenied:
        return None
