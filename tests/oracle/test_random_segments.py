"""The random logs: the same for a seed, loadable by Kafka, decoded alike by Kafka and by us, and as varied as promised."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.headers import MAGIC_POSITION, PREFIX_BYTES, SIZE_POSITION
from tests.oracle import CleanRound, DumpedBatch, DumpedRecord, Oracle
from tests.oracle.log_shape import CLEANER, REPLAY
from tests.oracle.random_batches import DAY_MS, VERSION_HEADER
from tests.oracle.random_segments import random_log

LEGACY = replace(CLEANER, legacy=True)
SHAPES = {"replay": REPLAY, "cleaner": CLEANER, "legacy": LEGACY}
SEEDS = range(40)


def batches_of(data: bytes) -> list[bytes]:
    found = []
    position = 0
    while position < len(data):
        end = position + PREFIX_BYTES + int.from_bytes(data[position + SIZE_POSITION : position + PREFIX_BYTES])
        found.append(data[position:end])
        position = end
    return found


def test_a_seed_gives_the_same_bytes_again() -> None:
    for shape in SHAPES.values():
        logs = [random_log(seed, shape) for seed in SEEDS]
        assert logs == [random_log(seed, shape) for seed in SEEDS]
        assert len({log.segments for log in logs}) == len(SEEDS)


def test_segments_continue_each_other() -> None:
    for seed in SEEDS:
        log = random_log(seed, replace(LEGACY, first_base_offset=None))
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        assert bases[-1] <= log.end_offset
        magics = [batch[MAGIC_POSITION] < 2 for segment in log.segments for batch in batches_of(segment.log)]
        assert not log.shape.cleanable or not magics or not magics[-1]


@pytest.mark.real
@pytest.mark.parametrize("name", SHAPES)
def test_kafka_loads_and_replays_them(oracle: Oracle, name: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        log = random_log(seed, SHAPES[name])
        directory = log.write(tmp_path / str(seed))
        replay = oracle.snapshots(directory, directory.parent)
        assert replay.stopped is None
        ends = [*(segment.base_offset for segment in log.segments[1:]), log.end_offset]
        assert [boundary.offset for boundary in replay.boundaries] == sorted(set(ends) - {log.segments[0].base_offset})
        assert sum(segment.truncated_bytes for segment in oracle.recover(directory)) == 0


@pytest.mark.real
@pytest.mark.parametrize("name", ["cleaner", "legacy"])
def test_kafka_cleans_them(oracle: Oracle, name: str, tmp_path: Path) -> None:
    totals: Counter[str] = Counter()
    for seed in SEEDS:
        log = random_log(seed, SHAPES[name])
        rounds = [CleanRound(log.now_ms), CleanRound(log.now_ms + 2 * DAY_MS)]
        cleaned = oracle.clean(log.write(tmp_path / str(seed)), rounds, offset_map="plain")
        for round_ in cleaned.rounds:
            totals.update(read=round_.messages_read, written=round_.messages_written, invalid=round_.invalid_messages)
    assert totals["read"] > 2 * totals["written"] > 400
    assert totals["invalid"] > 10


@pytest.mark.real
@pytest.mark.parametrize("name", SHAPES)
def test_kafka_and_we_decode_the_same_records(oracle: Oracle, name: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        log = random_log(seed, SHAPES[name])
        directory = log.write(tmp_path / str(seed))
        theirs = [record for path in sorted(directory.iterdir()) for record in oracle.dump_records(path)]
        assert theirs == [record for segment in log.segments for record in decoded(segment.log)]


def decoded(log: bytes) -> list[DumpedRecord]:
    """The records of a segment, as the oracle gives them."""
    found, position = list[DumpedRecord](), 0
    for batch in batches_of(log):
        found += [
            DumpedRecord(position, each.offset, each.timestamp_ms, each.sequence, each.key, each.value, each.headers)
            for each in read_records(batch, position)
        ]
        position += len(batch)
    return found


PROMISED = [
    *(f"magic {magic} codec {codec}" for magic, codecs in ((0, 4), (1, 4), (2, 5)) for codec in range(codecs)),
    *("append time 1", "append time 2", "empty data", "empty control", "marker", "control without producer"),
    *("horizon on data", "horizon on a marker", "no producer", "sequence wraps", "no sequence", "epoch down"),
    *("records removed", "gap between batches", "transactional", "empty segment", "open transaction at the end"),
    *(
        "null key",
        "empty key",
        "tombstone",
        "empty value",
        "version",
        "odd version",
        "null header",
        "empty header name",
    ),
    *("timestamp -1", "timestamp 0", "past", "future", "out of order"),
]


@pytest.mark.real
def test_together_they_hold_everything_that_is_promised(oracle: Oracle, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for name, shape in SHAPES.items():
        for seed in SEEDS:
            log = random_log(seed, shape)
            directory = log.write(tmp_path / name / str(seed))
            boundaries = oracle.snapshots(directory, directory.parent).boundaries
            seen["open transaction at the end"] += bool(boundaries and boundaries[-1].first_unstable_offset is not None)
            batches = [batch for path in sorted(directory.iterdir()) for batch in oracle.dump_batches(path)]
            records = [record for path in sorted(directory.iterdir()) for record in oracle.dump_records(path)]
            seen["empty segment"] += any(not segment.log for segment in log.segments)
            see_batches(batches, seen)
            see_records(records, log.now_ms, seen)
    assert [what for what in PROMISED if not seen[what]] == []


def see_batches(batches: list[DumpedBatch], seen: Counter[str]) -> None:
    epochs: dict[int, int] = {}
    next_offset = batches[0].base_offset if batches else 0
    for batch in batches:
        wraps = -1 < batch.last_sequence < batch.base_sequence
        data = batch.producer_id >= 0 and not batch.is_control
        found = {
            f"magic {batch.magic} codec {batch.codec}": True,
            f"append time {batch.magic}": batch.timestamp_type == 1,
            "empty data": data and batch.record_count == 0,
            "empty control": batch.is_control and batch.record_count == 0,
            "marker": batch.is_control and batch.producer_id >= 0 and batch.record_count == 1,
            "control without producer": batch.is_control and batch.producer_id < 0,
            "horizon on data": not batch.is_control and batch.delete_horizon_ms >= 0,
            "horizon on a marker": batch.is_control and batch.delete_horizon_ms >= 0,
            "no producer": batch.producer_id < 0,
            "sequence wraps": wraps,
            "no sequence": data and batch.base_sequence < 0,
            "epoch down": batch.producer_epoch < epochs.get(batch.producer_id, -1),
            "records removed": 0 < batch.record_count < batch.last_offset - batch.base_offset + 1,
            "gap between batches": batch.base_offset > next_offset,
            "transactional": batch.is_transactional,
        }
        seen.update(what for what, is_there in found.items() if is_there)
        epochs[batch.producer_id] = batch.producer_epoch
        next_offset = batch.last_offset + 1


def see_records(records: list[DumpedRecord], now_ms: int, seen: Counter[str]) -> None:
    before_ms = -1
    for record in records:
        versions = [value for header, value in record.headers if header == VERSION_HEADER]
        found = {
            "null key": record.key is None,
            "empty key": record.key == b"",
            "tombstone": record.value is None,
            "empty value": record.value == b"",
            "version": bool(versions),
            "odd version": any(value is None or len(value) != 8 for value in versions),
            "null header": any(value is None for _, value in record.headers),
            "empty header name": any(header == "" for header, _ in record.headers),
            "timestamp -1": record.timestamp_ms == -1,
            "timestamp 0": record.timestamp_ms == 0,
            "past": 0 < record.timestamp_ms < now_ms - 30 * DAY_MS,
            "future": record.timestamp_ms > now_ms,
            "out of order": -1 < record.timestamp_ms < before_ms,
        }
        seen.update(what for what, is_there in found.items() if is_there)
        before_ms = record.timestamp_ms
