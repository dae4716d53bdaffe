"""What a verification finds, as it is shown and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from sidecar.archive.keys import parse_root
from sidecar.errors import SidecarError
from sidecar.model import ArchivedSegment, ObjectKey
from sidecar.verify.segments import Problem, ProblemKind
from sidecar.verify.status import PartitionRow, unreadable_row


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
    """The finding about one segment."""
    state = SegmentState.LOST if damaged else SegmentState.FOUND
    return SegmentVerification(segment.base_offset, segment.end_offset, segment.segment_id, segment.generation, state)
