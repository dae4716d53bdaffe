"""The walk over batch headers that reads the file by itself, so that a small window costs no more than a large one.

Each read is processed while it is still in the processor's cache. From Python a window of that size would cost as much in
calls as in reading.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from producer_state.facts import CONTROL
from sidecar.logformat.columns import Stop
from sidecar.logformat.compiling import native
from sidecar.logformat.headers import BATCH_HEADER, MAGIC_POSITION
from sidecar.logformat.kernels import walk_batches
from sidecar.logformat.loads import Word, address_of, load_be_i16, load_i8

_MORE_BYTES, _BATCH_TOO_WIDE = int(Stop.MORE_BYTES), int(Stop.BATCH_TOO_WIDE)
_HEADER_BYTES, _ATTRIBUTES = BATCH_HEADER.size_bytes, BATCH_HEADER.offset_of("attributes")
_MAGIC, _CONTROL = MAGIC_POSITION, int(CONTROL)
_FIRST_READ_BYTES = 256
"""Without checksums, where nothing is buffered: behind a batch whose header was enough, the next one's may be as well."""

# The C library's own; numba finds both among the symbols of the process. Its size_t and off_t have 64 bits on every
# platform that pyspark runs on.
_pread: Any = types.ExternalFunction("pread", types.int64(types.int32, types.int64, types.uint64, types.int64))
_memmove: Any = types.ExternalFunction("memmove", types.int64(types.int64, types.int64, types.uint64))


@native
def _slid(descriptor: Word, file_position: Word, buffer: Any, cursor: Word, filled: Word, wanted: Word) -> Word:
    """Move the buffered bytes from `cursor` on to the buffer's beginning and read behind them: how many of `wanted` are
    buffered then.

    Fewer: the file ends there or cannot be read, which Python finds out again and puts into words.
    """
    origin = address_of(buffer)
    held = max(np.int64(filled) - np.int64(cursor), np.int64(0))
    _memmove(origin, origin + np.int64(cursor), np.uint64(held))
    while held < np.int64(wanted):
        position = np.int64(file_position) + held
        count = _pread(np.int32(descriptor), origin + held, np.uint64(np.int64(wanted) - held), position)
        if count <= 0:
            break
        held += count
    return held


@native
def _header_is_enough(at: Word) -> Word:
    """Whether the batch whose header is at address `at` has nothing behind it that the walk reads."""
    if load_i8(at + np.int64(_MAGIC)) != np.int8(2):
        return False
    return np.int64(load_be_i16(at + np.int64(_ATTRIBUTES))) & np.int64(_CONTROL) == np.int64(0)


@native
def walk_file(
    descriptor: Word,
    start_position: Word,
    end_position: Word,
    buffer: Any,
    cursor: Word,
    filled: Word,
    position: Word,
    wide: Any,
    words: Any,
    halves: Any,
    bytes_: Any,
    row: Word,
    smallest_offset: Word,
    largest_offset: Word,
    check_crc: Word,
    largest_held_bytes: Word,
    wide_batch_file_crc: Word,
    file_crc: Word,
) -> tuple[Word, Word, Word, Word, Word, Word, Word, Word]:
    """`walk_batches` over a file whose bytes from `position` on are `buffer[cursor:filled]`, reading on where it needs more.

    Args:
        start_position: where in the file of `descriptor` position 0 lies.
        end_position: where the walk ends.
    Without `check_crc` only the headers of batches are read that are larger than the buffer.

    Returns: what `walk_batches` returns, then how far the buffer is filled, and the file's position at the returned one.
        A `Stop.MORE_BYTES` is one that this function could not meet.
    """
    at, filled, position = np.int64(cursor), np.int64(filled), np.int64(position)
    row, smallest, known_crc = np.int64(row), np.int64(smallest_offset), np.int64(wide_batch_file_crc)
    most_held = np.int64(largest_held_bytes)
    while True:
        begin = at
        at, row, smallest, stop, detail, file_crc = walk_batches(
            buffer,
            begin,
            max(filled, begin),
            position,
            wide,
            words,
            halves,
            bytes_,
            row,
            smallest,
            largest_offset,
            check_crc,
            most_held,
            known_crc,
            file_crc,
        )
        known_crc, most_held = np.int64(-1), np.int64(largest_held_bytes)
        position += at - begin
        remaining = np.int64(end_position) - position
        if stop == np.int64(_BATCH_TOO_WIDE) and detail <= np.int64(largest_held_bytes):
            stop = np.int64(_MORE_BYTES)  # too wide for the buffer only
        if stop == np.int64(_MORE_BYTES) and not check_crc and detail > buffer.shape[0] and detail <= remaining:
            if filled - at < np.int64(_HEADER_BYTES):
                detail = np.int64(_HEADER_BYTES)
            elif _header_is_enough(address_of(buffer) + at):
                # Passed over like one whose checksum is known: of such a batch the walk asks for the header alone.
                known_crc, most_held = np.int64(0), np.int64(buffer.shape[0])
                continue
        if stop != np.int64(_MORE_BYTES) or detail > remaining or detail > buffer.shape[0]:
            break
        wanted = min(np.int64(buffer.shape[0]), remaining)
        if filled <= at and not check_crc:
            wanted = min(wanted, np.int64(_FIRST_READ_BYTES))
        filled = np.int64(_slid(descriptor, np.int64(start_position) + position, buffer, at, filled, wanted))
        at = np.int64(0)
        if filled < wanted:
            break
    return at, row, smallest, stop, detail, file_crc, filled, position
