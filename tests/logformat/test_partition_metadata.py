from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import CorruptFile
from sidecar.logformat.metadata_files import (
    read_partition_metadata,
    uuid_bytes,
    uuid_text,
    write_partition_metadata,
)

TOPIC_ID = "ASNFZ4mrze_-3LqYdlQyEA"


def test_the_topic_id_is_read_and_written() -> None:
    data = f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    assert read_partition_metadata(data) == TOPIC_ID
    assert read_partition_metadata(data + b"\n") == TOPIC_ID
    assert write_partition_metadata(TOPIC_ID) == data


def test_an_id_is_sixteen_bytes_most_significant_first() -> None:
    assert uuid_bytes(TOPIC_ID).hex() == "0123456789abcdeffedcba9876543210"


@given(st.binary(min_size=16, max_size=16))
def test_ids_are_read_back(id_bytes: bytes) -> None:
    assert uuid_bytes(uuid_text(id_bytes)) == id_bytes


@pytest.mark.parametrize("text", ["", TOPIC_ID[:-1], TOPIC_ID + "A", TOPIC_ID[:-1] + "B", "é" * 22, "+" * 22, "=" * 22])
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_bytes(text)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the end of the file"),
        (b"version: 0\n", "line 2"),
        (b"version: x\ntopic_id: " + TOPIC_ID.encode(), "version is 'x'"),
        (b"version: -1\ntopic_id: " + TOPIC_ID.encode(), "version is '-1'"),
        (b"topic_id: " + TOPIC_ID.encode() + b"\nversion: 0", "line 1"),
        (b"version: 0\ntopic_id:" + TOPIC_ID.encode(), "line 2"),
        (b"version: 0\ntopic_id: " + b"A" * 22, "all zeros"),
        (b"version: 0\ntopic_id: " + b"A" * 30, "30 characters"),
        (b"version: 0\n\xff", "not UTF-8"),
    ],
)
def test_malformed_files_are_corrupt(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        read_partition_metadata(data, "partition.metadata")


@given(st.binary(max_size=60) | st.binary(max_size=30).map(lambda tail: b"version: 0\ntopic_id: " + tail))
def test_any_bytes_are_metadata_or_corrupt(data: bytes) -> None:
    with suppress(CorruptFile):
        assert len(read_partition_metadata(data)) == 22
