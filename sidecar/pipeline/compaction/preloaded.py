"""Imported by the process from which Spark forks its workers: each kernel is loaded once, not once per worker."""

from __future__ import annotations

from itertools import chain

from sidecar.compaction.compact import compact_partition
from sidecar.compaction.rules import CompactionRules, Strategy
from sidecar.compaction.segments import SegmentInput
from sidecar.logformat.building import build_batch
from sidecar.logformat.record import Record
from sidecar.pipeline.compaction import stages

__all__ = ["stages", "warm_up"]


def warm_up() -> None:
    """Call every kernel of a compaction once."""
    records = [Record(offset, 0, b"k", b"%d" % offset) for offset in range(3)]
    log = memoryview(b"".join(chain((build_batch(records),), (build_batch([Record(3, 0, b"k", b"")]),))))

    def read_at(position: int, buffer: memoryview) -> int:
        piece = log[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    for strategy in Strategy:
        rules = CompactionRules(0, strategy=strategy, header="v")
        segment = SegmentInput(0, 4, len(log), read_at)
        compact_partition([segment], rules, write=lambda _number, _batches: None, hash_key=bytes(16))


warm_up()
