"""Symbolic record batches: what the simulation has instead of bytes, and the few bytes that stand for them in objects."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from producer_state.snapshot import ProducerEntry

_LAYOUT: Final = struct.Struct(">qqiIqhhqhiiB")
BATCH_BYTES: Final = _LAYOUT.size
"""Every batch takes so many bytes in a `.log`."""
_DATA, _COMMIT, _ABORT = range(3)
_NO_VERSION: Final = -(2**15)
_EMPTIED: Final = 1 << 31
NO_KEY: Final = -1


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of `[base_offset, end_offset)`. All its records have one key, one timestamp and one version.

    `content`: differs from that of every other batch ever appended. It also stands for the batch's checksum field.
    `key`: `NO_KEY` where compaction left a batch without records. `version`: in a header, None where that is absent or malformed.
    `transaction`: its number, -1 outside of transactions; of a marker, that of the transaction it ends. `commits`: of a
    marker, whether it commits; None for data.
    """

    base_offset: int
    end_offset: int
    leader_epoch: int
    content: int
    timestamp_ms: int
    key: int = 0
    version: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transaction: int = -1
    commits: bool | None = None

    @property
    def last_offset(self) -> int:
        """Of its last record."""
        return self.end_offset - 1

    @property
    def raw_content(self) -> int:
        """Of the batch that it was before compaction took its records."""
        return self.content & ~_EMPTIED

    @property
    def is_marker(self) -> bool:
        """Whether it ends a transaction."""
        return self.commits is not None


def emptied(batch: Batch) -> Batch:
    """What compaction leaves of a batch that stays without its records."""
    return replace(batch, content=batch.content | _EMPTIED, key=NO_KEY, version=None)


@lru_cache(maxsize=1 << 15)
def _encoded(batch: Batch) -> bytes:
    kind = _DATA if batch.commits is None else _COMMIT if batch.commits else _ABORT
    return _LAYOUT.pack(
        batch.base_offset,
        batch.end_offset,
        batch.leader_epoch,
        batch.content,
        batch.timestamp_ms,
        batch.key,
        _NO_VERSION if batch.version is None else batch.version,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.transaction,
        kind,
    )


def encode(batches: Iterable[Batch]) -> bytes:
    """The `.log` of these batches."""
    return b"".join(map(_encoded, batches))


@lru_cache(maxsize=1 << 13)
def decode(content: bytes) -> tuple[Batch, ...]:
    """Inverse of `encode`."""
    return tuple(_decoded(content))


def _decoded(content: bytes) -> Iterator[Batch]:
    for row in _LAYOUT.iter_unpack(content):
        base_offset, end_offset, leader_epoch, number, timestamp_ms, key, version, *producer, kind = row
        producer_id, producer_epoch, base_sequence, transaction = producer
        yield Batch(
            base_offset,
            end_offset,
            leader_epoch,
            number,
            timestamp_ms,
            key,
            None if version == _NO_VERSION else version,
            producer_id,
            producer_epoch,
            base_sequence,
            transaction,
            commits=None if kind == _DATA else kind == _COMMIT,
        )


def apply(producers: MutableMapping[int, ProducerEntry], batch: Batch) -> None:
    """What a batch does to what a broker knows of producers. Source: ProducerAppendInfo.append."""
    if batch.producer_id < 0:
        return
    known = producers.get(batch.producer_id) or ProducerEntry(batch.producer_id)
    if known.producer_epoch != batch.producer_epoch:
        known = replace(known, producer_epoch=batch.producer_epoch, last_sequence=-1, last_offset=-1, offset_delta=0)
    if batch.is_marker:
        known = replace(known, last_timestamp_ms=batch.timestamp_ms, coordinator_epoch=0, current_txn_first_offset=None)
    else:
        first_offset = known.current_txn_first_offset
        if batch.transaction >= 0 and first_offset is None:
            first_offset = batch.base_offset
        delta = batch.last_offset - batch.base_offset
        known = replace(
            known,
            last_sequence=batch.base_sequence + delta,
            last_offset=batch.last_offset,
            offset_delta=delta,
            last_timestamp_ms=batch.timestamp_ms,
            current_txn_first_offset=first_offset,
        )
    producers[batch.producer_id] = known


def replayed(batches: Iterable[Batch]) -> dict[int, ProducerEntry]:
    """The producers after these batches, from none."""
    producers: dict[int, ProducerEntry] = {}
    for batch in batches:
        apply(producers, batch)
    return producers
