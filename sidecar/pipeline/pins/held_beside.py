"""What has rolled, and is held open, while a turn of its partition lasts: two threads know of it until the turn is over."""

from __future__ import annotations

import threading
from dataclasses import replace

from sidecar.host.pinned_files import PinnedFiles
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan


class HeldBeside:
    """Of one partition. Thread-safe, while the rest of what is held of it belongs to the thread whose turn it is."""

    def __init__(self, held: PinnedFiles) -> None:
        self._held = held
        self._lock = threading.Lock()
        self._plan: PartitionPlan | None = None

    @property
    def logs(self) -> tuple[FileIdentity, ...]:
        """Files that are held; ascending."""
        return tuple(segment.log for segment in self.segments)

    @property
    def segments(self) -> tuple[SegmentFiles, ...]:
        """The same with all their files."""
        plan = self._plan
        return () if plan is None else plan.segments

    def rolled(self, plan: PartitionPlan) -> None:
        """Remember what is held of a plan above that of the turn, besides what was told before."""
        with self._lock:
            before = self._plan.segments if self._plan is not None and self._plan.term == plan.term else ()
            by_base = {segment.base_offset: segment for segment in (*before, *plan.segments)}
            segments = tuple(segment for _, segment in sorted(by_base.items()) if self._held.has(segment.log))
            self._plan = replace(plan, segments=segments)

    def take(self, files: PartitionFiles, facts: PartitionFacts, *, is_turn: bool) -> PartitionPlan | None:
        """All of it, once: it belongs to the caller from now on. None, too, where it was held in another term.

        Args:
            is_turn: a turn plans anew. A look beside it may have held by now what its own listing does not have yet: that is left
                to the next look.
        """
        with self._lock:
            plan = self._plan
            if plan is None:
                return None
            if is_turn and (files.active_base_offset or 0) < (plan.files.active_base_offset or 0):
                return None
            self._plan = None
        return plan if plan.term == facts.term(files) else None

    def drop(self) -> None:
        """Let go of all of it."""
        with self._lock:
            plan, self._plan = self._plan, None
        if plan is not None:
            self._held.let_go(segment.log for segment in plan.segments)
