"""Batches and records of a segment file as JSON-able values: what `inspect` prints of a `.log`, one per line."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import crc32c

from producer_state.facts import NO_MARKER
from sidecar.errors import CorruptFile, SegmentChanged
from sidecar.logformat.batches import BatchColumns, SegmentScanner, scan_file
from sidecar.logformat.bodies.codecs import DEFAULT_LIMIT_BYTES
from sidecar.logformat.bodies.legacy import read_messages
from sidecar.logformat.bodies.record import NO_TIMESTAMP_TYPE, Record
from sidecar.logformat.bodies.records import CONTROL_NAMES, read_records
from sidecar.logformat.files import reading
from sidecar.logformat.headers import CODEC_MASK, CRC_FROM, CURRENT_MAGIC, BatchFlag, Codec
from sidecar.logformat.indexes.offset_index import ENTRY as OFFSET_ENTRY
from sidecar.logformat.indexes.offset_index import read_offset_index, without_zero_tail
from sidecar.logformat.indexes.time_index import ENTRY as TIME_ENTRY
from sidecar.logformat.indexes.time_index import read_time_index
from sidecar.logformat.indexes.transaction_index import read_transaction_index
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.logformat.names import Suffix

_PIECE_BYTES = 1024 * 1024
_COLUMNS = [field.name for field in fields(BatchColumns)]

Entry = dict[str, int]


def dump_batches(path: Path, *, base_offset: int | None = None) -> Iterator[dict[str, Any]]:
    """One dict per batch or legacy message, those with a wrong checksum included (`crc_ok` is False).

    `timestamp_type` is 0 for create time, 1 for log append time, -1 for magic 0. `base_timestamp_ms` is None where its
    field holds the delete horizon. `marker` is None for data, "abort" or "commit", or the number of another control type.
    Raises CorruptFile behind the last good batch if the file does not end there, or if a checksum was wrong.
    """
    damaged: CorruptFile | None = None
    scanner = scan_file(path, base_offset=base_offset, check_crc=False)
    with reading(path), path.open("rb") as file:
        for row in _rows(scanner):
            computed = _checksum(file, row)
            if computed != row["crc"] and damaged is None:
                what = f"checksum {computed:08x}, the batch says {row['crc']:08x}"
                damaged = CorruptFile(what, file=str(path), position=row["position"], offset=row["base_offset"])
            if row["magic"] < CURRENT_MAGIC and row["record_count"] < 0 and computed == row["crc"]:
                offsets = [record.offset for record in _records(file, row, path)]
                row |= {"base_offset": offsets[0], "record_count": len(offsets)}
            yield _batch(row, crc_ok=computed == row["crc"])
    scanner.require_exact()
    if damaged is not None:
        raise damaged


def dump_records(path: Path, *, base_offset: int | None = None) -> Iterator[dict[str, Any]]:
    """One dict per record, control records included; keys, values and header values in base64.

    Raises CorruptFile where a batch does not decode, or behind the last good batch if the file does not end there.
    """
    scanner = scan_file(path, base_offset=base_offset, check_crc=False)
    with reading(path), path.open("rb") as file:
        for row in _rows(scanner):
            for record in _records(file, row, path):
                yield _record(record)
    scanner.require_exact()


def _batch(row: Entry, *, crc_ok: bool) -> dict[str, Any]:
    attributes = row["attributes"]
    current = row["magic"] == CURRENT_MAGIC
    horizon = row["base_timestamp_ms"] if current and attributes & BatchFlag.DELETE_HORIZON else None
    appended = int(bool(attributes & BatchFlag.LOG_APPEND_TIME))
    marker = None if row["marker_type"] <= NO_MARKER else CONTROL_NAMES.get(row["marker_type"], row["marker_type"])
    return {
        "position": row["position"],
        "size_bytes": row["size_bytes"],
        "base_offset": row["base_offset"],
        "last_offset": row["last_offset"],
        "record_count": row["record_count"],
        "magic": row["magic"],
        "codec": Codec(attributes & CODEC_MASK).name.lower(),
        "timestamp_type": appended if row["magic"] else NO_TIMESTAMP_TYPE,
        "leader_epoch": row["leader_epoch"],
        "base_timestamp_ms": row["base_timestamp_ms"] if horizon is None else None,
        "max_timestamp_ms": row["max_timestamp_ms"],
        "delete_horizon_ms": horizon,
        "producer_id": row["producer_id"],
        "producer_epoch": row["producer_epoch"],
        "base_sequence": row["base_sequence"],
        "last_sequence": row["last_sequence"],
        "transactional": current and bool(attributes & BatchFlag.TRANSACTIONAL),
        "control": current and bool(attributes & BatchFlag.CONTROL),
        "marker": marker,
        "coordinator_epoch": row["coordinator_epoch"],
        "crc": row["crc"],
        "crc_ok": crc_ok,
    }


def _record(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "batch_base_offset": record.batch_base_offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": int(record.timestamp_type),
        "key": _base64(record.key),
        "value": _base64(record.value),
        # Stray bytes of a name become U+FFFD, as Java prints them.
        "headers": [
            [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), _base64(value)]
            for name, value in record.headers
        ],
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "sequence": record.sequence,
        "leader_epoch": record.leader_epoch,
        "transactional": record.transactional,
        "control": record.control,
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _rows(scanner: SegmentScanner) -> Iterator[Entry]:
    for chunk in scanner:
        yield from _entries(chunk, *_COLUMNS)


def _records(file: BinaryIO, row: Entry, path: Path) -> Iterator[Record]:
    position, size_bytes = row["position"], row["size_bytes"]
    if size_bytes > DEFAULT_LIMIT_BYTES:
        what = f"a batch of {size_bytes} bytes is not decoded: the limit is {DEFAULT_LIMIT_BYTES} bytes"
        raise CorruptFile(what, file=str(path), position=position)
    data = b"".join(_pieces(file, position, size_bytes))
    try:
        yield from read_messages(data, position) if row["magic"] < CURRENT_MAGIC else read_records(data, position)
    except CorruptFile as error:
        raise error.within(str(path)) from error


def _checksum(file: BinaryIO, row: Entry) -> int:
    covered_from = CRC_FROM[row["magic"]]
    add = crc32c.crc32c if row["magic"] == CURRENT_MAGIC else zlib.crc32
    checksum = 0
    for piece in _pieces(file, row["position"] + covered_from, row["size_bytes"] - covered_from):
        checksum = add(piece, checksum)
    return checksum


def _pieces(file: BinaryIO, position: int, size_bytes: int) -> Iterator[bytes]:
    file.seek(position)
    while size_bytes:
        piece = file.read(min(size_bytes, _PIECE_BYTES))
        if not piece:
            raise SegmentChanged(f"{file.name}: became shorter while it was read")
        yield piece
        size_bytes -= len(piece)


DUMPED_SUFFIXES = (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX, Suffix.TRANSACTION_INDEX)


def dump_index(suffix: Suffix, data: bytes, base_offset: int, file: str = "") -> Iterator[Entry]:
    """The entries of an index. The zeros of an index that was not trimmed yet are left out.

    Raises CorruptFile (before the first entry) where the bytes cannot be entries; ValueError for another kind of file.
    """
    match suffix:
        case Suffix.OFFSET_INDEX:
            offsets = read_offset_index(without_zero_tail(data, OFFSET_ENTRY.itemsize), base_offset, file)
            return _entries(offsets, "offset", "position")
        case Suffix.TIME_INDEX:
            times = read_time_index(without_zero_tail(data, TIME_ENTRY.itemsize), base_offset, file)
            return _entries(times, "timestamp_ms", "offset")
        case Suffix.TRANSACTION_INDEX:
            names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
            return _entries(read_transaction_index(data, file), *names)
        case _:
            raise ValueError(f"a file with suffix {suffix} is not an index")


def _entries(index: object, *names: str) -> Iterator[Entry]:
    columns = (getattr(index, name).tolist() for name in names)
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def dump_leader_epochs(data: bytes, file: str = "") -> Iterator[Entry]:
    """Epochs and their start offsets. Raises CorruptFile."""
    entries = read_leader_epochs(data, file).entries
    return ({"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in entries)
