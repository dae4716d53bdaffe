"""What came of a partition's copy task, for reports, metrics and the next task."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sidecar.errors import SidecarError
from sidecar.model import ArchivedSegment, PartitionFiles, SegmentFiles
from sidecar.partition.wait_reason import WaitReason


@dataclass(slots=True)
class PartitionOutcome:
    """What was done for a partition, and why it stopped where it did: `error`, else `reason`, else everything rolled is archived.

    `unprepared`: the segment that could not be prepared, if `error` is why.
    """

    files: PartitionFiles
    archived: list[ArchivedSegment] = field(default_factory=list)
    conformance: Counter[str] = field(default_factory=Counter)
    end_offset: int | None = None
    waiting: int = 0
    reason: WaitReason | None = None
    error: SidecarError | None = None
    look_again_ms: int | None = None
    unprepared: SegmentFiles | None = None
