"""Hypothesis strategies for records, and the promise that any batch decodes or is corrupt."""

from __future__ import annotations

from hypothesis import strategies as st

from sidecar.errors import CorruptFile
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.headers import Codec

payloads = st.none() | st.binary(max_size=60)
names = st.text(max_size=8) | st.binary(max_size=6).map(lambda name: name.decode("utf-8", "surrogateescape"))
timestamps = st.just(-1) | st.integers(0, 2**42) | st.integers(0, 2**62)
codecs = st.sampled_from(list(Codec))
legacy_codecs = st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4])


@st.composite
def record_lists(draw: st.DrawFn, *, base_offset: int = 0, headers: bool = True) -> list[Record]:
    """One to eight records with ascending offsets, gaps included."""
    offsets = sorted(draw(st.sets(st.integers(base_offset, base_offset + 2**31 - 1), min_size=1, max_size=8)))
    pairs = st.lists(st.tuples(names, payloads), max_size=3).map(tuple) if headers else st.just(())
    return [Record(offset, draw(timestamps), draw(payloads), draw(payloads), draw(pairs)) for offset in offsets]


def decoded_or_corrupt(batch: bytes) -> list[Record] | None:
    """The records, or None where the batch is reported as corrupt, at a position; any other error goes through."""
    try:
        return list(read_records(batch, limit_bytes=100_000))
    except CorruptFile as error:
        if error.position is None:
            raise
        return None
