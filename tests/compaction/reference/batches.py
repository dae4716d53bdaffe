"""A segment as plain batches."""

from __future__ import annotations

from collections.abc import Iterator

from sidecar.compaction.decoded import DecodedBatch, decode_batch
from sidecar.logformat.batches import scan_bytes


def decode_segment(log: bytes, base_offset: int | None = None) -> Iterator[DecodedBatch]:
    """All batches of a segment. Raises CorruptFile, also for bytes behind the last batch."""
    scan = scan_bytes(log, base_offset=base_offset)
    for columns in scan:
        for row in range(len(columns)):
            position = int(columns.position[row])
            yield decode_batch(log[position : position + int(columns.size_bytes[row])], columns, row)
    scan.require_exact()
