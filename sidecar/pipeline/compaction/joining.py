"""The bytes of an output: the one place where parts and whole sources are joined."""

from __future__ import annotations

from collections.abc import Iterator

from sidecar.compaction.segments import pieces_of
from sidecar.pipeline.compaction.job import CompactedOutput, RewrittenPiece
from sidecar.pipeline.compaction.parts import Parts
from sidecar.pipeline.compaction.sources import CompactionSource


def joined(output: CompactedOutput[CompactionSource], parts: Parts) -> Iterator[memoryview]:
    """All bytes of the output in order; each piece is void when the next is asked for.

    Raises SegmentChanged if a source has changed, StoreError, PartitionError.
    """
    for piece in output.pieces:
        if isinstance(piece, RewrittenPiece):
            yield from parts.pieces(piece.number, piece.size_bytes)
        else:
            with piece.opened() as segment:
                yield from pieces_of(segment)


def forget_parts(output: CompactedOutput[CompactionSource], parts: Parts) -> None:
    """Delete the parts of an output that has been joined. Raises StoreError."""
    for piece in output.pieces:
        if isinstance(piece, RewrittenPiece):
            parts.forget(piece.number)
