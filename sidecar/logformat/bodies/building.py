"""Writes magic 2 batches as the broker's own builder does."""

from __future__ import annotations

from collections.abc import Iterable

import crc32c

from sidecar.logformat.bodies.codecs import compress
from sidecar.logformat.bodies.record import Record, write_varint
from sidecar.logformat.headers import (
    BATCH_HEADER,
    CRC_FROM,
    CURRENT_MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    BatchFlag,
    BatchHeader,
)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """A batch of at least one record; of each record only offset, timestamp, key, value and headers are used.

    Args:
        base_offset, last_offset: of the batch; by default those of the first and the last record.
        append_time_ms: makes it a LOG_APPEND_TIME batch, every record of which has this time.
        delete_horizon_ms: written in place of the base timestamp, and flagged.
    Raises ValueError for what no broker would write. Source: MemoryRecordsBuilder.
    """
    kept = list(records)
    if not kept:
        raise ValueError("a batch of no records: use build_empty_batch")
    base = kept[0].offset if base_offset is None else base_offset
    last = kept[-1].offset if last_offset is None else last_offset
    if not base <= kept[0].offset <= kept[-1].offset <= last:
        raise ValueError(f"records [{kept[0].offset}, {kept[-1].offset}] outside the batch's [{base}, {last}]")
    base_timestamp = kept[0].timestamp_ms if delete_horizon_ms is None else delete_horizon_ms
    body = bytearray()
    before = base - 1
    for record in kept:
        if record.offset <= before or record.timestamp_ms < NO_TIMESTAMP:
            raise ValueError(f"record at {record.offset} with timestamp {record.timestamp_ms} after offset {before}")
        before = record.offset
        _write_record(body, record, base, base_timestamp)
    flags = BatchFlag(0)
    flags |= BatchFlag.LOG_APPEND_TIME if append_time_ms is not None else flags
    flags |= BatchFlag.TRANSACTIONAL if transactional else flags
    flags |= BatchFlag.CONTROL if control else flags
    flags |= BatchFlag.DELETE_HORIZON if delete_horizon_ms is not None else flags
    newest = max(record.timestamp_ms for record in kept)
    return _sealed(
        BatchHeader(
            base_offset=base,
            batch_length=0,
            leader_epoch=leader_epoch,
            magic=CURRENT_MAGIC,
            crc=0,
            attributes=codec | flags,
            last_offset_delta=last - base,
            base_timestamp=base_timestamp,
            max_timestamp=newest if append_time_ms is None else append_time_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=len(kept),
        ),
        compress(codec, bytes(body)),
    )


def build_empty_batch(
    *,
    base_offset: int,
    last_offset: int,
    max_timestamp_ms: int = NO_TIMESTAMP,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    append_time: bool = False,
) -> bytes:
    """What a cleaner leaves of a batch whose records are all gone. Source: DefaultRecordBatch.writeEmptyHeader."""
    flags = BatchFlag.LOG_APPEND_TIME if append_time else BatchFlag(0)
    flags |= BatchFlag.TRANSACTIONAL if transactional else flags
    flags |= BatchFlag.CONTROL if control else flags
    return _sealed(
        BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            leader_epoch=leader_epoch,
            magic=CURRENT_MAGIC,
            crc=0,
            attributes=int(flags),
            last_offset_delta=last_offset - base_offset,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=max_timestamp_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=0,
        ),
        b"",
    )


def build_marker(
    offset: int,
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The batch of one end-transaction marker. Source: MemoryRecords.withEndTransactionMarker."""
    key = (0).to_bytes(2) + int(commit).to_bytes(2)
    value = (0).to_bytes(2) + coordinator_epoch.to_bytes(4, signed=True)
    return build_batch(
        [Record(offset, timestamp_ms, key, value)],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def _write_record(out: bytearray, record: Record, base_offset: int, base_timestamp: int) -> None:
    body = bytearray(b"\x00")
    write_varint(body, record.timestamp_ms - base_timestamp)
    write_varint(body, record.offset - base_offset)
    _write_nullable(body, record.key)
    _write_nullable(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_nullable(body, name.encode("utf-8", "surrogateescape"))
        _write_nullable(body, value)
    write_varint(out, len(body))
    out += body


def _write_nullable(out: bytearray, data: bytes | None) -> None:
    write_varint(out, -1 if data is None else len(data))
    out += data or b""


def _sealed(header: BatchHeader, body: bytes) -> bytes:
    """Header and body with length and checksum filled in."""
    data = bytearray(BATCH_HEADER.write(header) + body)
    length_at, crc_at = BATCH_HEADER.offset_of("batch_length"), BATCH_HEADER.offset_of("crc")
    data[length_at : length_at + 4] = (len(data) - PREFIX_BYTES).to_bytes(4)
    data[crc_at : crc_at + 4] = crc32c.crc32c(data[CRC_FROM[CURRENT_MAGIC] :]).to_bytes(4)
    return bytes(data)
