"""Values of the status model: what is known of each partition, what is on its way, what went wrong, and all of it at one moment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sidecar.archive.extent import ArchiveExtent
from sidecar.model import TopicPartition
from sidecar.partition.status import PartitionStatus
from sidecar.reporting.history import Sample


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
    """One partition: its status, what is archived of it, what is on its way, and how much came since the start.

    `stands_since_ms`: since when segments wait and none of them was archived, as far as this process knows; None if none waits.
    `reason`: why it waits or stopped, in words without secrets.
    """

    status: PartitionStatus
    extent: ArchiveExtent
    uploads: tuple[Upload, ...]
    segments_archived: int
    stands_since_ms: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StatusFigures:
    """All of it at one moment. `partitions` ascend; `errors` begin with the latest; `snapshots` count since the start."""

    archive: str
    instance: str
    began_ms: int
    partitions: tuple[PartitionFigures, ...]
    uploads: tuple[Upload, ...]
    errors: tuple[RecentError, ...]
    snapshots: Counter[str]
    samples: tuple[Sample, ...]
