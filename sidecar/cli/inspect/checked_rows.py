"""Entries of indexes and checkpoints as long as they can be such: what a broker checks when it loads them, and order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sidecar.errors import CorruptFile
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.indexes import offset_index, time_index, transaction_index
from sidecar.logformat.indexes.dump import dump_index, dump_leader_epochs
from sidecar.logformat.meta_properties import MetaProperties, read_meta_properties, read_properties
from sidecar.logformat.names import Suffix

ENTRY_BYTES = {
    Suffix.OFFSET_INDEX: offset_index.ENTRY.itemsize,
    Suffix.TIME_INDEX: time_index.ENTRY.itemsize,
    Suffix.TRANSACTION_INDEX: transaction_index.ENTRY.itemsize,
}
RISING = {
    Suffix.OFFSET_INDEX: ("offset", "position"),
    Suffix.TIME_INDEX: ("timestamp_ms",),
    Suffix.TRANSACTION_INDEX: ("last_offset",),
}
"""What is greater in each entry than in the one before it. Offsets of a time index may repeat."""

Row = Mapping[str, int]


def index_rows(suffix: Suffix, data: bytes, base_offset: int, file: str, *, may_end_in_zeros: bool) -> Iterator[Row]:
    """Entries in file order. Raises CorruptFile at the first that cannot be one, or behind the last.

    Args:
        may_end_in_zeros: a broker may have the segment open, and trims the index when it closes it.
    """
    entry_bytes = ENTRY_BYTES[suffix]
    whole_bytes = len(data) // entry_bytes * entry_bytes
    used_bytes = whole_bytes
    if suffix is not Suffix.TRANSACTION_INDEX:
        used_bytes = len(offset_index.without_zero_tail(data[:whole_bytes], entry_bytes))
    before: Row = {}
    for number, row in enumerate(_entries(suffix, data[:used_bytes], base_offset, file)):
        _check(suffix, row, before, base_offset, file, number * entry_bytes)
        yield row
        before = row
    if whole_bytes < len(data):
        raise CorruptFile(f"size {len(data)} is no multiple of {entry_bytes}", file=file, position=whole_bytes)
    if used_bytes < whole_bytes and not may_end_in_zeros:
        zeros = f"{whole_bytes - used_bytes} bytes of zeros, which only the index of a broker's active segment has"
        raise CorruptFile(zeros, file=file, position=used_bytes)


def _entries(suffix: Suffix, data: bytes, base_offset: int, file: str) -> Iterator[Row]:
    if suffix is not Suffix.TRANSACTION_INDEX:
        yield from dump_index(suffix, data, base_offset, file)
        return
    # One by one: an entry of an unknown version must not hide those before it.
    entry_bytes = ENTRY_BYTES[suffix]
    for position in range(0, len(data), entry_bytes):
        try:
            yield from dump_index(suffix, data[position : position + entry_bytes], base_offset, file)
        except CorruptFile as error:
            raise error.within(file, shift_bytes=position) from error


def _check(suffix: Suffix, row: Row, before: Row, base_offset: int, file: str, position: int) -> None:
    lowest = dict.fromkeys(row, 0) | {"offset": base_offset, "last_offset": base_offset}
    if "offset" in before:
        lowest["offset"] = before["offset"]
    for name in RISING[suffix]:
        if name in before:
            lowest[name] = before[name] + 1
    if "first_offset" in row:
        lowest["last_offset"] = max(lowest["last_offset"], row["first_offset"])
    for name, value in row.items():
        if value < lowest[name]:
            raise CorruptFile(f"{name} {value}, expected {lowest[name]} or more", file=file, position=position)


def leader_epoch_rows(data: bytes, file: str) -> Iterator[Row]:
    """Epochs and their start offsets. Raises CorruptFile."""
    _require_content(data, file)
    return dump_leader_epochs(data, file)


def offset_rows(data: bytes, file: str) -> Iterator[Mapping[str, str | int]]:
    """Offsets by partition, of the checkpoint files in a log dir. Raises CorruptFile."""
    _require_content(data, file)
    for found, offset in read_offset_checkpoint(data, file).items():
        if found.partition < 0 or offset < 0:
            raise CorruptFile(f"partition {found.partition}, offset {offset}: expected 0 or more", file=file)
        yield {"topic": found.topic, "partition": found.partition, "offset": offset}


def checked_meta_properties(data: bytes, file: str) -> MetaProperties:
    """As `read_meta_properties`, and something must be in it: of any text that would make a file without ids."""
    found = read_meta_properties(data, file)
    if "version" not in read_properties(data, file):
        raise CorruptFile("the key 'version' is missing, which every broker since 0.8.2 writes", file=file)
    return found


def _require_content(data: bytes, file: str) -> None:
    # A broker reads an empty file as one without entries, but none writes it: it was cut off.
    if not data:
        raise CorruptFile("is empty; expected a version and the number of entries", file=file, position=0)
