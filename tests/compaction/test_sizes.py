"""Which segments are joined, given sizes; what a single segment does that is too large; endings that only some outputs need."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from sidecar.compaction.outputs import SegmentSize, grouped
from sidecar.compaction.rules import CompactionRules, LegacyFormat
from sidecar.errors import PartitionError
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.codecs import Codec
from sidecar.logformat.bodies.legacy import build_legacy_message, build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from tests.compaction.engine import compact
from tests.compaction.partitions import partition_of
from tests.compaction.reference.values import ReferenceSegment

RULES = CompactionRules(1_000_000, segment_bytes=1000)


@pytest.mark.parametrize("seed", range(50))
def test_groups_never_exceed_a_limit_and_never_span_a_gap(seed: int) -> None:
    random, segments, offset = Random(seed), list[SegmentSize](), 0
    for _ in range(40):
        base_offset = offset + (5 if random.random() < 0.1 else 0)
        offset = base_offset + random.choice([1, 10, 10, 2**30])
        size_bytes = random.choice([0, 100, 300, 700, 2**31])
        ending_bytes = random.choice([0, 61, 500])
        segments.append(
            SegmentSize(
                base_offset,
                offset,
                size_bytes,
                ending_bytes,
                index_bytes=random.choice([0, 8, 40]),
                is_settled=random.random() < 0.1,
            )
        )
    rules = replace(RULES, segment_index_bytes=100)
    groups, begin = grouped(segments, rules), 0
    assert sum(groups) == len(segments)
    for count in groups:
        group = segments[begin : begin + count]
        begin += count
        if count > 1:
            assert sum(found.size_bytes for found in group) + group[-1].ending_bytes <= rules.segment_bytes
            assert sum(found.index_bytes for found in group) <= rules.segment_index_bytes
            assert group[-1].end_offset - 1 - group[0].base_offset < 2**31
            assert not any(found.is_settled for found in group)
            assert all(after.base_offset == before.end_offset for before, after in pairwise(group))


def test_an_ending_counts_where_it_is_needed() -> None:
    first = SegmentSize(0, 10, 900, ending_bytes=0)
    lost, kept = SegmentSize(10, 20, 0, ending_bytes=101), SegmentSize(20, 30, 50)
    assert grouped([first, lost], RULES) == (1, 1)
    assert grouped([first, replace(lost, ending_bytes=100)], RULES) == (2,)
    assert grouped([replace(first, size_bytes=0, ending_bytes=1000), lost, kept], RULES) == (3,)
    # An empty source has no batch that could end the output: that of the segment before it does.
    empty = SegmentSize(20, 30, 0, is_empty=True)
    assert grouped([first, replace(lost, ending_bytes=100), empty], RULES) == (3,)


def plain(base_offset: int, keys: list[bytes], value: bytes = b"v") -> ReferenceSegment:
    records = [Record(base_offset + at, 5, key, value) for at, key in enumerate(keys)]
    log = b"".join(build_batch([record]) for record in records)
    return ReferenceSegment(base_offset, base_offset + len(keys), log, 5)


def test_an_ending_is_left_out_where_another_segment_follows() -> None:
    lost, stays = plain(0, [b"a", b"b"]), plain(2, [b"b", b"a"])
    partition = partition_of([(0, lost.log, 5), (2, stays.log, 5)])
    _, logs = compact([lost, stays], RULES, partition)
    assert logs == [stays.log]
    _, (ending, unchanged) = compact([lost, stays], replace(RULES, segment_bytes=1), partition)
    assert len(ending) == 61
    assert unchanged == stays.log


def legacy_segment(base_offset: int, count: int) -> ReferenceSegment:
    log = b"".join(build_legacy_message(base_offset + at, b"k%d" % at, b"v", magic=0) for at in range(count))
    return ReferenceSegment(base_offset, base_offset + count, log, 5)


def test_a_segment_that_grows_beyond_a_file_ends_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversion makes each message of magic 0 larger."""
    segment = legacy_segment(0, 20)
    partition = partition_of([(0, segment.log, 5)])
    rules = replace(RULES, legacy_format=LegacyFormat.CONVERT)
    _, (converted,) = compact([segment], rules, partition)
    assert len(converted) > len(segment.log)
    monkeypatch.setattr("sidecar.compaction.outputs.LARGEST_POSITION", len(converted) - 1)
    with pytest.raises(PartitionError, match=f"a segment of {len(converted)} bytes; a segment holds at most"):
        compact([segment], rules, partition)
    with pytest.raises(PartitionError, match="stays as it is"):
        compact([segment], replace(rules, kafka_4_3=True), partition)
    assert len(compact([segment], RULES, partition)[1][0]) == len(segment.log)


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_the_ending_of_a_legacy_segment(is_wrapped: bool) -> None:
    records = [Record(at, 5, b"k", b"v%d" % at) for at in range(2)]
    log = (
        build_legacy_wrapper(records, codec=Codec.GZIP)
        if is_wrapped
        else b"".join(build_legacy_message(r.offset, r.key, r.value, magic=1, timestamp_ms=5) for r in records)
    )
    lost, stays = ReferenceSegment(0, 2, log, 5), plain(2, [b"k"])
    partition = partition_of([(0, log, 5), (2, stays.log, 5)])
    assert compact([lost, stays], RULES, partition)[1] == [stays.log]
    results, (ending, _) = compact([lost, stays], replace(RULES, segment_bytes=1), partition)
    assert results[0].counts.kept_records == 0
    assert ending[16] == 2
