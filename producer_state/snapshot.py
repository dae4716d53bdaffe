"""Bytes of a `.snapshot` file <-> its producer entries. Format version 1, the same from Kafka 0.11 to 4.x."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Annotated, Any

import crc32c
import numpy as np
import numpy.typing as npt

from producer_state.wire import Int16, Int32, Int64, Layout, ProducerStateError, UInt32

VERSION = 1
NONE = -1

Rows = npt.NDArray[np.void]
"""Records of one structured dtype, one per producer."""


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """Start of the file. The checksum covers everything behind it, to the end of the file."""

    version: Int16
    crc: UInt32
    entry_count: Int32


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """What a broker knows of one producer; as it lies in the file, where -1 means None.

    `last_sequence`, `last_offset` and `offset_delta` (last minus base offset) belong to the last data batch of the
    current epoch: -1, -1, 0 where there is none. `last_timestamp_ms` is that of the last batch or marker;
    `coordinator_epoch` of the last marker. `current_txn_first_offset` is None unless a transaction is open.
    Source: ProducerSnapshot.json, Apache Kafka.
    """

    producer_id: Int64
    producer_epoch: Int16 = NONE
    last_sequence: Int32 = NONE
    last_offset: Int64 = NONE
    offset_delta: Int32 = 0
    last_timestamp_ms: Int64 = NONE
    coordinator_epoch: Int32 = NONE
    current_txn_first_offset: Annotated[int | None, "q"] = None


HEADER = Layout(SnapshotHeader)
ENTRY = Layout(ProducerEntry)
ENTRY_DTYPE = ENTRY.dtype("=")
CRC_COVERS_FROM = HEADER.offset_of("entry_count")
_values_of = attrgetter(*(field.name for field in fields(ProducerEntry)))


class CorruptSnapshot(ProducerStateError):
    """Bytes that are no producer snapshot. `position` is the byte at which that shows."""

    def __init__(self, what: str, *, position: int) -> None:
        super().__init__(f"producer snapshot, at byte {position}: {what}")
        self.what = what
        self.position = position


def read_snapshot(data: bytes | bytearray | memoryview) -> tuple[ProducerEntry, ...]:
    """The entries in ascending producer id. Raises CorruptSnapshot.

    Source: ProducerStateManager.readSnapshot; stricter than it in that bytes behind the last entry, a producer twice
    and negative producer ids are corrupt too: no broker writes them.
    """
    return entries_of(read_rows(data))


def read_rows(data: bytes | bytearray | memoryview) -> Rows:
    """As `read_snapshot`, as records of ENTRY_DTYPE. Fields that mean "none" are normalised as a broker's loader does."""
    if len(data) < HEADER.size_bytes:
        raise CorruptSnapshot(f"{len(data)} bytes, expected {HEADER.size_bytes} or more", position=len(data))
    header = HEADER.read(data)
    if header.version != VERSION:
        raise CorruptSnapshot(f"version {header.version}, expected {VERSION}", position=0)
    actual = crc32c.crc32c(bytes(memoryview(data)[CRC_COVERS_FROM:]))
    if actual != header.crc:
        raise CorruptSnapshot(f"checksum {header.crc:08x}, computed {actual:08x}", position=HEADER.offset_of("crc"))
    expected_bytes = HEADER.size_bytes + header.entry_count * ENTRY.size_bytes
    if header.entry_count < 0 or len(data) != expected_bytes:
        what = f"{header.entry_count} entries in {len(data)} bytes, expected {expected_bytes} bytes"
        raise CorruptSnapshot(what, position=CRC_COVERS_FROM)
    rows = np.frombuffer(data, dtype=ENTRY.dtype(">"), offset=HEADER.size_bytes).astype(ENTRY_DTYPE)
    _check_producer_ids(rows["producer_id"])
    return _normalised(rows[np.argsort(rows["producer_id"], kind="stable")])


def _check_producer_ids(producer_ids: npt.NDArray[np.int64]) -> None:
    seen: set[int] = set()
    for index, producer_id in enumerate(producer_ids.tolist()):
        if producer_id < 0 or producer_id in seen:
            what = f"producer id {producer_id} {'is negative' if producer_id < 0 else 'appears twice'}"
            raise CorruptSnapshot(what, position=HEADER.size_bytes + index * ENTRY.size_bytes)
        seen.add(producer_id)


def _normalised(rows: Rows) -> Rows:
    no_batch = rows["last_offset"] < 0
    rows["last_sequence"][no_batch] = NONE
    rows["last_offset"][no_batch] = NONE
    rows["offset_delta"][no_batch] = 0
    rows["current_txn_first_offset"][rows["current_txn_first_offset"] < 0] = NONE
    return rows


def write_rows(rows: Rows) -> bytes:
    """The file's bytes, from records of ENTRY_DTYPE in ascending producer id, so that equal states have equal bytes.

    A broker writes them in the order of a hash map, which no reader may rely on.
    """
    counted = struct.pack(">i", len(rows)) + rows.astype(ENTRY.dtype(">")).tobytes()
    return HEADER.struct.pack(VERSION, crc32c.crc32c(counted), len(rows))[:CRC_COVERS_FROM] + counted


def rows_of(entries: Iterable[ProducerEntry]) -> Rows:
    """Entries as records of ENTRY_DTYPE in ascending producer id. Raises ValueError on doubles."""
    given = tuple(entries)
    by_id = {entry.producer_id: entry for entry in given}
    if len(by_id) < len(given):
        raise ValueError("a producer id twice in one snapshot")
    values = [_values_of(entry) for _, entry in sorted(by_id.items())]
    return np.array([(*some, NONE if txn is None else txn) for *some, txn in values], dtype=ENTRY_DTYPE)


def entries_of(rows: Rows) -> tuple[ProducerEntry, ...]:
    return tuple(
        ProducerEntry(producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator, None if txn < 0 else txn)
        for producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator, txn in rows.tolist()
    )


def describe(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """The JSON of `inspect X.snapshot --json`: stable, tools rely on it. An absent transaction is None. Raises CorruptSnapshot."""
    return {"kind": "snapshot", "version": VERSION, "entries": [asdict(entry) for entry in read_snapshot(data)]}


def stray_offsets(offsets: Collection[int], segment_bases: Collection[int]) -> frozenset[int]:
    """Those that belong to no segment, but for the largest one if it lies at or above the largest base.

    That one is of a clean shutdown: state at the log's end. Source: ProducerStateManager.removeStraySnapshots.
    """
    unattached = set(offsets) - set(segment_bases)
    newest = max(unattached, default=None)
    if newest is not None and newest >= max(segment_bases, default=newest):
        unattached.remove(newest)
    return frozenset(unattached)
