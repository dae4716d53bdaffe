"""The first record of a control batch, read natively."""

from __future__ import annotations

import numpy as np

from producer_state.compiling import native
from producer_state.facts import MALFORMED_MARKER, MARKER_ABORT, MARKER_COMMIT
from sidecar.logformat.loads import Word, load_be_i16, load_be_i32, load_u8

UNKNOWN_MARKER = 127
"""`marker_type` of a control record whose type does not fit the column (types 0 to 126 stand for themselves)."""

_LONGEST_VARINT = 10


@native
def read_varlong(begin: Word, end: Word) -> tuple[Word, Word]:
    """A zigzag varint at addresses `[begin, end)`: its value and the position behind it, or (0, -1) if it does not end.

    Source: ByteUtils.readVarlong.
    """
    value = np.uint64(0)
    at = np.int64(begin)
    limit = min(np.int64(end), at + np.int64(_LONGEST_VARINT))
    shift = np.uint64(0)
    while at < limit:
        byte = np.uint64(load_u8(at))
        value |= (byte & np.uint64(0x7F)) << shift
        at += np.int64(1)
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@native
def read_marker(begin: Word, end: Word) -> tuple[Word, Word, Word]:
    """Marker type, coordinator epoch and timestamp delta of the control record at addresses `[begin, end)`.

    Source: ControlRecordType.parseTypeId, EndTransactionMarker.deserializeValue.
    """
    malformed = (np.int64(MALFORMED_MARKER), np.int64(-1), np.int64(0))
    size, at = read_varlong(begin, end)
    if at < 0 or size < 0 or size > np.int64(end) - at:
        return malformed
    last = at + size
    timestamp_delta, at = read_varlong(at + np.int64(1), last)  # behind the record's attributes
    if at < 0:
        return malformed
    _offset_delta, at = read_varlong(at, last)
    if at < 0:
        return malformed
    key_bytes, at = read_varlong(at, last)
    if at < 0 or key_bytes < 4 or key_bytes > last - at:
        return malformed
    kind = np.int64(load_be_i16(at + np.int64(2)))
    if load_be_i16(at) < 0:
        return malformed
    if kind != np.int64(MARKER_ABORT) and kind != np.int64(MARKER_COMMIT):
        in_column = kind >= 0 and kind < np.int64(UNKNOWN_MARKER)
        return (kind if in_column else np.int64(UNKNOWN_MARKER)), np.int64(-1), timestamp_delta
    value_bytes, at = read_varlong(at + key_bytes, last)
    if at < 0 or value_bytes < 6 or value_bytes > last - at or load_be_i16(at) < 0:
        return malformed
    return kind, np.int64(load_be_i32(at + np.int64(2))), timestamp_delta
