"""A good neighbour of the broker's page cache: what only we have brought in is given back, what it serves from stays.

And what we write leaves it early.
"""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from sidecar.errors import PartitionError
from sidecar.logformat.files import open_regular

_PAGE_BYTES = mmap.PAGESIZE
_RESIDENT = 1
RANGES_MAX = 4096
"""Of a file whose pages come and go singly only the longest ranges are given back: memory stays flat."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_LIBC.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_SYNC_FILE_RANGE_WRITE = 2


def resident_pages(descriptor: int, size_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which pages of a file are in the page cache, without bringing any in: one bool per page. Linux.

    Since Linux 5.2 a process that neither owns the file nor may write it sees all pages as present: then none are dropped.
    Raises OSError, and ValueError for a file that is shorter.
    """
    found = np.zeros((size_bytes + _PAGE_BYTES - 1) // _PAGE_BYTES, dtype=np.uint8)
    if size_bytes:
        # Not one byte is read: no page of it can count as ours.
        with mmap.mmap(descriptor, size_bytes, prot=mmap.PROT_READ) as mapped:
            address = np.frombuffer(mapped, dtype=np.uint8).ctypes.data
            if _LIBC.mincore(address, size_bytes, found.ctypes.data) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return (found & _RESIDENT).astype(np.bool_)


CacheFootprint: TypeAlias = tuple[tuple[int, int], ...]
"""The byte ranges of a file that were not in the page cache before we read it."""
NO_FOOTPRINT: Final[CacheFootprint] = ()
"""Nothing is given back."""


def footprint_before(descriptor: int, size_bytes: int) -> CacheFootprint:
    """To be asked before the first read. A kernel that does not tell costs no more than the courtesy."""
    try:
        resident = resident_pages(descriptor, size_bytes)
    except (OSError, ValueError):
        return NO_FOOTPRINT
    edges = np.flatnonzero(np.diff(np.concatenate([[True], resident, [True]]).astype(np.int8)))
    starts, ends = edges[0::2] * _PAGE_BYTES, edges[1::2] * _PAGE_BYTES
    if len(starts) > RANGES_MAX:
        longest = np.sort(np.argsort(ends - starts)[-RANGES_MAX:])
        starts, ends = starts[longest], ends[longest]
    return tuple(zip(starts.tolist(), ends.tolist(), strict=True))


@contextmanager
def spared(path: Path, size_bytes: int) -> Iterator[None]:
    """Give back afterwards what of a file was not in the page cache before. It is not open meanwhile."""
    footprint = NO_FOOTPRINT
    with suppress(OSError), os.fdopen(open_regular(path), "rb") as file:
        footprint = footprint_before(file.fileno(), size_bytes)
    try:
        yield
    finally:
        with suppress(OSError, PartitionError), os.fdopen(open_regular(path), "rb") as file:
            give_back(file.fileno(), footprint)


def give_back(descriptor: int, footprint: CacheFootprint) -> None:
    """Let the kernel drop what we alone brought in. Raises PartitionError for a descriptor that is no file's."""
    try:
        for start, end in footprint:
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        raise PartitionError(f"the page cache cannot be advised: {error.strerror}") from error


def begin_write_out(descriptor: int, position: int, size_bytes: int) -> None:
    """Let the kernel begin to write these bytes to the disk: a later `fsync` waits for less, and it reports all errors."""
    _LIBC.sync_file_range(descriptor, position, size_bytes, _SYNC_FILE_RANGE_WRITE)
