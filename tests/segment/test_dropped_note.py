"""The note of a restore without producers, as anybody may have left it: it says an offset, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.segment.dropped_producers import NAME, dropped_note, dropped_producers


@pytest.mark.parametrize(
    ("content", "offset"),
    [
        (dropped_note(17), 17),
        (dropped_note(17, [9, 4]), 17),
        (b"[" * 4096, 0),
        (b'{"version": 1, "below_offset": 17, "bridged_offsets": ["4"]}', 0),
        (b'{"version": 1, "below_offset": 17, "bridged_offsets": 4}', 0),
        (b'{"version": 1, "below_offset": Infinity}', 0),
        (b'{"version": 1, "below_offset": "17"}', 0),
        (b'{"version": 1, "below_offset": -1}', 0),
        (b'{"version": 1, "below_offset": 9223372036854775808}', 0),
        (b'{"version": 1, "below_offset": 17, "bridged_offsets": [9223372036854775808]}', 0),
        (b"\xff", 0),
        (b"[]", 0),
        (b"{}", 0),
        (b"", 0),
        (b'{"version": 2, "below_offset": 7}', 0),
        (b'{"version": 1}', 0),
    ],
)
def test_a_note_says_an_offset_or_nothing(content: bytes, offset: int, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(content)
    with capture_logs() as logs:
        assert dropped_producers(tmp_path).below_offset == offset
    assert [line["event"] for line in logs] == ([] if offset else ["dropped_producers_note_unreadable"])


def test_a_note_says_which_lost_offsets_have_markers(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(dropped_note(17, [9, 4]))
    assert dropped_producers(tmp_path).bridged_offsets == {4, 9}
