"""The files of one output segment: its batches joined or copied, checked, and indexes built from them.

The one place where parts and whole sources are joined.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from sidecar.compaction.segments import pieces_of
from sidecar.errors import CorruptFile, SegmentChanged
from sidecar.logformat.batches import HEADERS_WINDOW_BYTES, SegmentScanner
from sidecar.logformat.files import LazyFile
from sidecar.logformat.indexes.rebuild import BuiltIndexes, IndexBuilder
from sidecar.logformat.names import Suffix, file_name
from sidecar.logformat.window import ReadAt
from sidecar.model import PartName
from sidecar.rewriting.job import CompactedOutput, CompactionSource, LogFile, RewrittenPiece
from sidecar.rewriting.work_files import LocalParts, Parts, write_file
from sidecar.segment.log_check import ExpectedLog, check_log


def joined(output: CompactedOutput[CompactionSource], parts: Parts) -> Iterator[memoryview]:
    """All bytes of the output in order; each piece is void when the next is asked for.

    Raises SegmentChanged if a source has changed, StoreError, PartitionError.
    """
    for piece in output.pieces:
        yield from _bytes_of(piece, parts)


def _bytes_of(piece: CompactionSource | RewrittenPiece, parts: Parts) -> Iterator[memoryview]:
    if isinstance(piece, RewrittenPiece):
        yield from parts.pieces(piece.number, piece.size_bytes)
    else:
        with piece.opened() as segment:
            yield from pieces_of(segment)


def write_segment(directory: Path, parts: LocalParts, output: CompactedOutput[LogFile]) -> None:
    """`.log`, `.index`, `.timeindex`, and `.txnindex` if an aborted transaction is left; all with the last source's time.

    The parts are gone afterwards. Raises StagingFull, SegmentChanged, CorruptFile.
    """
    log = directory / file_name(output.base_offset, Suffix.LOG)
    write_log(log, parts, output)
    write_indexes(directory, output.base_offset, checked_file(log, output), output.sources[-1].mtime_ns)


def write_indexes(directory: Path, base_offset: int, built: BuiltIndexes, mtime_ns: int) -> None:
    """`.index`, `.timeindex`, and `.txnindex` if it has an entry. Raises StagingFull."""
    contents = {
        Suffix.OFFSET_INDEX: built.offset_index,
        Suffix.TIME_INDEX: built.time_index,
        Suffix.TRANSACTION_INDEX: built.transaction_index,
    }
    for suffix, content in contents.items():
        # Without an entry a broker has no transaction index at all; the others it has in any case.
        if content or suffix is not Suffix.TRANSACTION_INDEX:
            write_file(directory / file_name(base_offset, suffix), [content], mtime_ns=mtime_ns)


def write_log(log: Path, parts: LocalParts, output: CompactedOutput[LogFile]) -> None:
    """The `.log` alone, with the last source's time. Raises StagingFull, SegmentChanged.

    Each part is deleted once it is joined: the next bytes are written to the memory of its pages.
    """

    def pieces() -> Iterator[memoryview]:
        for piece in output.pieces:
            yield from _bytes_of(piece, parts)
            if isinstance(piece, RewrittenPiece):
                parts.forget(piece.number)

    write_file(log, pieces(), mtime_ns=output.sources[-1].mtime_ns)


def checked_file(log: Path, output: CompactedOutput[LogFile]) -> BuiltIndexes:
    """`checked_log` of a `.log` that was written. Raises CorruptFile, SegmentChanged."""
    with closing(LazyFile(log)) as source:
        return checked_log(source, source.size_bytes, output, str(log))


def checked_log(read_at: ReadAt, size_bytes: int, output: CompactedOutput[CompactionSource], file: str) -> BuiltIndexes:
    """Build the indexes of what was joined to `file`, and check both as `verify --deep` does.

    Raises CorruptFile for a log that a broker or `verify --deep` would refuse. Raises SegmentChanged if its bytes,
    batches or records are not as many as the rewriting wrote, or its bytes are others.
    """
    if size_bytes != output.size_bytes:
        raise SegmentChanged(f"{file}: {size_bytes} bytes were joined, expected {output.size_bytes}. Compact again")
    builder = IndexBuilder(output.base_offset)
    scanner = SegmentScanner(
        read_at,
        size_bytes,
        base_offset=output.base_offset,
        file=file,
        check_crc=False,
        window_bytes=HEADERS_WINDOW_BYTES,
    )
    records, wrapped = 0, False
    try:
        for columns in scanner:
            builder.add(columns)
            records += int(columns.record_count.sum(dtype=np.int64))
            wrapped = wrapped or bool((columns.record_count < 0).any())
    except CorruptFile as error:
        raise error.within(file) from error
    scanner.require_exact()
    built, counts = builder.finish(output.transactions), output.counts
    # Only decompression shows how many records a legacy wrapper holds.
    if built.batch_count != counts.written_batches or not (wrapped or records == counts.kept_records):
        raise SegmentChanged(
            f"{file}: {built.batch_count} batches with {records} records were joined, the rewrite wrote "
            f"{counts.written_batches} with {counts.kept_records}. Nothing was replaced: compact again"
        )
    indexes = {
        PartName.OFFSET_INDEX: built.offset_index,
        PartName.TIME_INDEX: built.time_index,
        PartName.TRANSACTION_INDEX: built.transaction_index,
    }
    expected = ExpectedLog.of_built(output.base_offset, output.end_offset, built)
    checksum, problem = check_log(read_at, size_bytes, expected, indexes, file=file, indexes_file=file)
    if problem is not None:
        raise problem
    if checksum != output.crc32c:
        raise SegmentChanged(
            f"{file}: CRC-32C {checksum:08x} of what was joined, expected {output.crc32c:08x} of what was read and "
            "rewritten. Nothing was replaced: compact again"
        )
    return built
