"""What an archive holds, read past all faults: its state, and every record of its live segments."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

from producer_state.snapshot import read_snapshot
from sidecar.archive.bundle import cut_parts
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState, empty_state
from sidecar.commits.commit_log import CommitLog
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from tests.compaction.reference.batches import DecodedBatch, decode_segment
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.histories.findings import Finding
from tests.histories.plain_log import Appended

MARKER_COMMIT = 1


@dataclass(slots=True)
class ArchiveView:
    """Follows the only lineage of a store. Objects never change, so each is read once. `is_paused`: the state stays as it was."""

    store: MemoryStore
    root: ObjectKey | None = None
    state: PartitionState | None = None
    commits: dict[str, bytes] = field(default_factory=dict)
    is_paused: bool = False
    _logs: dict[str, tuple[bytes, dict[int, Appended]]] = field(default_factory=dict)
    _sound: dict[str, bytes] = field(default_factory=dict)

    def follow(self) -> PartitionState | None:
        """The state now. Raises Finding where commits changed or vanished, or an object that is named is not there."""
        if self.is_paused:
            return self.state
        if self.root is None:
            first = next((key for key in self.store.objects if "/commits/" in key), None)
            if first is None:
                return None
            self.root = ObjectKey(first.split("/commits/")[0])
        for key, body in self.commits.items():
            if self.store.objects.get(key) != body:
                raise Finding("commit-changed", f"{key} is gone or another")
        self.commits = {key: body for key, body in self.store.objects.items() if "/commits/" in key}
        log = CommitLog(self.store, self.root, ManualClock(0))
        self.state = log.refresh(self.state or empty_state(log.lineage))
        for segment in self.state.segments:
            self._require_sound(segment)
        return self.state

    def _require_sound(self, segment: ArchivedSegment) -> None:
        assert self.root is not None
        for key, names in ((segment.log_key, {PartName.LOG}), (segment.indexes_key, set(PartName) - {PartName.LOG})):
            body = self.store.objects.get(below(self.root, key))
            if body is None:
                raise Finding("live-object-missing", f"{segment}: {key}")
            if self._sound.get(key) is body:
                continue
            parts = [part for part in segment.parts if part.name in names]
            if sum(part.size_bytes for part in parts) != len(body):
                raise Finding("live-object-damaged", f"{segment}: {key} has {len(body)} bytes")
            for part in parts:
                if crc32c(body[part.position : part.position + part.size_bytes]) != part.crc32c:
                    raise Finding("live-object-damaged", f"{segment}: checksum of {part.name}")
            self._sound[key] = body

    def records(self) -> dict[int, Appended]:
        """By offset, all data records of live segments; their transactions are left out."""
        found: dict[int, Appended] = {}
        for segment in () if self.state is None else self.state.segments:
            found |= self._records_of(segment)
        return found

    def _records_of(self, segment: ArchivedSegment) -> dict[int, Appended]:
        assert self.root is not None
        body = self.store.objects[below(self.root, segment.log_key)]
        known = self._logs.get(segment.log_key)
        if known is None or known[0] is not body:
            known = body, {record.offset: record for batch in decode_segment(body) for record in records_in(batch)}
            self._logs[segment.log_key] = known
        return known[1]

    def offsets_of(self, segment: ArchivedSegment) -> frozenset[int] | None:
        """Of the data records of a segment that need not be live; None where its objects are deleted."""
        assert self.root is not None
        if below(self.root, segment.log_key) not in self.store.objects:
            return None
        return frozenset(self._records_of(segment))

    def producers(self, segment: ArchivedSegment) -> dict[int, tuple[object, ...]]:
        """As `broker.producers_of`, from the snapshot at the segment's end."""
        assert self.root is not None
        parts = cut_parts(self.store.objects[below(self.root, segment.indexes_key)], segment)
        return producers_in(parts[PartName.PRODUCER_SNAPSHOT])


def producers_in(snapshot: bytes) -> dict[int, tuple[object, ...]]:
    """As `broker.producers_of`."""
    return {
        entry.producer_id: (
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in read_snapshot(snapshot)
    }


def records_in(batch: DecodedBatch) -> list[Appended]:
    """The data records of a batch."""
    if batch.is_control:
        return []
    return [
        Appended(found.offset, found.timestamp_ms, found.key, found.value, tuple(found.headers))
        for found in batch.records
    ]


def committed_in(directory: Path) -> dict[int, Appended]:
    """What a read_committed consumer of a partition directory sees, by offset."""
    visible: dict[int, Appended] = {}
    pending: dict[int, list[Appended]] = {}
    for path in sorted(directory.glob("*.log")):
        for batch in decode_segment(path.read_bytes()):
            if batch.is_control:
                ended = pending.pop(batch.producer_id, [])
                if batch.records and batch.marker_type == MARKER_COMMIT:
                    visible.update((record.offset, record) for record in ended)
            elif batch.is_transactional:
                pending.setdefault(batch.producer_id, []).extend(records_in(batch))
            else:
                visible.update((record.offset, record) for record in records_in(batch))
    return visible
