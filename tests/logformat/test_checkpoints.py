from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import CorruptFile
from sidecar.logformat.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from sidecar.model import TopicPartition

TEXT = b"0\n2\na-b 0 17\n__consumer_offsets 49 0\n"
OFFSETS = {TopicPartition("a-b", 0): 17, TopicPartition("__consumer_offsets", 49): 0}


def test_offsets_are_read_and_written() -> None:
    assert read_offset_checkpoint(TEXT) == OFFSETS
    assert write_offset_checkpoint(OFFSETS) == TEXT


def test_an_empty_file_has_no_entries() -> None:
    assert read_offset_checkpoint(b"") == {}
    assert read_offset_checkpoint(b"0\n0\n") == {}


def test_runs_of_blanks_and_windows_line_ends_are_accepted() -> None:
    assert read_offset_checkpoint(b"0\r\n1\r\na \t 0  17\r\n") == {TopicPartition("a", 0): 17}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"1\n0\n", "checkpoint version 1"),
        (b"0", "the number of entries is missing"),
        (b"0\n2\na 0 1\n", "1 entry, the file announces 2"),
        (b"0\n1\na 0 1\nb 0 1\n", "2 entries, the file announces 1"),
        (b"0\n1\na 0\n", "line 3 has 2 tokens"),
        (b"0\n1\na 0 1 2\n", "line 3 has 4 tokens"),
        (b"0\n1\na x 1\n", "partition of a is 'x'"),
        (b"0\n1\na 0 9223372036854775808\n", "offset of a-0"),
        (b"0\n1\na 0 1_0\n", "offset of a-0"),
        (b"0\n1\na 0 " + b"9" * 5000 + b"\n", "offset of a-0"),
        (b"\x00\x00", "version is"),
        (b"\xc3", "not UTF-8"),
    ],
)
def test_malformed_files_are_corrupt(text: bytes, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        read_offset_checkpoint(text, "replication-offset-checkpoint")


@given(st.binary(max_size=80) | st.text(alphabet="0123456789 \na-", max_size=80).map(str.encode))
def test_any_bytes_are_a_checkpoint_or_corrupt(data: bytes) -> None:
    with suppress(CorruptFile):
        offsets = read_offset_checkpoint(data)
        assert read_offset_checkpoint(write_offset_checkpoint(offsets)) == offsets
