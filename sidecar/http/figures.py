"""Values of the board: what is known of each partition, what is on its way, what went wrong, and all of it at one moment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sidecar.archive.extent import ArchiveExtent
from sidecar.http.history import Sample
from sidecar.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """A partition as the last look at the broker's disk found it.

    Offsets are exclusive ends but for `local_start_offset`; None where nothing is known. `pending_*`: rolled segments that
    are not archived, those included of which the broker has deleted the file: `held_deleted_bytes`, held open by this process
    and lost with it. `deadline_ms`: when the broker deletes the first of them, None for never, or where `is_retention_known`
    is not; `active_deadline_ms`: when it deletes the active segment, None where that will have rolled before, or never, or
    where it is held open, and archived then; `at_risk_end_offset`: up to where that is near. `hole`: `[from, to)` that is on
    no disk of ours, and not archived.
    `error`: class name of what stopped it.
    """

    topic_partition: TopicPartition
    leads: bool
    local_start_offset: int | None
    local_end_offset: int | None
    archived_end_offset: int | None = None
    pending_segments: int = 0
    pending_bytes: int = 0
    held_deleted_bytes: int = 0
    deadline_ms: int | None = None
    active_deadline_ms: int | None = None
    at_risk_end_offset: int | None = None
    is_retention_known: bool = True
    hole: tuple[int, int] | None = None
    reason: str = ""
    error: str | None = None
    oldest_pending_ms: int | None = None
    """When the oldest of the pending segments was last written, None if there is none."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A segment on its way."""

    topic_partition: TopicPartition
    base_offset: int
    end_offset: int
    size_bytes: int
    begun_ms: int


@dataclass(frozen=True, slots=True)
class RecentError:
    """Something that went wrong, and how often it did so in the same words."""

    where: str
    kind: str
    text: str
    first_ms: int
    last_ms: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """One partition: the last look, what is archived of it, what is on its way, and how much came since the start.

    `stands_since_ms`: since when segments wait and none of them was archived, as far as this process knows; None if none waits.
    """

    look: PartitionLook
    extent: ArchiveExtent
    uploads: tuple[Upload, ...]
    segments_archived: int
    stands_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BoardFigures:
    """All of it at one moment. `partitions` ascend; `errors` begin with the latest; `snapshots` count since the start."""

    archive: str
    instance: str
    began_ms: int
    partitions: tuple[PartitionFigures, ...]
    uploads: tuple[Upload, ...]
    errors: tuple[RecentError, ...]
    snapshots: Counter[str]
    samples: tuple[Sample, ...]
