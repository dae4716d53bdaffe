"""The reference and the engine against Kafka's own Cleaner, on random logs and on directories that real brokers wrote."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path

import pytest

from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.outputs import SegmentSize, grouped
from sidecar.compaction.rules import CompactionRules, LegacyFormat
from sidecar.compactor.policy import Assessment, assess
from sidecar.config import CompactionPolicy
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.codecs import decompress
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.headers import BATCH_HEADER, CODEC_MASK
from sidecar.model import ArchivedSegment
from tests.compaction.engine import compact
from tests.compaction.partitions import Partition, partition_in
from tests.compaction.reference.cleaning import clean
from tests.compaction.reference.values import CleanedRange, ReferenceSegment
from tests.compaction.test_engine import random_partition, rules_for
from tests.golden import VERSIONS, partitions, wall_clock_ms
from tests.oracle import CleanedLog, CleanedRound, CleanRound, Oracle, OracleRefused
from tests.oracle.log_shape import CLEANER
from tests.oracle.random_segments import random_log
from tests.oracle.test_random_segments import decoded
from tests.runner.archived import segment as an_archived_segment

pytestmark = pytest.mark.real

SEEDS = range(int(os.environ.get("CONFORMANCE_LOGS", "48")))
DAY_MS = 86_400_000
SEGMENT_BYTES = 3000
MAP_LOAD_FACTOR = 0.9
"""`log.cleaner.io.buffer.load.factor`, as the oracle sets it."""


def content(log: bytes) -> list[object]:
    """A log as values: header bytes and records of each batch. Uncompressed batches must be equal to the byte."""
    found: list[object] = []
    for columns in scan_bytes(log):
        for row in range(len(columns)):
            position = int(columns.position[row])
            data = log[position : position + int(columns.size_bytes[row])]
            codec = int(columns.attributes[row]) & CODEC_MASK
            if codec == 0 or columns.record_count[row] == 0:
                found.append(data)
            elif columns.magic[row] < 2:
                found.append((data[:8], tuple(read_records(data))))
            else:
                begin = BATCH_HEADER.size_bytes
                found.append((data[:8], data[12:17], data[21:begin], decompress(codec, data[begin:])))
    return found


def archived(segment: ReferenceSegment) -> ArchivedSegment:
    """As the archive would know it."""
    times = [int(time) for columns in scan_bytes(segment.log) for time in columns.max_timestamp_ms]
    return an_archived_segment(
        segment.base_offset,
        segment.end_offset,
        size_bytes=len(segment.log),
        max_timestamp_ms=max(times, default=-1),
        mtime_ms=segment.last_modified_ms,
    )


def cleanable(segments: tuple[ReferenceSegment, ...], checkpoint: int | None, cleaned: CleanedLog) -> Assessment:
    """What `run` would compact of them. The active segment, the last one, is what is not decided yet."""
    start, active = cleaned.log_start_offset, segments[-1].base_offset
    return assess(
        [archived(segment) for segment in segments],
        checkpoint if checkpoint is not None and start <= checkpoint <= cleaned.log_end_offset else start,
        CompactionPolicy(),
        now_ms=0,
        stable_end_offset=min(cleaned.last_stable_offset, active),
    )


def round_as(
    partition: Partition,
    segments: tuple[ReferenceSegment, ...],
    rules: CompactionRules,
    kafka: CleanedRound,
    last_batches: LastBatches,
    max_keys: int | None,
) -> tuple[tuple[ReferenceSegment, ...], CleanedRange]:
    """The same round by the reference: the partition's segments after it."""
    clean_as_kafka = partial(
        clean,
        segments,
        rules,
        last_batches=last_batches,
        aborted=partition.aborted,
        first_dirty_offset=kafka.first_dirty_offset,
        first_uncleanable_offset=kafka.first_uncleanable_offset,
        max_keys=max_keys,
    )
    whole = clean_as_kafka()
    taken = [
        segment for segment in segments if segment.base_offset < min(whole.end_offset, kafka.first_uncleanable_offset)
    ]
    ends = [*(segment.base_offset for segment in segments[1:]), segments[-1].end_offset]
    sizes = [
        SegmentSize(segment.base_offset, end, len(segment.log), is_empty=not segment.log)
        for segment, end in zip(taken, ends, strict=False)
    ]
    cleaned = clean_as_kafka(groups=grouped(sizes, rules))
    return (*(group.segment for group in cleaned.groups), *segments[len(taken) :]), cleaned


class OnPurpose(StrEnum):
    """Where what we write differs from what Kafka's cleaner writes (design §6.7), and nothing else."""

    OUTPUT_ENDS = (
        "every output segment keeps its last batch, empty if need be: readers of a bundle know no other segment"
    )
    GROUPING = "segments are joined by the sizes that come of them, not by those they had"


def check_as_shipped(outputs: list[bytes], kafka: list[bytes], bases: tuple[list[int], list[int]]) -> set[OnPurpose]:
    """Compare batch by batch: all with records must be equal, empty ones may differ as named. Returns what occurred."""
    found: set[OnPurpose] = set()
    ours, theirs = [batches_of(log) for log in outputs], [batches_of(log) for log in kafka]
    output_ends = {max(held) for held in ours if held}
    mine = {last: batch for held in ours for last, batch in held.items()}
    other = {last: batch for held in theirs for last, batch in held.items()}
    for last in sorted(mine.keys() ^ other.keys()):
        assert last in mine, last
        assert mine[last][0] == 0, last
        assert last in output_ends, last
        found.add(OnPurpose.OUTPUT_ENDS)
    for last in mine.keys() & other.keys():
        assert mine[last] == other[last], last
    if bases[0] != bases[1]:
        found.add(OnPurpose.GROUPING)
    return found


def batches_of(log: bytes) -> dict[int, tuple[int, object]]:
    """By last offset: the number of records, and the content as of `content`."""
    rows = [
        (int(columns.last_offset[row]), int(columns.record_count[row]))
        for columns in scan_bytes(log)
        for row in range(len(columns))
    ]
    return {last: (count, held) for (last, count), held in zip(rows, content(log), strict=True)}


def compare_rounds(
    oracle: Oracle,
    directory: Path,
    rules: CompactionRules,
    times_ms: list[int],
    map_slots: int | None = None,
    *,
    starts_over: bool = False,
) -> tuple[int, set[OnPurpose]]:
    """Run the rounds by both, compare every log; returns how many rounds cleaned something, and what differed as it should.

    `starts_over`: each round covers the whole log, as the engine does: then it is compared in all of them.
    """
    config = {
        "segment.bytes": rules.segment_bytes,
        "delete.retention.ms": rules.delete_retention_ms,
        "index.interval.bytes": 1_000_000,
    }
    oracle.recover(directory, config=config)
    max_keys = None if map_slots is None else int(map_slots * MAP_LOAD_FACTOR)
    done, differences = 0, set[OnPurpose]()
    first_dirty: int | None = None
    partition = partition_in(directory)
    for now_ms in times_ms:
        # The broker loads the log again, as it was cleaned. An empty batch of markers gives it no time: that producer expires.
        found = partition_in(directory)
        before, last_batches = found.segments, found.last_batches(now_ms)
        cleaned = oracle.clean(
            directory,
            [CleanRound(now_ms)],
            config=config,
            first_dirty_offset=first_dirty,
            map_slots=map_slots,
        )
        (kafka,) = cleaned.rounds
        at_now = replace(rules, now_ms=now_ms)
        planned = cleanable(before, first_dirty, cleaned)
        assert (planned.first_dirty_offset, planned.first_uncleanable_offset) == (
            kafka.first_dirty_offset,
            kafka.first_uncleanable_offset,
        )
        assert (planned.clean_bytes, planned.cleanable_bytes) == (kafka.clean_bytes, kafka.cleanable_bytes)
        if not kafka.cleaned:
            continue
        done += 1
        after = partition_in(directory).segments
        ours, result = round_as(partition, before, at_now, kafka, last_batches, max_keys)
        assert result.end_offset == kafka.end_offset
        assert [segment.base_offset for segment in ours] == [segment.base_offset for segment in after]
        for mine, theirs in zip(ours, after, strict=True):
            assert content(mine.log) == content(theirs.log), theirs.base_offset
        if first_dirty is None and map_slots is None:
            covered = [segment for segment in before if segment.base_offset < kafka.first_uncleanable_offset]
            covered[-1] = replace(covered[-1], end_offset=kafka.first_uncleanable_offset)
            _, logs = compact(covered, at_now, partition, last_batches=last_batches, slots=1024)
            for log, theirs in zip(logs, after, strict=False):
                assert content(log) == content(theirs.log), theirs.base_offset
            shipped = replace(at_now, kafka_4_3=False, legacy_format=LegacyFormat.CONVERT)
            results, logs = compact(covered, shipped, partition, last_batches=last_batches)
            theirs_ = [segment for segment in after if segment.base_offset < covered[-1].end_offset]
            bases = [result.base_offset for result in results], [segment.base_offset for segment in theirs_]
            differences |= check_as_shipped(logs, [segment.log for segment in theirs_], bases)
        first_dirty = None if starts_over else kafka.end_offset
    return done, differences


@pytest.mark.parametrize("seed", SEEDS)
def test_random_logs_are_cleaned_as_by_kafka(oracle: Oracle, tmp_path: Path, seed: int) -> None:
    log = random_log(seed, replace(CLEANER, legacy=seed % 3 == 1))
    slots = (None, None, 4, 9)[seed % 4]
    rules = CompactionRules(
        log.now_ms,
        kafka_4_3=True,
        delete_retention_ms=DAY_MS,
        segment_bytes=SEGMENT_BYTES if seed % 3 else 1_000_000,
    )
    times_ms = [log.now_ms, log.now_ms + DAY_MS // 2, log.now_ms + DAY_MS, log.now_ms + 3 * DAY_MS]
    compare_rounds(oracle, log.write(tmp_path), rules, times_ms, slots, starts_over=seed % 4 == 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_kafka_reads_what_the_engine_writes(oracle: Oracle, tmp_path: Path, seed: int) -> None:
    """By all strategies and in all formats; its own codecs decompress what was compressed again."""
    partition, now_ms = random_partition(seed)
    last_batches = partition.last_batches(now_ms)
    _, logs = compact(partition.rolled, rules_for(seed, now_ms), partition, last_batches=last_batches)
    for log in logs:
        file = tmp_path / "0.log"
        file.write_bytes(log)
        assert all(batch.is_valid for batch in oracle.dump_batches(file))
        assert oracle.dump_records(file) == decoded(log)


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_directories_are_cleaned_as_by_kafka(oracle: Oracle, tmp_path: Path, version: str) -> None:
    done, differences, refused = 0, set[OnPurpose](), set()
    now_ms = wall_clock_ms(version)
    for path in partitions(version):
        copy = shutil.copytree(path, tmp_path / path.name, copy_function=shutil.copy2)
        rules = CompactionRules(now_ms, kafka_4_3=True, segment_bytes=16384)
        try:
            rounds, found = compare_rounds(oracle, copy, rules, [now_ms, now_ms + 2 * DAY_MS])
            done, differences = done + rounds, differences | found
        except OracleRefused as error:
            # A legacy message that loses at the end of the round: Kafka gives up the partition, for good.
            refused.add((path.name.rpartition("-")[0], "Empty batches are only supported for magic v2" in str(error)))
    assert refused <= {(topic, True) for topic in ("legacy-v0", "legacy-v1", "legacy-v1-append-time", "legacy-mixed")}
    assert done >= 10
    assert differences == {OnPurpose.GROUPING}
