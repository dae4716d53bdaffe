"""The small files of a partition, dumped by their names."""

from __future__ import annotations

from collections.abc import Iterator

from sidecar.logformat.dump import DUMPED_SUFFIXES, Entry, dump_index, dump_leader_epochs
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT, parse_file_name


def dump_file(name: str, data: bytes) -> Iterator[Entry] | None:
    """The entries of an index or a leader epoch checkpoint; None for other names."""
    if name == LEADER_EPOCH_CHECKPOINT:
        return dump_leader_epochs(data, name)
    found = parse_file_name(name)
    if found is None or found.suffix not in DUMPED_SUFFIXES:
        return None
    return dump_index(found.suffix, data, found.offset, name)
