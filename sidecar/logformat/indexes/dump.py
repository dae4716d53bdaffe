"""The small files of a partition as JSON-able values, one per entry: what `inspect` prints."""

from __future__ import annotations

from collections.abc import Iterator

from sidecar.logformat.indexes.offset_index import ENTRY as OFFSET_ENTRY
from sidecar.logformat.indexes.offset_index import read_offset_index, without_zero_tail
from sidecar.logformat.indexes.time_index import ENTRY as TIME_ENTRY
from sidecar.logformat.indexes.time_index import read_time_index
from sidecar.logformat.indexes.transaction_index import read_transaction_index
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.logformat.names import Suffix

DUMPED_SUFFIXES = (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX, Suffix.TRANSACTION_INDEX)

Entry = dict[str, int]


def dump_index(suffix: Suffix, data: bytes, base_offset: int, file: str = "") -> Iterator[Entry]:
    """The entries of an index. The zeros of an index that was not trimmed yet are left out.

    Raises CorruptFile (before the first entry) where the bytes cannot be entries; ValueError for another kind of file.
    """
    match suffix:
        case Suffix.OFFSET_INDEX:
            return _offset_entries(data, base_offset, file)
        case Suffix.TIME_INDEX:
            return _time_entries(data, base_offset, file)
        case Suffix.TRANSACTION_INDEX:
            return _transaction_entries(data, file)
        case _:
            raise ValueError(f"a file with suffix {suffix} is no index")


def dump_leader_epochs(data: bytes, file: str = "") -> Iterator[Entry]:
    """Epochs and their start offsets. Raises CorruptFile."""
    entries = read_leader_epochs(data, file).entries
    return ({"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in entries)


def _offset_entries(data: bytes, base_offset: int, file: str) -> Iterator[Entry]:
    index = read_offset_index(without_zero_tail(data, OFFSET_ENTRY.itemsize), base_offset, file)
    columns = zip(index.offset, index.position, strict=True)
    return ({"offset": int(offset), "position": int(position)} for offset, position in columns)


def _time_entries(data: bytes, base_offset: int, file: str) -> Iterator[Entry]:
    index = read_time_index(without_zero_tail(data, TIME_ENTRY.itemsize), base_offset, file)
    columns = zip(index.timestamp_ms, index.offset, strict=True)
    return ({"timestamp_ms": int(timestamp_ms), "offset": int(offset)} for timestamp_ms, offset in columns)


def _transaction_entries(data: bytes, file: str) -> Iterator[Entry]:
    index = read_transaction_index(data, file)
    columns = zip(index.producer_id, index.first_offset, index.last_offset, index.last_stable_offset, strict=True)
    return (
        {
            "producer_id": int(producer_id),
            "first_offset": int(first_offset),
            "last_offset": int(last_offset),
            "last_stable_offset": int(last_stable_offset),
        }
        for producer_id, first_offset, last_offset, last_stable_offset in columns
    )
