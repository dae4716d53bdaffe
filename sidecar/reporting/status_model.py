"""What the pipeline has in hand, for people who look: partitions, uploads, errors, snapshots, and the last hour."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from sidecar.archive.coverage import Hole
from sidecar.archive.extent import ArchiveExtent, extent_of
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock, SystemClock
from sidecar.model import ArchivedSegment, SegmentFiles, TopicPartition
from sidecar.partition.status import PartitionStatus
from sidecar.reporting.figures import PartitionFigures, RecentError, StatusFigures, Upload
from sidecar.reporting.history import History

ERRORS_MAX = 20
ERROR_TEXT_MAX = 2_000


class StatusModel:
    """Fed by the pipeline, asked by the HTTP server. Thread-safe, of bounded size per partition."""

    def __init__(self, clock: Clock | None = None, redact: Callable[[str], str] = str) -> None:
        """Args: redact: takes secrets out of texts, which may have come from libraries. Default: leaves them as they are."""
        self._clock = clock or SystemClock()
        self._redact = redact
        self._lock = threading.Lock()
        self._version = 0
        self._archive, self._instance = "", ""
        self._began_ms = self._clock.now_ms()
        self._looks: dict[TopicPartition, PartitionStatus] = {}
        self._extents: dict[TopicPartition, ArchiveExtent] = {}
        self._archived: Counter[TopicPartition] = Counter()
        self._stands: dict[TopicPartition, tuple[int | None, int]] = {}
        self._uploads: dict[int, Upload] = {}
        self._upload_number = 0
        self._errors: OrderedDict[tuple[str, str, str], RecentError] = OrderedDict()
        self._snapshots: Counter[str] = Counter()
        self._history = History(self._clock)

    @property
    def version(self) -> int:
        """Grows with every change."""
        with self._lock:
            return self._version

    def about(self, archive: str, instance: str) -> None:
        """Where the archive is (without credentials), and who we are."""
        with self._lock:
            self._archive, self._instance = archive, instance
            self._version += 1

    def looked(self, looks: Iterable[PartitionStatus], known: Container[TopicPartition] = ()) -> None:
        """A look at the disks is over, and these are all partitions that it found.

        Args:
            known: others that it may find again; what is archived of them stays known.
        """
        with self._lock:
            self._looks = {look.topic_partition: self._redacted(look) for look in looks}
            for look in self._looks.values():
                self._see_movement(look)
            self._stands = {name: stands for name, stands in self._stands.items() if name in self._looks}
            self._extents = {
                name: extent for name, extent in self._extents.items() if name in self._looks or name in known
            }
            self._version += 1

    def turned(self, look: PartitionStatus) -> None:
        """A partition's turn is over."""
        with self._lock:
            self._looks[look.topic_partition] = self._redacted(look)
            self._see_movement(look)
            self._version += 1

    def _see_movement(self, look: PartitionStatus) -> None:
        """Keep since when the archive's end has not moved although segments wait."""
        if not (look.leads and look.pending_segments):
            self._stands.pop(look.topic_partition, None)
        elif self._stands.get(look.topic_partition, (-1, 0))[0] != look.archived_end_offset:
            self._stands[look.topic_partition] = look.archived_end_offset, self._clock.now_ms()

    def _redacted(self, look: PartitionStatus) -> PartitionStatus:
        return replace(look, reason=self._redact(look.reason)[:ERROR_TEXT_MAX]) if look.reason else look

    def opened(self, topic_partition: TopicPartition, state: PartitionState) -> None:
        """The whole state of a partition's archive, as just read."""
        extent = extent_of(state)
        with self._lock:
            self._extents[topic_partition] = extent
            self._version += 1

    def resumed(self, topic_partition: TopicPartition, extent: ArchiveExtent, state: PartitionState) -> None:
        """What covered the archive when it was last known, and the newest part of its state now."""
        with self._lock:
            self._extents[topic_partition] = extent.grown(state.segments, state.holes)
            self._version += 1

    def extent(self, topic_partition: TopicPartition) -> ArchiveExtent:
        """What is known to be archived of a partition."""
        with self._lock:
            return self._extents.get(topic_partition, ArchiveExtent())

    def grown(
        self, topic_partition: TopicPartition, segments: Iterable[ArchivedSegment], holes: Iterable[Hole]
    ) -> None:
        """These segments and losses were committed, among others that are known."""
        with self._lock:
            extent = self._extents.get(topic_partition, ArchiveExtent())
            self._extents[topic_partition] = extent.grown(segments, holes)
            self._version += 1

    def committed(self, segment: SegmentFiles, entry: ArchivedSegment, conformance: str) -> None:
        """A segment is archived; `conformance`: how the broker's snapshot compared, see `Metrics.committed`."""
        topic_partition = segment.topic_partition
        with self._lock:
            self._archived[topic_partition] += 1
            self._snapshots[str(entry.snapshot.origin)] += 1
            self._snapshots[conformance] += 1
            self._history.archived(entry.size_bytes)
            look = self._looks.get(topic_partition)
            if look is not None:
                self._looks[topic_partition] = replace(
                    look,
                    archived_end_offset=entry.end_offset,
                    pending_segments=max(0, look.pending_segments - 1),
                    pending_bytes=max(0, look.pending_bytes - segment.size_bytes),
                )
            self._version += 1

    def threatened(self, topic_partition: TopicPartition, deadline_ms: int | None, held_deleted_bytes: int = 0) -> None:
        """When the broker deletes the first segment that is not archived, after one more was; None for never.

        Args:
            held_deleted_bytes: what it has deleted before, and is held open.
        """
        with self._lock:
            look = self._looks.get(topic_partition)
            if look is not None and (look.deadline_ms, look.held_deleted_bytes) != (deadline_ms, held_deleted_bytes):
                self._looks[topic_partition] = replace(
                    look, deadline_ms=deadline_ms, held_deleted_bytes=held_deleted_bytes
                )
                self._version += 1

    @contextmanager
    def uploading(self, segment: SegmentFiles) -> Iterator[None]:
        """The segment is on its way for as long as this lasts."""
        upload = Upload(
            segment.topic_partition,
            segment.base_offset,
            segment.end_offset,
            segment.size_bytes,
            self._clock.now_ms(),
        )
        with self._lock:
            number = self._upload_number = self._upload_number + 1
            self._uploads[number] = upload
            self._version += 1
        try:
            yield
        finally:
            with self._lock:
                del self._uploads[number]
                self._version += 1

    def failed(self, where: str, kind: str, text: str) -> None:
        """Something went wrong. What was said before in the same words is counted."""
        key = (where, kind, self._redact(text)[:ERROR_TEXT_MAX])
        now_ms = self._clock.now_ms()
        with self._lock:
            known = self._errors.pop(key, None)
            first_ms, count = (now_ms, 1) if known is None else (known.first_ms, known.count + 1)
            self._errors[key] = RecentError(*key, first_ms, now_ms, count)
            while len(self._errors) > ERRORS_MAX:
                self._errors.popitem(last=False)
            self._version += 1

    def tick(self) -> None:
        """Time goes by: keep a sample where one is due. Cheap, and to be called at any rate."""
        with self._lock:
            if self._history.is_due():
                self._history.tick(self._pending_bytes())
                self._version += 1

    def _pending_bytes(self) -> int:
        return sum(look.pending_bytes for look in self._looks.values() if look.leads)

    def figures(self) -> StatusFigures:
        """All of it, now."""
        with self._lock:
            uploads = tuple(self._uploads.values())
            by_partition: dict[TopicPartition, list[Upload]] = {}
            for upload in uploads:
                by_partition.setdefault(upload.topic_partition, []).append(upload)
            return StatusFigures(
                archive=self._archive,
                instance=self._instance,
                began_ms=self._began_ms,
                partitions=tuple(
                    PartitionFigures(
                        self._looks[name],
                        self._extents.get(name, ArchiveExtent()),
                        tuple(by_partition.get(name, ())),
                        self._archived[name],
                        self._stands[name][1] if name in self._stands else None,
                    )
                    for name in sorted(self._looks)
                ),
                uploads=uploads,
                errors=tuple(reversed(self._errors.values())),
                snapshots=self._snapshots.copy(),
                samples=self._history.samples(self._pending_bytes()),
            )
