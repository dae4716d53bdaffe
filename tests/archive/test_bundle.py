"""The layout of `.indexes`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from sidecar.archive.bundle import (
    EMPTY_SNAPSHOT,
    assemble_indexes,
    cut_part,
    cut_parts,
    indexes_size_bytes,
    log_part,
    log_size_bytes,
)
from sidecar.errors import CorruptFile
from sidecar.model import PartName
from tests.archive.builders import a_segment


def test_the_order_is_the_one_that_plugins_read() -> None:
    data, parts = assemble_indexes(b"OO", b"TTT", b"SSSS", b"EEEEE", b"XXXXXX")
    assert data == b"OOTTTSSSSEEEEEXXXXXX" + bytes.fromhex("000148674bc700000000") + b"0\n1\n0 0\n"
    assert [(part.name.value, part.position, part.size_bytes) for part in parts] == [
        ("offset_index", 0, 2),
        ("time_index", 2, 3),
        ("producer_snapshot", 5, 4),
        ("leader_epochs", 9, 5),
        ("transaction_index", 14, 6),
        ("empty_snapshot", 20, 10),
        ("flat_leader_epochs", 30, 8),
    ]


def test_an_empty_index_is_a_part_and_a_missing_transaction_index_is_none() -> None:
    data, parts = assemble_indexes(b"", b"", EMPTY_SNAPSHOT, b"0\n0\n", None)
    sizes = {part.name: part.size_bytes for part in parts}
    assert sizes[PartName.OFFSET_INDEX] == 0
    assert PartName.TRANSACTION_INDEX not in sizes
    assert PartName.TRANSACTION_INDEX in {part.name for part in assemble_indexes(b"", b"", b"", b"", b"")[1]}
    assert len(data) == 10 + 4 + 10 + 8


@given(*[st.binary(max_size=40)] * 4, st.none() | st.binary(max_size=40))
def test_every_part_is_cut_out_as_it_went_in(
    offset_index: bytes, time_index: bytes, snapshot: bytes, epochs: bytes, transactions: bytes | None
) -> None:
    data, parts = assemble_indexes(offset_index, time_index, snapshot, epochs, transactions)
    segment = a_segment(parts=(log_part(9, 1), *parts))
    found = cut_parts(data, segment)
    assert found[PartName.OFFSET_INDEX] == offset_index
    assert found[PartName.TIME_INDEX] == time_index
    assert found[PartName.PRODUCER_SNAPSHOT] == snapshot
    assert found[PartName.LEADER_EPOCHS] == epochs
    assert found.get(PartName.TRANSACTION_INDEX) == transactions
    assert indexes_size_bytes(segment) == len(data)
    assert log_size_bytes(segment) == 9
    assert all(part.crc32c == crc32c(found[part.name]) for part in parts)


def test_a_damaged_part_is_named() -> None:
    data, parts = assemble_indexes(b"OO", b"TTT", b"SSSS", b"EEEEE", None)
    with pytest.raises(CorruptFile, match=r"x\.indexes, at byte 2: part time_index has CRC-32C"):
        cut_part(data.replace(b"T", b"U"), parts[1], "x.indexes")
    with pytest.raises(CorruptFile, match="reaches from 2 to 5, but the object has only 2 of these 3 bytes"):
        cut_part(data[:4], parts[1], "x.indexes")
    with pytest.raises(
        CorruptFile, match=r"at byte 5: part producer_snapshot reaches from 5 to 9, .* only 1 of these 4"
    ):
        cut_part(data[5:6], parts[2], "x.indexes", start=5)
    with pytest.raises(CorruptFile, match="the object has"):
        cut_part(data, replace(parts[1], position=2**62, size_bytes=2**62), "x.indexes")
