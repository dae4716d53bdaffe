"""Reads a symbolic segment: in the place of `sidecar.segment.reading.read_segment`, with what that finds out but for indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from crc32c import crc32c

from producer_state.table import ProducerTable
from sidecar.errors import CorruptFile, SegmentChanged
from sidecar.logformat.indexes.rebuild import BuiltIndexes
from sidecar.logformat.leader_epochs import complete, epochs_of
from sidecar.segment.added_markers import stretches
from sidecar.segment.reading import ChosenIndexes, ReadingTask, SegmentReading
from tests.simulation.batches import BATCH_BYTES, Batch, apply, decode, encode
from tests.simulation.disk import SimDisk


def after_batches(table: ProducerTable, batches: Iterable[Batch], end_offset: int) -> ProducerTable:
    """The producers after these batches."""
    batches = [batch for batch in batches if batch.producer_id >= 0]
    if not batches:
        return replace(table, end_offset=end_offset)
    producers = {entry.producer_id: entry for entry in table.entries()}
    begun = dict(producers)
    for batch in batches:
        apply(producers, batch)
    if producers == begun:
        return replace(table, end_offset=end_offset)
    return ProducerTable.from_entries(end_offset, (entry for _, entry in sorted(producers.items())))


def built_from(batches: list[Batch]) -> BuiltIndexes:
    """What the batches of a segment say. It has no indexes: the core does not look into them."""
    return BuiltIndexes(
        offset_index=b"",
        time_index=b"",
        transaction_index=b"",
        leader_epochs=epochs_of((batch.leader_epoch, batch.base_offset) for batch in batches),
        max_timestamp_ms=max((batch.timestamp_ms for batch in batches), default=-1),
        last_offset=batches[-1].last_offset if batches else None,
        batch_count=len(batches),
        size_bytes=len(batches) * BATCH_BYTES,
        first_batch_crc=batches[0].content if batches else None,
        last_batch_crc=batches[-1].content if batches else None,
        first_leader_epoch=batches[0].leader_epoch if batches else None,
    )


@dataclass(frozen=True, slots=True)
class SimReader:
    """Implements `ReadSegment` for the files of a disk. `paused`: called in the middle of a file."""

    disk: SimDisk
    paused: Callable[[str], None]

    def __call__(self, task: ReadingTask, descriptor: int, taken: Callable[[int], None]) -> SegmentReading:
        """See `read_segment`."""
        segment = task.segment
        assert task.log_start_offset >= 0
        assert task.index_interval_bytes
        taken(segment.size_bytes)
        file = self.disk.opened[descriptor][1]
        begin, count = segment.start_position // BATCH_BYTES, segment.size_bytes // BATCH_BYTES
        batches = file.batches[begin : begin + count // 2]
        self.paused("read segment")
        batches += file.batches[begin + count // 2 : begin + count]
        if len(batches) < count:
            raise SegmentChanged(f"{segment}: has become shorter")
        log = encode(batches)
        if task.added:
            parts = stretches(task.added, len(log))
            log = b"".join(part if isinstance(part, bytes) else log[part.start : part.stop] for part in parts)
            batches = list(decode(log))
        expected_offset, looks_cleaned = segment.base_offset, bool(task.added)
        for batch in batches:
            if batch.base_offset < expected_offset or batch.end_offset > segment.end_offset:
                raise CorruptFile(f"{batch} at {expected_offset} of {segment}", file=segment.log_name)
            looks_cleaned |= batch.base_offset > expected_offset
            expected_offset = batch.end_offset
        tail = (expected_offset, segment.end_offset) if expected_offset < segment.end_offset else None
        built = built_from(batches)
        return SegmentReading(
            log_crc32c=crc32c(log),
            built=built,
            indexes=ChosenIndexes(b"", b"", None, ()),
            leader_epochs=complete(task.checkpoint, built.epochs_from_base, segment.base_offset),
            state=after_batches(task.state_at_base, batches, segment.end_offset),
            looks_cleaned=looks_cleaned or tail is not None,
            missing_tail=None if looks_cleaned else tail,
        )
