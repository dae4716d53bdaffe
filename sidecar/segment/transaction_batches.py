"""Is a batch of a transaction left? What a cleaner or a compaction has taken all of needs no end any more."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from producer_state.facts import CONTROL, TRANSACTIONAL
from sidecar.logformat.batches import HEADERS_WINDOW_BYTES, SegmentScanner, scan_file
from sidecar.model import PartitionFiles


def batches_left(files: PartitionFiles, first_offsets: Mapping[int, int], end_offset: int) -> set[int]:
    """`batches_in` of the rolled segments of the local log."""
    logs = ((segment.base_offset, segment.end_offset, segment.log.path) for segment in files.segments)
    return batches_in(map(header_scan, logs), first_offsets, end_offset)


HeaderScan: TypeAlias = tuple[int, int, Callable[[], SegmentScanner]]
"""A segment's base and end offset, and its headers, read only if they are needed. May raise SegmentChanged."""


def header_scan(log: tuple[int, int, Path]) -> HeaderScan:
    """Of a `.log` file with these base and end offsets."""
    base_offset, end_offset, path = log
    scan = partial(scan_file, path, base_offset=base_offset, check_crc=False, window_bytes=HEADERS_WINDOW_BYTES)
    return base_offset, end_offset, scan


def batches_in(scans: Iterable[HeaderScan], first_offsets: Mapping[int, int], end_offset: int) -> set[int]:
    """Producers with a batch of their transaction below an offset.

    `first_offsets`: of the transactions, by producer id. An empty batch counts. Raises SegmentChanged, CorruptFile.
    """
    found: set[int] = set()
    from_offset = min(first_offsets.values(), default=end_offset)
    for base_offset, log_end_offset, scan in scans:
        if log_end_offset <= from_offset or base_offset >= end_offset or len(found) == len(first_offsets):
            continue
        for columns in (scanner := scan()):
            is_data = columns.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL
            rows = np.flatnonzero(is_data & (columns.base_offset < end_offset))
            for row in rows[np.isin(columns.producer_id[rows], list(first_offsets))].tolist():
                producer_id = int(columns.producer_id[row])
                if columns.base_offset[row] >= first_offsets[producer_id]:
                    found.add(producer_id)
            if columns.last_offset[-1] >= end_offset or len(found) == len(first_offsets):
                break
        else:
            scanner.require_exact()  # Of what lies behind damage nothing is known.
    return found
