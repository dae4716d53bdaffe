"""A partition behind an open transaction: remembered between scans, so that waiting costs neither reads nor others' turns."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sidecar.model import SegmentFiles
from sidecar.partition.domain_events import TransactionHangs
from sidecar.partition.plan import PartitionPlan
from sidecar.runner.context import RunContext
from sidecar.segment.open_transactions import OpenTransactions

TRANSACTION_MAX_TIMEOUT_S = 900.0
"""Brokers abort what is open for longer than `transaction.max.timeout.ms` (default 15 minutes); what outlives that hangs."""


class BlockedSegment:
    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._waiting: OpenTransactions | None = None
        self._since_s = 0.0
        self._is_reported = False

    @property
    def segment(self) -> SegmentFiles | None:
        """The one that waited at the last check."""
        return None if self._waiting is None else self._waiting.segment

    def hold(self, waiting: OpenTransactions | None) -> None:
        """This segment, just read, may not be archived yet; None if nothing is waited for any more."""
        if waiting is not None and (self._waiting is None or self._waiting.oldest != waiting.oldest):
            self._since_s, self._is_reported = self._context.clock.monotonic_s(), False
        self._waiting = waiting

    def _row(self, plan: PartitionPlan) -> int | None:
        if self._waiting is None:
            return None
        log, end_offset = self._waiting.segment.log, self._waiting.segment.end_offset
        return next((n for n, s in enumerate(plan.segments) if (s.log, s.end_offset) == (log, end_offset)), None)

    def look_ahead(self, plan: PartitionPlan) -> Callable[[], OpenTransactions | None] | None:
        """What reads on behind the segment, where more has become stable since; None where that is not to be done.

        Its result is for `hold`. It raises SegmentChanged or PartitionError where a segment cannot be read.
        """
        waiting, stable_end_offset, context = self._waiting, plan.facts.stable_end_offset, self._context
        if waiting is None or self._row(plan) is None or stable_end_offset == waiting.stable_end_offset:
            return None
        ahead = context.disk.look_ahead
        return partial(ahead, plan.files, waiting, stable_end_offset, context.beat, context.budget.reads.count)

    def apply(self, plan: PartitionPlan) -> PartitionPlan:
        """The plan without the segment that still waits, and those above it."""
        row, waiting = self._row(plan), self._waiting
        if row is None or waiting is None:
            return plan
        self._warn(waiting)
        blocked = (*plan.segments[row:], *plan.waiting)
        return replace(plan, segments=plan.segments[:row], waiting=blocked, reason=waiting.reason, recheck_in_ms=None)

    def _warn(self, waiting: OpenTransactions) -> None:
        held_s = self._context.clock.monotonic_s() - self._since_s
        if held_s < TRANSACTION_MAX_TIMEOUT_S or self._is_reported:
            return
        self._is_reported = True
        producer_id, first_offset = waiting.oldest
        self._context.emit(TransactionHangs(waiting.segment, producer_id, first_offset, held_s))
