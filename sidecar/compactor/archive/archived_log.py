"""Archived segments as what is compacted: values that are read out of the store in any process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from sidecar.archive.bundle import log_size_bytes
from sidecar.archive.keys import below
from sidecar.compaction.segments import SegmentInput
from sidecar.host import process_store
from sidecar.logformat.window import ReadAt
from sidecar.model import ArchivedSegment, ObjectKey
from sidecar.ports import ObjectStore
from sidecar.rewriting.job import input_of
from sidecar.rewriting.work_files import WorkFile, cannot_be_written, named_when_whole, nameless_file
from sidecar.segment.archived_objects import reader
from sidecar.snapshots.tasks import LocalSegment
from sidecar.store_settings import StoreSettings

LAST_MODIFIED: Final = "last_modified_ms"
"""Strategy parameter of compacted segments: the file time of the newest source, as a cleaner passes it on."""

_NS_PER_MS = 1_000_000
_TIME_DIGITS_MAX = 18
"""Such times fit into 64 bits."""


class Copy(Enum):
    """Of an object, in a file. KEPT: once fetched it stays in the work directory. SCANNED: as long as it is scanned."""

    KEPT = "kept"
    SCANNED = "scanned"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """A `CompactionSource`: the `.log` object of a live segment.

    `work_dir`: a directory for work files that all tasks see; None: each task has its own temporary one.
    """

    store: StoreSettings
    root: str
    segment: ArchivedSegment
    work_dir: Path | None = None
    copy: Copy = Copy.NONE

    @property
    def name(self) -> str:
        return self.key

    @property
    def key(self) -> ObjectKey:
        return below(self.root, self.segment.log_key)

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @property
    def end_offset(self) -> int:
        return self.segment.end_offset

    @property
    def size_bytes(self) -> int:
        """Of the `.log` object, as committed."""
        return log_size_bytes(self.segment)

    @property
    def last_modified_ms(self) -> int:
        """The time of the broker's file, or of the newest one of which this segment was compacted; -1 if unknown."""
        if self.segment.source_mtime_ns is not None:
            return self.segment.source_mtime_ns // _NS_PER_MS
        text = self.segment.strategy_parameters.get(LAST_MODIFIED, "")
        return int(text) if text.isdecimal() and len(text) <= _TIME_DIGITS_MAX else -1

    @contextmanager
    def opened(self) -> Iterator[SegmentInput]:
        """See CompactionSource. From the copy, if there is one. Reading raises StoreError."""
        with self._copy() as read_at:
            yield input_of(self, read_at or reader(process_store.store_of(self.store), self.key, self.size_bytes))

    @contextmanager
    def fetched(self) -> Iterator[ReadAt]:
        """The object for what reads it twice: as a file of this machine, if `copy` allows it.

        Raises StagingFull, and reading StoreError.
        """
        store, copy = process_store.store_of(self.store), self._copy_path
        with self._copy() as read_at:
            if read_at is not None or self.copy is Copy.NONE:
                yield read_at or reader(store, self.key, self.size_bytes)
                return
        place = self.work_dir or Path(tempfile.gettempdir())
        with (
            nameless_file(place) if copy is None else named_when_whole(copy) as file,
            fetched_into(file, store, self.key, self.size_bytes) as read_at,
        ):
            yield read_at

    def forget_copy(self) -> None:
        """Take the copy away. What cannot be removed now is with the directory."""
        if self._copy_path is not None:
            with suppress(OSError):
                self._copy_path.unlink(missing_ok=True)

    @property
    def _copy_path(self) -> Path | None:
        if self.work_dir is None or self.copy is not Copy.KEPT:
            return None
        return self.work_dir / f"{self.base_offset:020d}-{self.segment.segment_id}.copy"

    @contextmanager
    def _copy(self) -> Iterator[ReadAt | None]:
        copy = self._copy_path
        if copy is None or not copy.exists():
            yield None
            return
        with LocalSegment(str(copy), self.size_bytes).opened() as read_at:
            yield read_at


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
