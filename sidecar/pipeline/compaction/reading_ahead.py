"""Headers of several segments at once: what is made of them goes segment by segment, reading them need not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Final

from sidecar.logformat.batches import BatchColumns, SegmentScanner, scan_file
from sidecar.pipeline.compaction.log_file import LogFile

Scan = tuple[LogFile, SegmentScanner, Iterable[BatchColumns]]
"""A segment, what will know how it ended, and its headers."""

_THREADS: Final = 2
_WORTH_BYTES: Final = 64 * 1024 * 1024


def read_ahead(logs: Sequence[LogFile]) -> Iterator[Scan]:
    """The scans of the segments in order; of large logs the first headers of the next segments are read meanwhile.

    Memory: a window and a chunk of headers for each thread and for the reader. Errors are raised where the scan they belong to is
    iterated.
    """
    if sum(log.size_bytes for log in logs) < _WORTH_BYTES:
        for log in logs:
            scanner = _scanner(log)
            yield log, scanner, scanner
        return
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="survey") as pool:
        under_way: deque[tuple[SegmentScanner, Iterator[BatchColumns], Future[BatchColumns | None]]] = deque()
        for number, log in enumerate(logs):
            for following in logs[number + len(under_way) : number + _THREADS + 1]:
                scanner = _scanner(following)
                batches = iter(scanner)
                under_way.append((scanner, batches, pool.submit(next, batches, None)))
            scanner, batches, first = under_way.popleft()
            yield log, scanner, chain(_first(first), batches)


def _first(future: Future[BatchColumns | None]) -> Iterator[BatchColumns]:
    chunk = future.result()
    if chunk is not None:
        yield chunk


def _scanner(log: LogFile) -> SegmentScanner:
    # The stages check checksums of what they read; only the active segment is never read again.
    return scan_file(log.path, base_offset=log.base_offset, check_crc=log.growing, file=str(log.path))
