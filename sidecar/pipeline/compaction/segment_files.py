"""The files of one output segment: its batches joined or copied, checked, and indexes built from them."""

from __future__ import annotations

from pathlib import Path

from sidecar.logformat.lazy_file import LazyFile
from sidecar.logformat.names import Suffix, file_name
from sidecar.pipeline.compaction.checked_log import CheckedLog, checked_log
from sidecar.pipeline.compaction.job import CompactedOutput
from sidecar.pipeline.compaction.joining import forget_parts, joined
from sidecar.pipeline.compaction.log_file import LogFile
from sidecar.pipeline.compaction.output_files import write_file
from sidecar.pipeline.compaction.parts import Parts


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
