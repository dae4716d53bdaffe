"""The scenarios of upstream's LogCleanerTest, by its names, for what has a meaning outside of a broker.

Transactions: test_cleaner_transaction_rows.py. LogCleanerManagerTest (what may be cleaned when): compactor/test_cleanable_rows.py.

Left out, because only a broker has them: testSizeTrimmedForPreallocatedAndCompactedTopic (we write no file ahead),
testCleanSegmentsWithAbort, testCleanSegmentsWithConcurrentSegmentDeletion, testRecoveryAfterCrash (swap of files in place: our
results become visible by one commit), testSegmentGroupingFollowingLoadOfZeroIndex's index (ranges come from the next base, so
the row is one of grouping), testSegmentWithOffsetOverflow's split (refused with position instead), testGrabFilthiest (all
partitions that are due are taken), testDoneCleaning, testMaybeTruncateCheckpoint (state of a broker's cleaner threads).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.compaction.outputs import SegmentSize, grouped, legacy_tombstones_kept
from sidecar.compaction.rules import CompactionRules, LegacyFormat
from sidecar.compaction.segments import SegmentInput
from sidecar.errors import CorruptFile
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.legacy import build_legacy_message, build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from tests.compaction.engine import compact
from tests.compaction.reference.cleaning import clean
from tests.compaction.reference.values import ReferenceSegment
from tests.compaction.story import RETENTION_MS, Story

LARGEST = 2**31 - 1


def test_clean_segments() -> None:
    story = Story()
    for key in range(12):
        story.put(key)
        if key % 4 == 3:
            story.roll()
    story.put(1, 3, 5, 7, 9).roll()
    story.clean()
    assert story.keys() == [0, 2, 4, 6, 8, 10, 11, 1, 3, 5, 7, 9]


def test_duplicate_check_after_cleaning() -> None:
    story = Story()
    story.put(1, 2, 3, producer=1).put(3, 1, 4, producer=2).put(1, 4, producer=3).roll()
    dirty = story.clean().end_offset
    assert (story.offsets(), story.last_offsets()) == ([1, 3, 6, 7], [2, 5, 7])
    assert story.last_sequences() == {1: 2, 2: 2, 3: 1}
    story.put(2, producer=4).roll()
    story.clean(dirty)
    assert (story.offsets(), story.last_offsets()) == ([3, 6, 7, 8], [2, 5, 7, 8])
    assert story.last_sequences() == {1: 2, 2: 2, 3: 1, 4: 0}


def test_partial_segment_clean() -> None:
    story = Story()
    for key in (0, 1, 0, 1, 0):
        story.put(key)
    story.roll()
    for first_dirty, keys in ((2, [1, 0, 1, 0]), (3, [0, 1, 0]), (4, [1, 0])):
        assert story.clean(first_dirty, slots=2).end_offset == first_dirty + 1
        assert story.keys() == keys


def test_log_cleaner_stats() -> None:
    story = Story()
    for key in (0, 1, 0, 1, 0):
        story.put(key)
    cleaned = story.roll().clean(2, slots=4)
    assert (cleaned.end_offset, cleaned.unkeyed_records, len(story.records())) == (5, 0, 2)


def test_build_offset_map() -> None:
    story = Story()
    for key in range(500):
        story.put(key)
        if key % 90 == 89:
            story.roll()
    assert story.roll().clean(uncleanable=180).end_offset == 180
    assert story.offsets() == list(range(500))


def test_build_offset_map_fake_large() -> None:
    story = Story().put(0)
    story.next_offset = 7206178
    assert story.put(1).put(0).roll().clean().end_offset == 7206180
    assert story.offsets() == [7206178, 7206179]


def test_build_partial_offset_map() -> None:
    story = Story()
    for key in range(5):
        story.put(key)
    assert story.roll().clean(2, slots=3).end_offset == 4
    assert story.offsets() == [0, 1, 2, 3, 4]


def test_cleaning_with_uncleanable_section() -> None:
    story = Story()
    for _ in range(7):
        story.put(1).put(1).put(1).roll()
    sizes = [len(segment.log) for segment in story.segments]
    story.clean(uncleanable=6)
    shrunk = [len(segment.log) < size for segment, size in zip(story.segments, sizes, strict=True)]
    assert shrunk == [True, True, *[False] * 5]


def test_cleaning_with_unkeyed_messages() -> None:
    story = Story()
    for key in (None, None, 1, None, 2):
        story.put(key)
    assert story.roll().clean().unkeyed_records == 3
    assert story.keys() == [1, 2]


@pytest.mark.parametrize(("first", "second", "dirty"), [(11, None, 11), (15, 30, 30)])
def test_cleaning_beyond_missing_offsets(first: int, second: int | None, dirty: int) -> None:
    story = Story()
    for key in range(10):
        story.put(key)
    story.roll(first)
    if second is not None:
        for key in range(10):
            story.put(key)
        story.roll(second)
    assert story.clean().end_offset == dirty


def test_cleaning_with_deletes() -> None:
    story = Story()
    for key in range(20):
        story.put(key)
    story.roll()
    for key in range(0, 20, 2):
        story.put(key, value=None)
    story.roll().put(99).roll()
    story.clean()
    values = {record.key: record.value for record in story.records()}
    assert [key for key in range(20) if values.get(b"%d" % key) is not None] == list(range(1, 20, 2))


def test_clean_tombstone() -> None:
    story = Story().put(0, timestamps_ms=(2**60,)).roll()
    dirty = story.clean(now_ms=5 * RETENTION_MS).end_offset
    story.put(0, value=None, timestamps_ms=(1,)).roll()
    dirty = story.clean(dirty, now_ms=5 * RETENTION_MS).end_offset
    assert [record.value for record in story.records()] == [None]
    story.put(1).roll()
    story.clean(dirty, now_ms=6 * RETENTION_MS - 1)
    assert [record.value for record in story.records()] == [None, b"v"]
    story.clean(dirty, now_ms=6 * RETENTION_MS)
    assert [record.value for record in story.records()] == [b"v"]


@pytest.mark.parametrize("codec", range(5))
def test_large_message(codec: int) -> None:
    story = Story(codec=codec)
    story.put(1, value=bytes(1024 * 1024)).put(1, 2, value=bytes(1024 * 1024)).put(2).roll()
    story.clean()
    assert story.offsets() == [1, 3]


def test_message_larger_than_max_message_size() -> None:
    story = Story().put(b"k" * (1024 * 1024), value=bytes(3 * 1024 * 1024)).put(1).roll()
    story.clean()
    assert story.offsets() == [0, 1]


def engine_refuses(log: bytes, match: str, *, end_offset: int = 10) -> CorruptFile:
    rules = CompactionRules(0)
    with pytest.raises(CorruptFile, match=match) as caught:
        compact([ReferenceSegment(0, end_offset, log)], rules)
    assert caught.value.file == f"{0:020d}.log"
    return caught.value


def test_message_larger_than_max_message_size_with_corrupt_header() -> None:
    story = Story().put(1, value=bytes(1024 * 1024)).put(2)
    log = bytearray(b"".join(story.active))
    log[16] = 0xFF
    assert engine_refuses(bytes(log), "magic -1").position == 0


def test_corrupt_message_size_larger_than_bytes_available() -> None:
    story = Story().put(1, value=bytes(1024 * 1024)).put(2)
    assert engine_refuses(b"".join(story.active)[:1024], "cut").position == 0


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("convert", [False, True])
def test_clean_corrupt_message_set(*, duplicates: bool, convert: bool) -> None:
    records = [Record(at, -1, b"%d" % (at // 2 if duplicates else at), b"%d" % at) for at in range(6)]
    wrapper = build_legacy_wrapper(records, codec=1, magic=1, nested_magic=0)
    rules = CompactionRules(0, legacy_format=LegacyFormat.CONVERT if convert else LegacyFormat.KEEP)
    segment = ReferenceSegment(0, 6, wrapper)
    _, (log,) = compact([segment], rules)
    assert log == clean([segment], rules).groups[0].log != wrapper
    found = list(read_records(log))
    assert {record.magic for record in found} == {2 if convert else 1}
    assert [int(record.value or b"") for record in found] == [record.offset for record in found]
    assert len(found) == (3 if duplicates else 6)


def test_segment_grouping() -> None:
    segments = [SegmentSize(base, base + 10, 100, index_bytes=16) for base in range(0, 100, 10)]
    rules = CompactionRules(0)
    assert grouped(segments, rules) == (10,)
    assert grouped(segments, replace(rules, segment_bytes=1)) == (1,) * 10
    assert grouped(segments, replace(rules, segment_index_bytes=1)) == (1,) * 10
    assert grouped(segments, replace(rules, segment_bytes=301)) == (3, 3, 3, 1)
    assert grouped(segments, replace(rules, segment_index_bytes=49)) == (3, 3, 3, 1)


def test_segment_grouping_with_sparse_offsets() -> None:
    rules = CompactionRules(0)
    first, second = SegmentSize(0, 1, 100), SegmentSize(1, LARGEST + 1, 100)
    third = SegmentSize(LARGEST + 1, LARGEST + 2, 100)
    assert grouped([first, second], rules) == (2,)
    assert grouped([first, second, third], rules) == (2, 1)
    assert grouped([first, second, third, SegmentSize(LARGEST + 2, LARGEST + 9, 100)], rules) == (2, 2)


def test_segment_grouping_with_sparse_offsets_and_empty_segments() -> None:
    rules = CompactionRules(0)
    sparse = [SegmentSize(number * 2**31, (number + 1) * 2**31, 100) for number in range(3)]
    assert grouped(sparse, rules) == (1, 1, 1)
    emptied = [
        replace(sparse[0], size_bytes=0, is_empty=True),
        replace(sparse[1], size_bytes=0, is_empty=True),
        sparse[2],
    ]
    assert grouped(emptied, rules) == (2, 1)


def test_segment_grouping_following_load_of_zero_index() -> None:
    sparse = [SegmentSize(0, LARGEST + 10, 100, index_bytes=0), SegmentSize(LARGEST + 10, LARGEST + 20, 100)]
    assert grouped(sparse, CompactionRules(0)) == (1, 1)


def test_segment_with_offset_overflow() -> None:
    far = build_batch([Record(2**31 + 5, 0, b"a", b"b")])
    near = build_batch([Record(0, 0, b"a", b"b")])
    assert engine_refuses(near + far, "largest possible", end_offset=2**31 + 6).position == len(near)


def test_a_legacy_batch_that_loses_at_the_end() -> None:
    messages = [build_legacy_message(at, key, b"%d" % at, timestamp_ms=at) for at, key in enumerate((b"a", None))]
    segment = ReferenceSegment(0, 2, b"".join(messages))
    rules = CompactionRules(0)
    _, (log,) = compact([segment], rules)
    assert log == clean([segment], rules).groups[0].log
    assert log.startswith(messages[0])
    assert not log.endswith(messages[1])
    assert len(log) == len(messages[0]) + 61


@pytest.mark.parametrize(
    ("times_ms", "first_dirty_offset", "kept"),
    [
        ((5500, 6000, 9000), 20, [True, True, True]),
        ((4000, 5000, 9000), 20, [False, True, True]),
        ((4000, 5000, 9000), 0, [True, True, True]),
        ((-1, 5000, 9000), 20, [True, True, True]),
        ((4000, -1, -1), 20, [True, True, True]),
        ((-1, -1, -1), 0, [True, True, True]),
        ((0, 5000, 9000), 0, [False, True, True]),
    ],
)
def test_tombstones_of_old_formats_go_by_the_times_of_segments_and_stay_where_one_is_unknown(
    times_ms: tuple[int, ...], first_dirty_offset: int, kept: list[bool]
) -> None:
    segments = [
        SegmentInput(10 * number, 10 * number + 10, 0, lambda _position, _buffer: 0, last_modified_ms=time_ms)
        for number, time_ms in enumerate(times_ms)
    ]
    rules = CompactionRules(10_000, delete_retention_ms=1000)
    assert legacy_tombstones_kept(segments, rules, first_dirty_offset) == kept
    assert legacy_tombstones_kept(segments, replace(rules, spares_deletes=True), first_dirty_offset) == [True] * 3
