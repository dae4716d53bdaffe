"""Checkpoints: what is read back is what was written, and what is not a checkpoint is reported."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.archive.actions import DeleteRecords
from sidecar.archive.checkpoint import decode_checkpoint, encode_checkpoint
from sidecar.archive.state import PartitionState, empty_state
from sidecar.archive.strict_json import seal
from sidecar.errors import CorruptFile
from tests.archive.builders import (
    LINEAGE,
    NAMELESS,
    after,
)
from tests.archive.histories import THREE, histories


@given(histories())
@settings(deadline=None)
def test_a_checkpoint_reads_back(state: PartitionState) -> None:
    data = encode_checkpoint(state)
    assert decode_checkpoint(data, state.next_number - 1, LINEAGE, "k") == state


@given(histories(), st.data())
@settings(deadline=None)
def test_any_changed_byte_of_a_checkpoint_is_found(state: PartitionState, data: st.DataObject) -> None:
    damaged = bytearray(encode_checkpoint(state))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptFile, match="k: "):
        decode_checkpoint(bytes(damaged), state.next_number - 1, LINEAGE, "k")


@given(st.binary(max_size=200))
def test_any_bytes_are_no_checkpoint(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        decode_checkpoint(data, 0, LINEAGE, "k")


def test_a_checkpoint_that_older_readers_would_misread_has_a_version_that_they_do_not_know() -> None:
    deleted = after(THREE, [DeleteRecords(150)])
    assert b'"version":1' in encode_checkpoint(THREE)
    assert b'"version":2' in encode_checkpoint(deleted)
    assert decode_checkpoint(encode_checkpoint(deleted), deleted.next_number - 1, LINEAGE) == deleted
    inner = encode_checkpoint(deleted)[len(b'{"checkpoint":') :].rsplit(b',"sha256"', 1)[0]
    for version in (0, 3):
        strange = seal("checkpoint", inner.replace(b'"version":2', b'"version":%d' % version))
        with pytest.raises(CorruptFile, match=f"written in version {version} of tiered-sidecar-checkpoint"):
            decode_checkpoint(strange, deleted.next_number - 1, LINEAGE)


def test_a_checkpoint_belongs_to_its_key() -> None:
    data = encode_checkpoint(THREE)
    with pytest.raises(CorruptFile, match="not what its key says"):
        decode_checkpoint(data, 3, LINEAGE, "k")
    with pytest.raises(CorruptFile, match="not what its key says"):
        decode_checkpoint(data, 2, NAMELESS, "k")
    with pytest.raises(ValueError, match="before the first commit"):
        encode_checkpoint(empty_state(LINEAGE))
