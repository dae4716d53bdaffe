"""An object on its way into a file of this machine: fetched ahead by threads, and readable as far as it has come."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

from sidecar.logformat.window import ReadAt
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore
from sidecar.rewriting.work_files import WorkFile, cannot_be_written

RANGE_BYTES: Final = 8 * 1024 * 1024
"""Of one request. As many as there are threads are in memory."""
_THREADS: Final = 4


@contextmanager
def fetched_into(file: WorkFile, store: ObjectStore, key: ObjectKey, size_bytes: int) -> Iterator[ReadAt]:
    """Fill the empty `file` with an object, each byte requested once. Reading waits for the bytes.

    When the context ends without an error, the file has all of them; an object that is too short has fewer.
    Reading raises StoreError, StagingFull.
    """
    begins = range(0, size_bytes, RANGE_BYTES)
    if len(begins) <= 1:
        if size_bytes:
            _fetch(file, store, key, size_bytes, 0)
        yield partial(_read_at, file, ())
        return
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="object-copy")
    try:
        ranges = [pool.submit(_fetch, file, store, key, size_bytes, begin) for begin in begins]
        yield partial(_read_at, file, ranges)
        for found in ranges:
            found.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _fetch(file: WorkFile, store: ObjectStore, key: ObjectKey, size_bytes: int, begin: int) -> None:
    file.write_at(begin, store.read(key, begin, min(RANGE_BYTES, size_bytes - begin)))


def _read_at(file: WorkFile, ranges: Sequence[Future[None]], position: int, buffer: memoryview) -> int:
    """A `ReadAt`. Ends with the range, so that nothing is read that has not come."""
    if ranges:
        number = position // RANGE_BYTES
        if number >= len(ranges):
            return 0
        ranges[number].result()
        buffer = buffer[: (number + 1) * RANGE_BYTES - position]
    with cannot_be_written(file.place):  # a disk that fails may refuse to read, too
        return os.preadv(file.file.fileno(), [buffer], position)
