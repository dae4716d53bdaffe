"""The native stages over reference segments in memory, and what they give held against the reference."""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.compaction.compact import compact_partition
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.outputs import CompactedSegment
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.segments import SegmentInput
from sidecar.logformat.batches import scan_bytes
from tests.compaction.partitions import Partition
from tests.compaction.reference.cleaning import clean
from tests.compaction.reference.values import ReferenceSegment

DAY_MS = 86_400_000


HASH_KEY = bytes(range(16))


def as_input(segment: ReferenceSegment, positions: Sequence[int] = ()) -> SegmentInput:
    data = memoryview(segment.log)

    def read_at(position: int, buffer: memoryview) -> int:
        piece = data[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    return SegmentInput(
        segment.base_offset,
        segment.end_offset,
        len(segment.log),
        read_at,
        file=f"{segment.base_offset:020d}.log",
        last_modified_ms=segment.last_modified_ms,
        positions=positions,
    )


def boundaries(log: bytes, every: int = 3) -> list[int]:
    return [int(position) for columns in scan_bytes(log) for position in columns.position[::every]][1:]


def compact(
    segments: Sequence[ReferenceSegment],
    rules: CompactionRules,
    partition: Partition | None = None,
    *,
    last_batches: LastBatches | None = None,
    **options: int,
) -> tuple[list[CompactedSegment], list[bytes]]:
    """The engine's results and the logs of its outputs; unchanged ones are those of their source."""
    logs: dict[int, bytearray] = {}
    results = compact_partition(
        [as_input(segment, boundaries(segment.log)) for segment in segments],
        rules,
        write=lambda number, batches: logs.setdefault(number, bytearray()).extend(batches),
        hash_key=HASH_KEY,
        aborted=() if partition is None else partition.aborted,
        last_batches=last_batches,
        **options,
    )
    found = []
    for number, result in enumerate(results):
        written = bytes(logs.get(number, b""))
        if result.unchanged:
            source = segments[result.first_segment].log
            assert written in (b"", source)
            written = source
        assert result.size_bytes == len(written)
        found.append(written)
    return results, found


def compare(partition: Partition, rules: CompactionRules, *, active: bool = True, **options: int) -> list[bytes]:
    """Compact the rolled segments by both and compare; returns the outputs."""
    rolled = partition.segments[:-1] if active else partition.segments
    if not rolled:
        return []
    producers = partition.last_batches(rules.now_ms)
    results, logs = compact(rolled, rules, partition, last_batches=producers, **options)
    expected = clean(
        rolled,
        rules,
        groups=[result.end_segment - result.first_segment for result in results],
        last_batches=producers,
        aborted=partition.aborted,
    )
    for group, result, log in zip(expected.groups, results, logs, strict=True):
        assert log == group.log, (result, [len(log), len(group.log)])
        assert result.transactions == group.transactions
        if result.indexes is not None:
            assert result.indexes.size_bytes == len(log)
    return logs
