"""What the sidecar is doing, for people: partitions, uploads, errors, snapshots, and the last hour."""

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from sidecar.archive.coverage import ArchiveExtent
from sidecar.clock import Clock, SystemClock
from sidecar.model import SegmentFiles, TopicPartition
from sidecar.partition import domain_events as events
from sidecar.partition.status import PartitionStatus
from sidecar.partition.wait_reason import render
from sidecar.reporting.advice import advised, loss_reason

WINDOW_S = 3600.0
SAMPLE_EVERY_S = 30.0
ERRORS_MAX = 20
ERROR_TEXT_MAX = 2_000
_ErrorKey: TypeAlias = tuple[str, str, str]
"""Where, which kind, and what it says."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A moment. `age_s`: how long ago it was. `archived_bytes`: since the start; `pending_bytes`: waiting at that time."""

    age_s: float
    archived_bytes: int
    pending_bytes: int


@dataclass(frozen=True, slots=True)
class Upload:
    """A segment `[base_offset, end_offset)` that is being uploaded since `begun_ms` (Unix time)."""

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
    `reason`: why it waits or stopped, in words without secrets. `unpinned_segments`: beyond the limit of pins; retention may
    delete them before they are archived.
    """

    status: PartitionStatus
    extent: ArchiveExtent
    uploads: tuple[Upload, ...]
    segments_archived: int
    stands_since_ms: int | None = None
    reason: str = ""
    unpinned_segments: int = 0


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


class StatusModel:
    """A sink of domain events that the HTTP server renders. Thread-safe, of bounded size per partition.

    Nothing decides by it.
    """

    def __init__(self, clock: Clock | None = None, redact: Callable[[str], str] = str) -> None:
        """Args: redact: takes secrets out of texts, which may have come from libraries. Default: leaves them as they are."""
        self._clock = clock or SystemClock()
        self._redact = redact
        self._lock = threading.Lock()
        self._version = 0
        self._archive, self._instance = "", ""
        self._began_ms = self._clock.now_ms()
        self._statuses: dict[TopicPartition, PartitionStatus] = {}
        self._extents: dict[TopicPartition, ArchiveExtent] = {}
        self._archived: Counter[TopicPartition] = Counter()
        self._stands: dict[TopicPartition, tuple[int | None, int]] = {}
        self._uploads: dict[tuple[TopicPartition, int], Upload] = {}
        self._unpinned: Mapping[TopicPartition, int] = {}
        self._errors: OrderedDict[_ErrorKey, RecentError] = OrderedDict()
        self._snapshots: Counter[str] = Counter()
        self._archived_bytes = 0
        # Of the last hour. One more than fills the window: a rate needs the sample before.
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=int(WINDOW_S / SAMPLE_EVERY_S) + 1)

    @property
    def version(self) -> int:
        with self._lock:
            return self._version

    def about(self, archive: str, instance: str) -> None:
        """Where the archive is (without credentials), and who we are."""
        with self._lock:
            self._archive, self._instance = archive, instance
            self._version += 1

    def handle(self, event: events.DomainEvent) -> None:
        if (said := _error_of(event)) is not None:
            self.failed(*said)
        with self._lock:
            if self._changed_by(event):
                self._version += 1

    def _changed_by(self, event: events.DomainEvent) -> bool:
        """Whether the event is shown; if so, it is from now on."""
        match event:
            case events.PartitionsChecked(statuses, known):
                self._replace_all(statuses, known)
            case events.PartitionChecked(status):
                self._put(status)
            case events.ExtentChanged(topic_partition, extent):
                self._extents[topic_partition] = extent
            case events.SegmentUploadStarted(segment):
                self._uploads[_key(segment)] = Upload(
                    segment.topic_partition,
                    segment.base_offset,
                    segment.end_offset,
                    segment.size_bytes,
                    self._clock.now_ms(),
                )
            case events.SegmentUploaded(segment) | events.SegmentUploadFailed(segment):
                self._uploads.pop(_key(segment), None)
            case events.SegmentCommitted():
                self._commit(event)
            case events.BacklogChanged():
                return self._shorten(event)
            case events.PinsChecked(unpinned):
                before, self._unpinned = self._unpinned, unpinned
                return unpinned != before
            case _:
                return False
        return True

    def _replace_all(self, statuses: Iterable[PartitionStatus], known: Container[TopicPartition]) -> None:
        self._statuses = {}
        for status in statuses:
            self._put(status)
        self._stands = {name: stands for name, stands in self._stands.items() if name in self._statuses}
        self._extents = {
            name: extent for name, extent in self._extents.items() if name in self._statuses or name in known
        }

    def _put(self, status: PartitionStatus) -> None:
        """Show this status, and since when the archive's end has not moved although segments wait."""
        name = status.topic_partition
        self._statuses[name] = status
        if not (status.leads and status.pending_segments):
            self._stands.pop(name, None)
        elif self._stands.get(name, (-1, 0))[0] != status.archived_end_offset:
            self._stands[name] = status.archived_end_offset, self._clock.now_ms()

    def _text(self, text: str) -> str:
        """Without secrets. Not to be called under the lock: it may read files of secrets."""
        return self._redact(text)[:ERROR_TEXT_MAX] if text else ""

    def _commit(self, event: events.SegmentCommitted) -> None:
        name, entry = event.segment.topic_partition, event.entry
        self._archived[name] += 1
        self._snapshots[str(entry.snapshot.origin)] += 1
        self._snapshots[event.snapshot_result] += 1
        self._archived_bytes += entry.size_bytes
        status = self._statuses.get(name)
        if status is not None:
            self._statuses[name] = replace(status, archived_end_offset=entry.end_offset)

    def _shorten(self, event: events.BacklogChanged) -> bool:
        status = self._statuses.get(event.topic_partition)
        if status is None:
            return False
        self._statuses[event.topic_partition] = shortened = event.applied_to(status)
        return shortened != status

    def failed(self, where: str, kind: str, text: str) -> None:
        """Something went wrong apart from any partition. What was said before in the same words is counted."""
        key = where, kind, self._text(text)
        with self._lock:
            now_ms = self._clock.now_ms()
            known = self._errors.pop(key, None)
            first_ms, count = (now_ms, 1) if known is None else (known.first_ms, known.count + 1)
            self._errors[key] = RecentError(*key, first_ms, now_ms, count)
            while len(self._errors) > ERRORS_MAX:
                self._errors.popitem(last=False)
            self._version += 1

    def tick(self) -> None:
        """Time goes by: keep a sample where one is due. Cheap, and to be called at any rate."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if not self._samples or now_s - self._samples[-1][0] >= SAMPLE_EVERY_S:
                self._samples.append((now_s, self._archived_bytes, self._pending_bytes()))
                self._version += 1

    def _pending_bytes(self) -> int:
        return sum(status.pending_bytes for status in self._statuses.values() if status.leads)

    def figures(self) -> StatusFigures:
        with self._lock:
            found = self._copied()
        partitions = tuple(
            replace(each, reason=self._text(each.status.error_text or render(each.status.reason)))
            for each in found.partitions
        )
        return replace(found, partitions=partitions)

    def _copied(self) -> StatusFigures:
        """Without the reasons."""
        uploads, now_s = tuple(self._uploads.values()), self._clock.monotonic_s()
        of_partitions: dict[TopicPartition, list[Upload]] = {}
        for upload in uploads:  # Once: there are thousands of partitions, and the lock is held.
            of_partitions.setdefault(upload.topic_partition, []).append(upload)
        kept = (*self._samples, (now_s, self._archived_bytes, self._pending_bytes()))
        samples = [Sample(now_s - at_s, *sizes) for at_s, *sizes in kept]
        return StatusFigures(
            archive=self._archive,
            instance=self._instance,
            began_ms=self._began_ms,
            partitions=tuple(
                PartitionFigures(
                    self._statuses[name],
                    self._extents.get(name, ArchiveExtent()),
                    tuple(of_partitions.get(name, ())),
                    self._archived[name],
                    self._stands[name][1] if name in self._stands else None,
                    unpinned_segments=self._unpinned.get(name, 0),
                )
                for name in sorted(self._statuses)
            ),
            uploads=uploads,
            errors=tuple(reversed(self._errors.values())),
            snapshots=self._snapshots.copy(),
            samples=tuple(sample for sample in samples if sample.age_s <= WINDOW_S + SAMPLE_EVERY_S),
        )


def _error_of(event: events.DomainEvent) -> _ErrorKey | None:
    """What went wrong by an event, in words that may hold secrets."""
    match event:
        case events.SnapshotMismatch():
            return str(event.segment), "SnapshotMismatch", event.found
        case events.OffsetsLost():
            span = f"offsets {event.from_offset} to {event.to_offset - 1}"
            fate = "recorded as LOST" if event.is_recorded else "are lost"
            return str(event.topic_partition), "OffsetsLost", f"{span} {fate}: {loss_reason(event)}"
        case events.PartitionFailed(topic_partition, error):
            return str(topic_partition), type(error).__name__, advised(error)
        case events.DirectoryUnreadable(path, error):
            return path, type(error).__name__, advised(error)
        case _:
            return None


def _key(segment: SegmentFiles) -> tuple[TopicPartition, int]:
    return segment.topic_partition, segment.base_offset
