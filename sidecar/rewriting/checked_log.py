"""The joined `.log` of an output before anything replaces its sources: indexes built, then everything checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sidecar.errors import CorruptFile, SegmentChanged
from sidecar.logformat.batches import SegmentScanner
from sidecar.logformat.indexes.rebuild import BuiltIndexes, IndexBuilder
from sidecar.logformat.window import ReadAt
from sidecar.model import PartName
from sidecar.rewriting.job import CompactedOutput
from sidecar.rewriting.sources import CompactionSource
from sidecar.segment.log_check import ExpectedLog, check_log


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """`crc32c`: of the whole `.log`, as it was read back."""

    built: BuiltIndexes
    crc32c: int


def checked_log(read_at: ReadAt, size_bytes: int, output: CompactedOutput[CompactionSource], file: str) -> CheckedLog:
    """Build the indexes of what was joined to `file`, and check both as `verify --deep` does.

    Raises CorruptFile for a log that a broker or `verify --deep` would refuse. Raises SegmentChanged if its bytes,
    batches or records are not as many as the rewriting wrote.
    """
    if size_bytes != output.size_bytes:
        raise SegmentChanged(
            f"{file}: {size_bytes} bytes were joined, expected were {output.size_bytes}; compact again"
        )
    builder = IndexBuilder(output.base_offset)
    scanner = SegmentScanner(read_at, size_bytes, base_offset=output.base_offset, file=file, check_crc=False)
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
            f"{file}: {built.batch_count} batches with {records} records were joined, the rewriting wrote "
            f"{counts.written_batches} with {counts.kept_records}; nothing is replaced; compact again"
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
    return CheckedLog(built, checksum)
