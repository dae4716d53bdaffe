"""What a round works with: threads, and descriptors of planned segments, which outlive it until these are archived."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from operator import itemgetter

from sidecar.partition.plan import PartitionPlan
from sidecar.pipeline.partition import PartitionArchiver
from sidecar.pipeline.tools import Tools
from sidecar.runner.meanwhile import NOBODY, Busy
from sidecar.runner.queue_room import Work


@contextmanager
def holding(tools: Tools, archivers: Collection[PartitionArchiver], work: Sequence[Work]) -> Iterator[None]:
    """Hold open what is planned: what nobody can open again, then the most urgent, then what earlier rounds have left.

    It stays open behind the round, unless the process is to end.

    Args:
        archivers: of all partitions; descriptors of others are let go.
    """
    hold(tools, archivers, work, NOBODY)
    try:
        yield
    finally:
        if tools.stop.is_set():
            tools.held.release()


def hold(tools: Tools, archivers: Collection[PartitionArchiver], work: Sequence[Work], busy: Busy) -> None:
    """Hold open what is planned, see `holding`; of what is busy also what has rolled above its plan, see `Busy`."""
    for archiver, plan in work:
        if plan.files.topic_partition not in busy:
            archiver.held.expect(plan, archiver.tail.expected(plan))
    gone = chain.from_iterable(archiver.held.gone_logs for archiver in archivers)
    tails = (archiver.held.tail for archiver in archivers)
    expected = ((deadline_ms, log) for deadline_ms, log in filter(None, tails))
    turns = ((_deadline_ms(plan), log) for archiver, plan in busy.values() for log in archiver.held.logs)
    planned = ((_deadline_ms(plan), segment.log) for _, plan in work for segment in plan.segments)
    urgent = (log for _, log in sorted(chain(turns, planned, expected), key=itemgetter(0)))
    before = chain.from_iterable(archiver.held.logs for archiver in archivers)
    tools.held.keep(chain(gone, urgent, before))
    for archiver, plan in work:
        if plan.files.topic_partition in busy:
            archiver.held.beside.rolled(plan)
        else:
            archiver.held.planned(plan)


def _deadline_ms(plan: PartitionPlan) -> float:
    return math.inf if plan.deadline_ms is None else plan.deadline_ms


@contextmanager
def pools(tools: Tools) -> Iterator[tuple[Executor, Executor]]:
    """Threads for partitions, and for their uploads."""
    workers = tools.policy.workers
    ahead = workers * tools.policy.uploads_ahead
    with (
        ThreadPoolExecutor(ahead, thread_name_prefix="upload") as uploads,
        ThreadPoolExecutor(workers, thread_name_prefix="partition") as partitions,
    ):
        yield partitions, uploads
