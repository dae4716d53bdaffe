"""What a verification finds, as it is shown and as JSON; and the objects of a lineage that no live segment names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

import structlog

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
from sidecar.errors import FROM_STORE, SidecarError
from sidecar.model import ArchivedSegment, ObjectKey
from sidecar.ports import ObjectFacts, ObjectStore
from sidecar.storage.store_clock import read_store_clock
from sidecar.verify.segments import Problem, ProblemKind
from sidecar.verify.status import PartitionRow, unreadable_row

UPLOAD_MS_MAX: Final = 15 * 60 * 1000
"""An object that no commit names counts as being uploaded for so long."""
_log = structlog.get_logger(__name__)


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
    """An object below `segments/` that no commit names, nor ever named: left over by an attempt, or of one under way.

    `age_ms`: by the store's clock; None where the store gives no times.
    """

    key: ObjectKey
    size_bytes: int
    age_ms: int | None


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


def unread(root: ObjectKey, reason: str, problem: Problem, error: SidecarError) -> PartitionVerification:
    """The finding about a lineage of which nothing can be said."""
    return PartitionVerification(unreadable_row(parse_root(root), reason, error), (), (problem,), (), 0, None)


def segment_row(segment: ArchivedSegment, damaged: bool) -> SegmentVerification:
    state = SegmentState.LOST if damaged else SegmentState.FOUND
    return SegmentVerification(segment.base_offset, segment.end_offset, segment.segment_id, segment.generation, state)


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
