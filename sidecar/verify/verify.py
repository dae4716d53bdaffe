"""Proof that an archive is whole: the commit log, the coverage, and every committed object; and what lies beside them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from sidecar.archive.coverage import find_defects
from sidecar.archive.keys import COMMITS
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.lineages import find_all_lineages
from sidecar.commits.stored_commits import StoredCommits
from sidecar.errors import FROM_STORE, CorruptFile
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore
from sidecar.reporting.advice import advised, finding
from sidecar.storage.leftovers import list_uploads
from sidecar.verify.findings import (
    Beside,
    PartitionVerification,
    SegmentState,
    SegmentVerification,
    StoreNow,
    segment_row,
    unread,
)
from sidecar.verify.segments import Check, Checked, Checks, ChecksInThreads, Problem, ProblemKind
from sidecar.verify.status import Outage, row_of

WORKERS: Final = 8
DEEP_WORKERS: Final = 2
_SEGMENTS_AT_ONCE: Final = 4096
"""So many segments are handed to a driver at a time: memory does not grow with the archive."""

_MISSING_COMMITS_MAX: Final = 10
"""So many are reported of a partition: one missing commit already shows that the log was damaged."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Planned:
    """A lineage whose commits have been read."""

    root: ObjectKey
    state: PartitionState
    problems: tuple[Problem, ...]

    @property
    def checks(self) -> list[Check]:
        return [Check(self.root, segment) for segment in self.state.segments]


def verify_archive(
    store: ObjectStore,
    clock: Clock,
    *,
    deep: bool = False,
    include: Callable[[str], bool] = lambda _: True,
    workers: int | None = None,
    checks: Checks | None = None,
) -> Iterator[PartitionVerification]:
    """Check every lineage, several at once; results ascend by cluster, topic, partition and incarnation.

    Shallow: the commit log from its newest checkpoint on, whether the commits below exist, sizes and the store's checksums
    of all objects, every part of every `.indexes`. Deep: the commit log from commit 0 on, every byte of every object, every batch.

    One that cannot be read is a finding like others. Raises StoreError where the store itself fails, and what `checks` raises.

    Args:
        checks: who checks the segments. Default: threads of this process.
    """
    at_once = workers or (DEEP_WORKERS if deep else WORKERS)
    driver = checks or ChecksInThreads(store, at_once, deep)
    outage, now = Outage(), StoreNow(store, clock)

    def plan(root: ObjectKey) -> _Planned | PartitionVerification:
        return _or_unread(root, outage, lambda: _plan(store, root, clock, deep=deep))

    def finish(planned: _Planned | PartitionVerification, checked: Sequence[Checked]) -> PartitionVerification:
        if not isinstance(planned, _Planned):
            return planned
        return _or_unread(planned.root, outage, lambda: _finish(store, now, planned, checked))

    roots = iter([lineage.root for lineage in find_all_lineages(store, include)])
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="verify-partitions") as pool:
        while planned := _some(pool, plan, roots):
            yield from _in_order(pool, planned, driver, finish)


def _in_order(
    pool: ThreadPoolExecutor,
    planned: Sequence[_Planned | PartitionVerification],
    driver: Checks,
    finish: Callable[[_Planned | PartitionVerification, Sequence[Checked]], PartitionVerification],
) -> Iterator[PartitionVerification]:
    """Each lineage as soon as its segments have been checked; what lies beside them is listed meanwhile."""
    waiting: deque[Future[PartitionVerification]] = deque()
    stream = driver.run([check for one in planned if isinstance(one, _Planned) for check in one.checks])
    with closing(stream):
        for one in planned:
            segments = len(one.state.segments) if isinstance(one, _Planned) else 0
            waiting.append(pool.submit(finish, one, list(islice(stream, segments))))
            if len(waiting) > 2 * WORKERS:
                yield waiting.popleft().result()
        yield from (done.result() for done in waiting)


def _some(
    pool: ThreadPoolExecutor,
    plan: Callable[[ObjectKey], _Planned | PartitionVerification],
    roots: Iterator[ObjectKey],
) -> list[_Planned | PartitionVerification]:
    """The next lineages, until their segments are enough for one go."""
    found: list[_Planned | PartitionVerification] = []
    segments = 0
    while segments < _SEGMENTS_AT_ONCE and len(found) < _SEGMENTS_AT_ONCE:
        more = list(pool.map(plan, islice(roots, 2 * WORKERS)))
        if not more:
            break
        found += more
        segments += sum(len(one.state.segments) for one in more if isinstance(one, _Planned))
    return found


def _or_unread(root: ObjectKey, outage: Outage, work: Callable[[], Found]) -> Found | PartitionVerification:
    try:
        done = work()
    except FROM_STORE as error:
        outage.failed(error)
        return unread(root, str(error), Problem(ProblemKind.UNREADABLE, root, str(error)), error)
    outage.answered()
    return done


def _plan(store: ObjectStore, root: ObjectKey, clock: Clock, *, deep: bool) -> _Planned | PartitionVerification:
    log = CommitLog(store, root, clock)
    try:
        state = log.read_whole_chain() if deep else log.read()
    except CorruptFile as error:
        return unread(root, advised(error), Problem(ProblemKind.COMMIT_LOG, error.file or root, finding(error)), error)
    missing = () if deep else _missing_commits(store, state)
    return _Planned(root, state, (*_check_checkpoints(log, state, deep=deep), *missing, *_check_coverage(state)))


def _finish(store: ObjectStore, now: StoreNow, planned: _Planned, checked: Sequence[Checked]) -> PartitionVerification:
    """Put the findings together with what lies beside. Raises StoreError, also for a segment that could not be read."""
    for one in checked:
        one.require_read()
    state = planned.state
    segments = [segment_row(segment, bool(one.problems)) for segment, one in zip(state.segments, checked, strict=True)]
    segments += [
        SegmentVerification(hole.base_offset, hole.end_offset, None, None, SegmentState.LOST) for hole in state.holes
    ]
    beside = Beside.listed(store, state, now)
    segments += beside.on_their_way()
    return PartitionVerification(
        row=row_of(state),
        segments=tuple(sorted(segments, key=lambda segment: segment.base_offset)),
        problems=(*planned.problems, *(problem for one in checked for problem in one.problems)),
        orphans=tuple(beside.orphans),
        removed_objects=beside.removed_objects,
        unfinished_uploads=list_uploads(store, f"{planned.root}/").count,
    )


def _missing_commits(store: ObjectStore, state: PartitionState) -> Iterator[Problem]:
    """Gaps in the commit numbers below the newest one. Listings may be stale: what one leaves out is checked by key."""
    stored = StoredCommits(store, state.lineage.root)
    unlisted = sorted(set(range(state.next_number)) - stored.listed(COMMITS).keys())
    gone = (number for number in unlisted if store.head(stored.key(number)) is None)
    for number in islice(gone, _MISSING_COMMITS_MAX):
        yield Problem(
            ProblemKind.COMMIT_LOG,
            stored.key(number),
            f"commit {number} is missing below a checkpoint. Readers need it only without that checkpoint, verify --deep and "
            f"compact --undo always. Restore it from a replica of the bucket or an earlier version of the object",
        )


def _check_checkpoints(log: CommitLog, state: PartitionState, *, deep: bool) -> Iterator[Problem]:
    """Damaged checkpoints, which readers pass over at a price. Deep also finds one that does not agree with the commits."""
    if deep:
        try:
            checkpointed = log.read()
        except CorruptFile as contradiction:
            yield Problem(ProblemKind.COMMIT_LOG, contradiction.file, finding(contradiction))
            return
        if checkpointed.next_number == state.next_number and checkpointed != state:
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
