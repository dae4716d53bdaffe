"""The removal of garbage by `run`: of the partitions that this broker leads, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from sidecar import __version__
from sidecar.archive.commit import Writer
from sidecar.clock import HasClock
from sidecar.commits.commit_log import StateId
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.compactor.gc import abort_uploads, collect_garbage, collect_parts, orphaned_until_ms
from sidecar.errors import Fenced, PartitionError, StoreUnsupported
from sidecar.host.journal import HasJournal
from sidecar.metrics.registry import HasMetrics
from sidecar.model import ObjectKey
from sidecar.ports import HasFacts, HasInstance, HasStore
from sidecar.randomness import HasRandomness
from sidecar.rewriting.engines import CompactionCutOff
from sidecar.storage.leftovers import list_uploads, remove_leftovers
from sidecar.storage.store_clock import read_store_clock

_log = structlog.get_logger(__name__)


class GcPorts(HasStore, HasClock, HasFacts, HasJournal, HasMetrics, HasRandomness, HasInstance, Protocol):
    """What this takes of the world."""


class GcTask:
    """`offer` is called by the uploading thread, the object itself by another."""

    def __init__(self, tools: GcPorts, grace_period_ms: int, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Args: grace_period_ms: see `collect_garbage`; is_stopping: no further partition is to be begun."""
        self._tools = tools
        self._grace_period_ms = grace_period_ms
        self._is_stopping = is_stopping
        self._led: Sequence[LedPartition] = ()
        self._reported: set[str] = set()
        self._verified: dict[ObjectKey, StateId] = {}

    def offer(self, partitions: Sequence[LedPartition]) -> None:
        """These are led here, as of now."""
        self._led = tuple(partitions)

    def __call__(self) -> None:
        """Once through all. A partition that cannot be read is left out, and logged. Raises StoreError."""
        tools = self._tools
        try:
            store_now_ms = read_store_clock(tools.store, tools.clock, randomness=tools.randomness).store_ms
        except StoreUnsupported as error:
            self._report_once("garbage_not_removed", str(error), "unused objects remain and cost money")
            return
        until_ms = orphaned_until_ms(store_now_ms, self._grace_period_ms)
        objects = collect_parts(tools.store, until_ms) + remove_leftovers(tools.store, until_ms)
        self._abort_uploads(until_ms)
        roots = {led.root for led in self._led}
        self._verified = {root: found for root, found in self._verified.items() if root in roots}
        for led in self._led:
            if self._is_stopping():
                return
            try:
                objects += self._clear(led, store_now_ms)
            except CompactionCutOff:
                return
            except (PartitionError, Fenced) as error:
                tools.metrics.failed(type(error).__name__)
                _log.error("garbage_not_removed", partition=str(led.topic_partition), error=str(error))
        tools.metrics.compaction.garbage_removed(objects)

    def _report_once(self, event: str, reason: str, effect: str) -> None:
        """What the store does not offer, it will not offer an hour later."""
        if event not in self._reported:
            self._reported.add(event)
            _log.warning(event, reason=reason, effect=effect)

    def _abort_uploads(self, until_ms: int) -> None:
        """Of which the journal knows nothing: it was lost, or another broker began them and leads no more."""
        tools, roots = self._tools, {led.root for led in self._led}
        listed = list_uploads(tools.store, "")
        if listed.not_listed:
            effect = f"abandoned multipart uploads remain and cost money: {listed.advice}"
            self._report_once("unfinished_uploads_not_listed", listed.not_listed, effect)
            return
        known = {attempt.segment_id for root in roots for attempt in tools.journal.attempts(root)}
        aborted = abort_uploads(tools.store, listed.uploads, roots, until_ms, in_progress=known).total()
        if aborted:
            _log.info("unfinished_uploads_aborted", uploads=aborted)
        tools.metrics.compaction.uploads_aborted(aborted)

    def _clear(self, led: LedPartition, store_now_ms: int) -> int:
        tools = self._tools
        writer = Writer(tools.facts.broker_id(), led.leader_epoch, tools.instance, f"tiered-sidecar {__version__}")
        found = collect_garbage(
            tools.store,
            led.root,
            tools.clock,
            writer,
            store_now_ms=store_now_ms,
            grace_period_ms=self._grace_period_ms,
            randomness=tools.randomness,
            in_progress={attempt.segment_id for attempt in tools.journal.attempts(led.root)},
            known=led.newest_commit,
            verified=self._verified,
            is_stopping=self._is_stopping,
        )
        if found.objects:
            _log.info(
                "garbage_removed", partition=str(led.topic_partition), segments=found.removed, orphans=found.orphans
            )
        return found.objects
