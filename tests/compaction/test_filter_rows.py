"""The scenarios of upstream's MemoryRecordsTest on rewriting batches, by its names, through the engine.

A record is made to lose by having no key, or by a later record of its key. Left out: testFilterToWithUndersizedBuffer
(outputs of any size leave in pieces: test_small_windows_and_large_batches_give_the_same, test_large_message).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rules import CompactionRules
from sidecar.logformat.bodies.building import build_batch, build_empty_batch
from sidecar.logformat.bodies.legacy import build_legacy_message, build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from tests.compaction.engine import compact
from tests.compaction.reference.batches import DecodedBatch, decode_segment
from tests.compaction.reference.cleaning import clean
from tests.compaction.reference.values import ReferenceSegment

RULES = CompactionRules(1_000_000, delete_retention_ms=1)
CODECS = pytest.mark.parametrize("codec", range(5))


def filtered(
    batches: Sequence[bytes], *, last: Sequence[tuple[int, int, int]] = (), rules: CompactionRules = RULES
) -> list[DecodedBatch]:
    """What stays, but for a batch at the end that is added so that none before it ends the segment."""
    segment = ReferenceSegment(0, 1001, b"".join([*batches, build_batch([Record(1000, 1, b"end", b"")])]))
    ids, offsets, epochs = np.array(sorted(last), np.int64).reshape(-1, 3).T
    producers = LastBatches(ids.copy(), offsets.copy(), epochs.astype(np.int16))
    _, (log,) = compact([segment], rules, last_batches=producers)
    assert log == clean([segment], rules, last_batches=producers).groups[0].log
    return list(decode_segment(log))[:-1]


def records(*rows: tuple[int, int, bytes | None], value: bytes | None = b"v") -> list[Record]:
    return [Record(offset, timestamp_ms, key, value) for offset, timestamp_ms, key in rows]


@CODECS
def test_filter_to_preserves_partition_leader_epoch(codec: int) -> None:
    (kept,) = filtered([build_batch(records((0, 10, None), (1, 11, b"1")), codec=codec, leader_epoch=67)])
    assert (kept.leader_epoch, [record.offset for record in kept.records]) == (67, [1])


@CODECS
@pytest.mark.parametrize("transactional", [False, True])
def test_filter_to_empty_batch_retention(codec: int, transactional: bool) -> None:
    produced = {"producer_id": 23, "producer_epoch": 5, "base_sequence": 10, "leader_epoch": 293}
    batch = build_batch(
        records((3, 11, None), (4, 12, None)),
        codec=codec,
        transactional=transactional,
        **produced,  # type: ignore[arg-type]
    )
    (kept,) = filtered([batch], last=[(23, 4, 5)])
    assert kept.data == build_empty_batch(
        base_offset=3,
        last_offset=4,
        max_timestamp_ms=12,
        transactional=transactional,
        **produced,
    )
    assert filtered([batch]) == []


@pytest.mark.parametrize("stays", [True, False])
def test_empty_batch_retention_and_deletion(stays: bool) -> None:
    batch = build_empty_batch(
        base_offset=3, last_offset=4, max_timestamp_ms=12, producer_id=23, producer_epoch=5, base_sequence=9
    )
    found = filtered([batch], last=[(23, 4, 5)] if stays else [(23, 900, 5)])
    assert [kept.data for kept in found] == ([batch] if stays else [])


@CODECS
def test_base_timestamp_to_delete_horizon_conversion(codec: int) -> None:
    rows = [Record(0, 5, b"0", b"0"), Record(1, 10, b"1", None), Record(2, 15, b"2", b"2")]
    (kept,) = filtered([build_batch(rows, codec=codec)])
    assert kept.delete_horizon_ms == RULES.now_ms + 1
    assert [record.timestamp_ms for record in kept.records] == [5, 10, 15]
    (again,) = filtered([kept.data])
    assert again.data == kept.data
    (expired,) = filtered([kept.data], rules=replace(RULES, now_ms=RULES.now_ms + 1))
    assert expired.delete_horizon_ms == kept.delete_horizon_ms
    assert [(record.offset, record.timestamp_ms) for record in expired.records] == [(0, 5), (2, 15)]


@CODECS
def test_filter_to_batch_discard(codec: int) -> None:
    batches = [
        build_batch(records((0, 10, b"0")), codec=codec),
        build_batch(records((1, 11, b"1"), (2, 12, b"2")), codec=codec),
        build_batch(records((3, 13, b"3"), (4, 20, b"4"), (5, 15, b"5")), codec=codec),
        build_batch(records((6, 16, b"1"), (7, 17, b"2")), codec=codec),
        build_batch(records((8, 18, b"1"), (9, 19, b"2")), codec=codec),
    ]
    assert [kept.data for kept in filtered(batches)] == [batches[0], batches[2], batches[4]]


@CODECS
def test_filter_to_already_compacted_log(codec: int) -> None:
    rows = records((5, 10, None), (8, 11, b"8"), (10, 12, None))
    (kept,) = filtered([build_batch(rows, base_offset=0, codec=codec)])
    assert (kept.base_offset, kept.last_offset, [record.offset for record in kept.records]) == (0, 10, [8])
    if codec in (1, 2, 3):
        (legacy,) = filtered([build_legacy_wrapper(rows, codec=codec)])
        assert (legacy.base_offset, legacy.last_offset, legacy.magic) == (8, 8, 1)


@CODECS
def test_filter_to_preserves_producer_info(codec: int) -> None:
    batches = [
        build_batch(records((0, 10, None), (1, 11, b"1")), codec=codec),
        build_batch(
            records((2, 12, b"2"), (3, 13, None), (4, 14, b"4")),
            codec=codec, producer_id=23, producer_epoch=5, base_sequence=10,
        ),
        build_batch(
            records((5, 15, b"5"), (6, 16, b"6"), (7, 17, None)),
            codec=codec, producer_id=99384, producer_epoch=234, base_sequence=15, transactional=True,
        ),
    ]  # fmt: skip
    found = filtered(batches)
    assert [
        (
            kept.base_offset,
            kept.last_offset,
            kept.producer_id,
            kept.producer_epoch,
            kept.base_sequence,
            kept.is_transactional,
        )
        for kept in found
    ] == [(0, 1, -1, -1, -1, False), (2, 4, 23, 5, 10, False), (5, 7, 99384, 234, 15, True)]
    assert [record.sequence for kept in found for record in kept.records] == [-1, 10, 12, 15, 16]


@CODECS
def test_filter_to(codec: int) -> None:
    keys = [None, b"1", None, None, b"4", b"5", b"6"]
    times = [10, 11, 12, 13, 20, 15, 16]
    rows = [Record(offset, time, key, b"v") for offset, (time, key) in enumerate(zip(times, keys, strict=True))]
    cuts = [rows[0:1], rows[1:3], rows[3:6], rows[6:7]]
    found = filtered([build_batch(cut, codec=codec) for cut in cuts])
    assert [kept.base_offset for kept in found] == [1, 3, 6]
    assert [kept.last_offset for kept in found] == [2, 5, 6]
    assert [kept.max_timestamp_ms for kept in found] == [11, 20, 16]
    assert [record.offset for kept in found for record in kept.records] == [1, 4, 5, 6]
    if codec in (1, 2, 3):
        legacy = filtered([build_legacy_wrapper(cut, codec=codec) for cut in cuts])
        assert [(kept.base_offset, kept.last_offset) for kept in legacy] == [(1, 1), (4, 5), (6, 6)]
        assert [kept.max_timestamp_ms for kept in legacy] == [11, 20, 16]
    if codec == 0:
        messages = [build_legacy_message(row.offset, row.key, row.value, timestamp_ms=row.timestamp_ms) for row in rows]
        assert [kept.base_offset for kept in filtered(messages)] == [1, 4, 5, 6]


@CODECS
def test_filter_to_preserves_log_append_time(codec: int) -> None:
    rows = records((0, 5000, None), (1, 5000, b"1"), (2, 5000, b"2"))
    (kept,) = filtered([build_batch(rows, codec=codec, append_time_ms=5000)])
    assert (kept.append_time_ms, [record.timestamp_ms for record in kept.records]) == (5000, [5000, 5000])
