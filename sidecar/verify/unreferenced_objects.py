"""The objects of a lineage that no live segment names: removed ones, left-overs, and uploads under way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import structlog

from sidecar.archive.keys import INDEXES_SUFFIX, LOG_SUFFIX, SEGMENTS, SegmentObject, below, parse_segment_key
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.errors import FROM_STORE
from sidecar.ports import ObjectFacts, ObjectStore
from sidecar.storage.store_clock import read_store_clock
from sidecar.verify.findings import Orphan, SegmentState, SegmentVerification

UPLOAD_MS_MAX: Final = 15 * 60 * 1000
"""An object that no commit names counts as being uploaded for so long."""

_log = structlog.get_logger(__name__)


class StoreNow:
    """The store's time, read once, and only where an object has an age: most verifications write nothing."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @cached_property
    def ms(self) -> int:
        """By the store's clock; by this host's where we may not write there. Ages are shown, and decide nothing."""
        try:
            return read_store_clock(self._store, self._clock).store_ms
        except FROM_STORE as error:
            _log.warning(
                "ages_by_own_clock", reason=str(error), effect="UPLOADING and DELAYED depend on this host's clock"
            )
            return self._clock.now_ms()


class Beside:
    """Sorts the objects below `segments/` into live ones, removed ones, and those that no commit names."""

    def __init__(self, state: PartitionState, now: StoreNow) -> None:
        self._live = {segment.segment_id for segment in state.segments}
        self._removed = {segment.segment_id for segment in state.removed}
        self._end_offset = state.end_offset or 0
        self._now = now
        self._ages_ms: dict[SegmentObject, int] = {}
        self.orphans: list[Orphan] = []
        self.removed_objects = 0

    @classmethod
    def listed(cls, store: ObjectStore, state: PartitionState, now: StoreNow) -> Beside:
        """Those of a lineage. Raises StoreError."""
        beside = cls(state, now)
        root = state.lineage.root
        for facts in store.list(below(root, SEGMENTS)):
            beside.take(facts, facts.key.removeprefix(f"{root}/"))
        return beside

    def take(self, facts: ObjectFacts, relative: str) -> None:
        """One object, and its key below the root."""
        found = parse_segment_key(relative)
        if found and found.segment_id in self._live:
            return
        if found and found.segment_id in self._removed:
            self.removed_objects += 1
            return
        age_ms = None if facts.modified_ms is None else max(0, self._now.ms - facts.modified_ms)
        self.orphans.append(Orphan(facts.key, facts.size_bytes, age_ms))
        age_ms = age_ms or 0  # Unknown counts as "now".
        if found and found.base_offset >= self._end_offset and found.suffix in {LOG_SUFFIX, INDEXES_SUFFIX}:
            attempt = SegmentObject(found.base_offset, found.segment_id, "")
            self._ages_ms[attempt] = min(age_ms, self._ages_ms.get(attempt, age_ms))

    def on_their_way(self) -> Iterator[SegmentVerification]:
        """Segments above the archive's end that were begun."""
        for attempt, age_ms in self._ages_ms.items():
            state = SegmentState.UPLOADING if age_ms <= UPLOAD_MS_MAX else SegmentState.DELAYED
            yield SegmentVerification(attempt.base_offset, None, attempt.segment_id, None, state)
