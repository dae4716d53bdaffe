"""A layout writes what it reads, however few fields it has."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from producer_state.wire import Int16, Int64, Layout


@dataclass(frozen=True, slots=True)
class _One:
    offset: Int64


@dataclass(frozen=True, slots=True)
class _Two:
    epoch: Int16
    offset: Int64


@pytest.mark.parametrize(
    ("row", "encoded"), [(_One(-2), b"\xff" * 7 + b"\xfe"), (_Two(3, 258), bytes([0, 3, 0, 0, 0, 0, 0, 0, 1, 2]))]
)
def test_a_row_comes_back_as_it_was_written(row: _One | _Two, encoded: bytes) -> None:
    layout: Layout[_One | _Two] = Layout(type(row))
    assert layout.write(row) == encoded
    assert layout.read(encoded) == row
    assert layout.size_bytes == len(encoded)


def test_a_field_without_a_wire_type_is_refused() -> None:
    @dataclass
    class Odd:
        offset: int

    with pytest.raises(TypeError, match="offset has no wire type"):
        Layout(Odd)
