"""The removal of garbage by `run`: of the partitions that this broker leads, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from sidecar import __version__
from sidecar.archive.commit import Writer
from sidecar.errors import Fenced, PartitionError, StoreDenied
from sidecar.pipeline.compaction.waiting_list import LedPartition
from sidecar.pipeline.garbage import abort_uploads, collect_garbage, collect_parts
from sidecar.pipeline.tools import Tools

_log = structlog.get_logger(__name__)


class ClearingUp:
    """`offer` is called by the uploading thread, the object itself by another."""

    def __init__(self, tools: Tools, grace_period_ms: int, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Args: grace_period_ms: see `collect_garbage`; is_stopping: no further partition is to be begun."""
        self._tools = tools
        self._grace_period_ms = grace_period_ms
        self._is_stopping = is_stopping
        self._led: Sequence[LedPartition] = ()

    def offer(self, partitions: Sequence[LedPartition]) -> None:
        """These are led here, as of now."""
        self._led = tuple(partitions)

    def __call__(self) -> None:
        """Once through all. A partition that cannot be read is passed over, and told. Raises StoreError."""
        tools = self._tools
        objects = collect_parts(tools.store, tools.clock, grace_period_ms=self._grace_period_ms)
        self._abort_uploads()
        for led in self._led:
            if self._is_stopping():
                return
            try:
                objects += self._clear(led)
            except (PartitionError, Fenced) as error:
                tools.metrics.failed(type(error).__name__)
                _log.error("garbage_not_removed", partition=str(led.topic_partition), error=str(error))
        tools.metrics.compaction.garbage_removed(objects)

    def _abort_uploads(self) -> None:
        """Of which the journal knows nothing: it was lost, or another broker began them and leads no more."""
        tools, roots = self._tools, {led.root for led in self._led}
        known = {attempt.segment_id for root in roots for attempt in tools.journal.attempts(root)}
        try:
            aborted = abort_uploads(
                tools.store, roots, tools.clock, grace_period_ms=self._grace_period_ms, in_progress=known
            ).total()
        except StoreDenied as error:
            # Whoever may not list uploads has a lifecycle rule that ends them; the rest of the garbage goes all the same.
            _log.warning("unfinished_uploads_not_listed", reason=str(error))
            return
        if aborted:
            _log.info("unfinished_uploads_aborted", uploads=aborted)
        tools.metrics.compaction.uploads_aborted(aborted)

    def _clear(self, led: LedPartition) -> int:
        tools = self._tools
        writer = Writer(tools.facts.broker_id(), led.leader_epoch, tools.instance, f"tiered-sidecar {__version__}")
        found = collect_garbage(
            tools.store,
            led.root,
            tools.clock,
            writer,
            grace_period_ms=self._grace_period_ms,
            in_progress={attempt.segment_id for attempt in tools.journal.attempts(led.root)},
        )
        if found.objects:
            _log.info(
                "garbage_removed", partition=str(led.topic_partition), segments=found.removed, orphans=found.orphans
            )
        return found.objects
