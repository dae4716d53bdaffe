"""What the sidecar knows of one partition at one moment, and what came of its copy task: for people, metrics and reports."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from sidecar.errors import SidecarError
from sidecar.model import ArchivedSegment, PartitionFiles, SegmentFiles, TopicPartition
from sidecar.partition.wait_reason import WaitReason


class PartitionCondition(StrEnum):
    READY = "ready"
    WAITING = "waiting"
    IDLE = "idle"
    NOT_LED = "not_led"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition as the last check of the broker's disk found it.

    Offsets are exclusive ends but for `local_start_offset`; None where nothing is known. `pending_*`: rolled segments that
    are not archived, those included of which the broker has deleted the file: `pinned_deleted_bytes`, pinned by this process
    and lost with it. `deadline_ms`: when the broker deletes the first of them, None for never, or where `is_retention_known`
    is not. `active_deadline_ms`: when it deletes the active segment. None: never, or it rolls before, or it is pinned and
    archived then. `at_risk_end_offset`: up to where a deadline is near. `hole`: `[from, to)` that is on no disk of ours, and
    not archived.
    `reason`: what it waits for. `error`, `error_text`: class name and words of what stopped it.
    `condition`: None where no plan could be made.
    """

    topic_partition: TopicPartition
    leads: bool
    local_start_offset: int | None
    local_end_offset: int | None
    archived_end_offset: int | None = None
    pending_segments: int = 0
    pending_bytes: int = 0
    pinned_deleted_bytes: int = 0
    deadline_ms: int | None = None
    active_deadline_ms: int | None = None
    at_risk_end_offset: int | None = None
    is_retention_known: bool = True
    hole: tuple[int, int] | None = None
    reason: WaitReason | None = None
    error: str | None = None
    error_text: str = ""
    condition: PartitionCondition | None = None
    oldest_pending_ms: int | None = None
    """When the oldest of the pending segments was last written, None if there is none."""


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
    recheck_in_ms: int | None = None
    unprepared: SegmentFiles | None = None
