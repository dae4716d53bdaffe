"""A partition behind an open transaction: remembered between scans, so that waiting costs neither reads nor others' turns."""

from __future__ import annotations

from dataclasses import replace

from sidecar.model import SegmentFiles
from sidecar.partition.domain_events import TransactionHangs
from sidecar.partition.plan import PartitionPlan
from sidecar.pipeline.tools import Tools
from sidecar.segment.open_transactions import OpenTransactions

TRANSACTION_MAX_TIMEOUT_S = 900.0
"""Brokers abort what is open for longer than `transaction.max.timeout.ms` (default 15 minutes); what outlives that hangs."""


class HeldBack:
    """The segment of one partition that waits for transactions, if there is one."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._waiting: OpenTransactions | None = None
        self._since_s = 0.0
        self._is_told = False

    @property
    def segment(self) -> SegmentFiles | None:
        """The one that waited when it was last looked at."""
        return None if self._waiting is None else self._waiting.segment

    def hold(self, waiting: OpenTransactions) -> None:
        """This segment, just read, may not be archived yet."""
        if self._waiting is None or self._waiting.oldest != waiting.oldest:
            self._since_s, self._is_told = self._tools.clock.monotonic_s(), False
        self._waiting = waiting

    def apply(self, plan: PartitionPlan) -> PartitionPlan:
        """The plan without the segment that still waits, and those above it. Reads on only if more has become stable.

        Raises SegmentChanged or PartitionError where a segment cannot be read.
        """
        waiting = self._waiting
        if waiting is None:
            return plan
        log, end_offset = waiting.segment.log, waiting.segment.end_offset
        row = next((n for n, s in enumerate(plan.segments) if (s.log, s.end_offset) == (log, end_offset)), None)
        if row is None:
            return plan
        stable_end_offset = plan.facts.stable_end_offset
        if stable_end_offset != waiting.stable_end_offset:
            tools = self._tools
            found = tools.disk.look_ahead(plan.files, waiting, stable_end_offset, tools.beat, tools.budget.reads.count)
            if found is None:
                self._waiting = None
                return plan
            self.hold(found)
            waiting = found
        self._warn(waiting)
        held = (*plan.segments[row:], *plan.waiting)
        return replace(plan, segments=plan.segments[:row], waiting=held, reason=waiting.reason, look_again_ms=None)

    def _warn(self, waiting: OpenTransactions) -> None:
        held_s = self._tools.clock.monotonic_s() - self._since_s
        if held_s < TRANSACTION_MAX_TIMEOUT_S or self._is_told:
            return
        self._is_told = True
        producer_id, first_offset = waiting.oldest
        self._tools.emit(TransactionHangs(waiting.segment, producer_id, first_offset, held_s))
