"""The files of one output segment: its batches joined or copied, checked, and indexes built from them.

The one place where parts and whole sources are joined.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sidecar.compaction.segments import pieces_of
from sidecar.logformat.lazy_file import LazyFile
from sidecar.logformat.names import Suffix, file_name
from sidecar.rewriting.checked_log import CheckedLog, checked_log
from sidecar.rewriting.job import CompactedOutput, RewrittenPiece
from sidecar.rewriting.local_source import LogFile
from sidecar.rewriting.output_files import write_file
from sidecar.rewriting.parts import Parts
from sidecar.rewriting.sources import CompactionSource


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


def write_segment(directory: Path, parts: Parts, output: CompactedOutput[LogFile]) -> None:
    """`.log`, `.index`, `.timeindex`, and `.txnindex` if an aborted transaction is left; all with the last source's time.

    The parts are gone afterwards. Raises StagingFull, SegmentChanged, CorruptFile.
    """
    last = output.sources[-1]
    log = directory / file_name(output.base_offset, Suffix.LOG)
    write_log(log, parts, output)
    built = checked_file(log, output).built
    contents = {
        Suffix.OFFSET_INDEX: built.offset_index,
        Suffix.TIME_INDEX: built.time_index,
        Suffix.TRANSACTION_INDEX: built.transaction_index,
    }
    for suffix, content in contents.items():
        # Without an entry a broker has no transaction index at all; the others it has in any case.
        if content or suffix is not Suffix.TRANSACTION_INDEX:
            write_file(directory / file_name(output.base_offset, suffix), [content], mtime_ns=last.mtime_ns)


def write_log(log: Path, parts: Parts, output: CompactedOutput[LogFile]) -> None:
    """The `.log` alone, with the last source's time. Its parts are deleted afterwards. Raises StagingFull, SegmentChanged."""
    write_file(log, joined(output, parts), mtime_ns=output.sources[-1].mtime_ns)
    forget_parts(output, parts)


def checked_file(log: Path, output: CompactedOutput[LogFile]) -> CheckedLog:
    """`checked_log` of a `.log` that was written. Raises CorruptFile, SegmentChanged."""
    source = LazyFile(log)
    try:
        return checked_log(source.read_at, source.size_bytes, output, str(log))
    finally:
        source.close()
