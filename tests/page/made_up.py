"""Status models made up for tests of the page: any number of partitions in any state."""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.archive.coverage import ArchiveExtent, Hole
from sidecar.model import ArchivedSegment, TopicPartition
from sidecar.partition.domain_events import ExtentChanged, PartitionsChecked
from sidecar.partition.status import PartitionStatus
from sidecar.partition.wait_reason import Wait, render
from sidecar.reporting.status_model import PartitionFigures, StatusModel, Upload
from tests.runner.archived import segment

NOW_MS = 1_790_000_000_000
HOUR_MS = 3_600_000


def a_look(name: str = "orders-0", **changes: object) -> PartitionStatus:
    """A partition of which [0, 80) is archived and [80, 100) is on the disk, the active segment included."""
    topic, _, partition = name.rpartition("-")
    found: dict[str, object] = {
        "leads": True,
        "local_start_offset": 40,
        "local_end_offset": 100,
        "archived_end_offset": 80,
    }
    return PartitionStatus(TopicPartition(topic, int(partition)), **{**found, **changes})  # type: ignore[arg-type]


def waiting(name: str = "orders-0", **changes: object) -> PartitionStatus:
    """The same with a rolled segment that is not archived."""
    return a_look(name, **{"pending_segments": 1, "pending_bytes": 1000, **changes})


def figures(
    look: PartitionStatus,
    segments: Sequence[ArchivedSegment] = (segment(0, 80),),
    holes: Sequence[Hole] = (),
    uploads: Sequence[tuple[int, int]] = (),
    stands_since_ms: int | None = None,
) -> PartitionFigures:
    """What the model would say of a partition."""
    sent = tuple(Upload(look.topic_partition, *offsets, 1000, NOW_MS) for offsets in uploads)
    reason = look.error_text or render(look.reason)
    return PartitionFigures(look, ArchiveExtent().grown(segments, holes), sent, 0, stands_since_ms, reason)


def fill(model: StatusModel, looks: Sequence[PartitionStatus]) -> None:
    """Let the model know these partitions, each with an archive of its own size."""
    model.handle(PartitionsChecked(tuple(looks), frozenset()))
    for number, look in enumerate(looks):
        extent = ArchiveExtent().grown([segment(0, 80, size_bytes=1000 * (number + 1))], ())
        model.handle(ExtentChanged(look.topic_partition, extent))


def thousand() -> list[PartitionStatus]:
    """1,000 partitions of 100 topics; a few need a person."""
    looks = [a_look(f"topic-{number // 10:02d}-{number % 10}") for number in range(1000)]
    looks[617] = waiting(
        "topic-61-7", deadline_ms=NOW_MS + HOUR_MS // 2, at_risk_end_offset=100, reason=Wait.NOT_ADMITTED
    )
    looks[305] = waiting("topic-30-5", hole=(80, 90), error="CoverageHole", error_text="offsets are gone")
    looks[44] = waiting(
        "topic-04-4", error="CorruptFile", error_text="byte 17: expected 2, found <script>alert(1)</script>"
    )
    looks[999] = a_look("topic-99-9", leads=False)
    return looks
