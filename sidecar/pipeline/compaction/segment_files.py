"""The files of one output segment: its batches joined or copied, and indexes built from them."""

from __future__ import annotations

from pathlib import Path

from sidecar.compaction.segments import Split, chunks
from sidecar.logformat.lazy_file import LazyFile
from sidecar.logformat.names import Suffix, file_name
from sidecar.logformat.rebuild import BuiltIndexes, IndexBuilder
from sidecar.pipeline.compaction.job import CompactedOutput
from sidecar.pipeline.compaction.log_file import LogFile
from sidecar.pipeline.compaction.output_files import bytes_of, write_file
from sidecar.pipeline.compaction.parts import Parts


def write_segment(directory: Path, parts: Parts, output: CompactedOutput[LogFile]) -> None:
    """`.log`, `.index`, `.timeindex`, and `.txnindex` if an aborted transaction is left; all with the last source's time.

    The parts are gone afterwards. Raises StagingFull, SegmentChanged, CorruptFile.
    """
    last = output.sources[-1]
    log = directory / file_name(output.base_offset, Suffix.LOG)
    write_log(log, parts, output)
    built = indexes_of(log, output)
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
    """The `.log` alone, with the last source's time. The parts are gone afterwards. Raises StagingFull, SegmentChanged."""
    last = output.sources[-1]
    if output.unchanged:
        write_file(log, bytes_of(last.path, last.size_bytes), mtime_ns=last.mtime_ns)
        return
    pieces = (piece for number in output.parts for piece in parts.pieces(number))
    write_file(log, pieces, mtime_ns=last.mtime_ns)
    for number in output.parts:
        parts.forget(number)


def indexes_of(log: Path, output: CompactedOutput[LogFile]) -> BuiltIndexes:
    """What is to stand in the indexes of a `.log` that was written. Reads it again, every checksum. Raises CorruptFile."""
    builder = IndexBuilder(output.base_offset)
    source = LazyFile(log)
    written = LogFile(log, output.base_offset, output.end_offset, source.size_bytes, output.sources[-1].mtime_ns)
    try:
        for chunk in chunks(written.as_input(source.read_at), Split(0, 0, 0, source.size_bytes)):
            builder.add(chunk.columns())
    finally:
        source.close()
    return builder.finish(output.transactions)
