"""The strategies of KIP-280: the worked examples X1 to X15, in every codec, and the survivor of a key."""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.errors import RecordRefused
from sidecar.logformat.bodies.record import Header, Record
from tests.compaction.engine import compact
from tests.compaction.reference.cleaning import clean
from tests.compaction.reference.ranks import sort_key
from tests.compaction.reference.values import ReferenceSegment
from tests.compaction.story import RETENTION_MS, Story

NOW_MS = 10 * RETENTION_MS
HEADER = CompactionRules(
    NOW_MS, strategy=Strategy.HEADER, header=" v ", delete_retention_ms=RETENTION_MS, kafka_4_3=True
)
TIMESTAMP = replace(HEADER, strategy=Strategy.TIMESTAMP)

Reported = tuple[str, bytes | None, tuple[Header, ...]]


def v(*versions: int) -> tuple[Header, ...]:
    return tuple(("v", struct.pack(">q", version)) for version in versions)


def reported(key: str, value: str | None, headers: tuple[Header, ...] = ()) -> Reported:
    return key, None if value is None else value.encode(), headers


A, B = "a", "b"
# Clean part with its offsets, dirty part, values that stay by key and offset.
EXAMPLES: dict[str, tuple[dict[int, Reported], dict[int, Reported], dict[int, Reported]]] = {
    "X1": (
        {},
        {0: reported(A, "1", v(5)), 1: reported(A, "2", v(7)), 2: reported(A, "3", v(6))},
        {1: reported(A, "2", v(7))},
    ),
    "X2": ({}, {0: reported(A, "1", v(7)), 1: reported(A, "2", v(7))}, {1: reported(A, "2", v(7))}),
    "X3": ({}, {0: reported(A, "1", v(1)), 1: reported(A, "2")}, {0: reported(A, "1", v(1))}),
    "X4": ({}, {0: reported(A, "1"), 1: reported(A, "2")}, {1: reported(A, "2")}),
    "X5": (
        {3: reported(A, "9", v(9))},
        {10: reported(A, "4", v(4)), 11: reported(B, "1", v(1))},
        {3: reported(A, "9", v(9)), 11: reported(B, "1", v(1))},
    ),
    "X6": (
        {3: reported(A, "2", v(2))},
        {10: reported(A, "4", v(4)), 11: reported(B, "1", v(1))},
        {10: reported(A, "4", v(4)), 11: reported(B, "1", v(1))},
    ),
    "X7": (
        {2: reported(A, "5", v(5)), 4: reported(A, "6", v(6))},
        {10: reported(A, "1", v(1)), 11: reported(B, "1")},
        {4: reported(A, "6", v(6)), 11: reported(B, "1")},
    ),
    "X9": (
        {3: reported(A, "7", v(7))},
        {10: reported(A, None, v(5)), 11: reported(B, "1")},
        {3: reported(A, "7", v(7)), 11: reported(B, "1")},
    ),
    "X10": (
        {3: reported(A, "7", v(7))},
        {10: reported(A, None, v(8)), 11: reported(B, "1")},
        {10: reported(A, None, v(8)), 11: reported(B, "1")},
    ),
    "X11": ({}, {0: reported(A, "1", v(1, 9, 4)), 1: reported(A, "2", v(3))}, {0: reported(A, "1", v(1, 9, 4))}),
    "X12": (
        {},
        {0: reported(A, "1", (("v", bytes.fromhex("00000009")),)), 1: reported(A, "2", v(-5))},
        {1: reported(A, "2", v(-5))},
    ),
    "X13": (
        {},
        {0: reported(A, "1", v(5)), 1: reported(B, "1", v(1)), 2: reported(A, "2", v(3))},
        {0: reported(A, "1", v(5)), 1: reported(B, "1", v(1))},
    ),
}


def tell(
    rules: CompactionRules, clean_part: dict[int, Reported], dirty: dict[int, Reported], **options: int | bool
) -> Story:
    story = Story(rules, **options)  # type: ignore[arg-type]
    for part in (clean_part, dirty):
        for offset, (key, value, headers) in part.items():
            story.next_offset = offset
            story.put(key, value=value, headers=(headers,))
        if part:
            story.roll()
    return story


def left(story: Story) -> dict[int, Reported]:
    return {
        record.offset: (record.key.decode(), record.value, record.headers) for record in story.records() if record.key
    }


def in_rounds(story: Story, first_dirty: int, slots: int | None) -> int:
    """Rounds until everything was covered, and one more; returns how many."""
    for rounds in itertools.count(1):
        before, first_dirty = first_dirty, story.clean(first_dirty, slots=slots).end_offset
        if before == first_dirty:
            return rounds
    raise AssertionError


@pytest.mark.parametrize(
    ("codec", "append_time", "slots"), [(0, False, 2), (1, True, 3), (2, False, None), (3, True, 2), (4, True, None)]
)
@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_example(name: str, codec: int, append_time: bool, slots: int | None) -> None:
    clean_part, dirty, expected = EXAMPLES[name]
    story = tell(HEADER, clean_part, dirty, codec=codec, append_time=append_time)
    in_rounds(story, min(dirty), slots)
    assert left(story) == expected
    assert story.last_offsets()[-1] == max(dirty)
    if clean_part or name == "X13":
        return
    together = Story(HEADER, codec=codec, append_time=append_time)  # the same records as one batch
    values = tuple(value for _, value, _ in dirty.values())
    together.put(
        A, *[A] * (len(dirty) - 1), values=values, headers=tuple(headers for *_, headers in dirty.values())
    ).roll()
    together.clean()
    assert left(together) == expected


@pytest.mark.parametrize("codec", range(5))
def test_x8_timestamps(codec: int) -> None:
    story = Story(TIMESTAMP, codec=codec)
    for time in (100, -1, 50):
        story.put(A, timestamps_ms=(time,))
    story.roll().clean()
    assert (story.offsets(), story.last_offsets()) == ([0], [0, 2])
    together = Story(TIMESTAMP, codec=codec).put(A, A, A, timestamps_ms=(100, -1, 50)).roll()
    together.clean()
    assert together.offsets() == [0]
    appended = Story(TIMESTAMP, codec=codec, append_time=True).put(A, A, A, timestamps_ms=(100, -1, 50)).roll()
    appended.clean()
    assert appended.offsets() == [2]  # all of one time


def test_x7_without_reading_the_clean_part_first() -> None:
    story = tell(HEADER, *EXAMPLES["X7"][:2])
    story.clean(10, raise_first=False)
    assert story.offsets() == [2, 4, 11]  # no wrong winner, only one too many


def test_x10_a_tombstone_goes_after_its_time_and_a_late_record_revives_the_key() -> None:
    story = tell(HEADER, *EXAMPLES["X10"][:2])
    dirty = story.clean(10).end_offset
    story.put(A, value=b"x", headers=(v(6),)).roll()
    story.clean(dirty, now_ms=NOW_MS + RETENTION_MS)
    assert story.offsets() == [11]  # the tombstone evicts in the round that drops it
    story.put(A, value=b"x", headers=(v(6),)).roll()
    story.clean(13, now_ms=NOW_MS + RETENTION_MS)
    assert story.offsets() == [11, 13]


@pytest.mark.parametrize("codec", range(5))
def test_a_record_without_a_value_deletes_and_the_text_null_does_not(codec: int) -> None:
    story = Story(codec=codec)
    for key in ("text", "empty", "deleted", "deleted and written again"):
        story.put(key)
    for key, value in (("text", b"null"), ("empty", b""), ("deleted", None), ("deleted and written again", None)):
        story.put(key, value=value)
    story.put("deleted and written again", value=b"x").roll()
    dirty = story.clean(now_ms=NOW_MS).end_offset
    values = {record.key: record.value for record in story.records()}
    expected = {b"text": b"null", b"empty": b"", b"deleted and written again": b"x"}
    assert values == {**expected, b"deleted": None}
    story.put("later").roll().clean(dirty, now_ms=NOW_MS + RETENTION_MS)
    assert {record.key: record.value for record in story.records() if record.key != b"later"} == expected


def test_x13_round_by_round() -> None:
    story = tell(HEADER, *EXAMPLES["X13"][:2])
    assert (story.clean(0, slots=2).end_offset, story.offsets()) == (1, [0, 1, 2])
    assert (story.clean(1, slots=2).end_offset, story.offsets()) == (2, [0, 1, 2])
    assert (story.clean(2, slots=2).end_offset, story.offsets()) == (3, [0, 1])


def test_x14_aborted_data_neither_wins_nor_raises() -> None:
    story = Story(HEADER)
    story.put(A, value=b"9", headers=(v(9),), producer=1, transactional=True).abort(1)
    story.put(A, value=b"1", headers=(v(1),), producer=1, transactional=True).commit(1).roll()
    story.clean()
    assert [record.value for record in story.records() if record.control is None] == [b"1"]


def test_x15_a_blank_header_name_means_offset() -> None:
    story = Story(replace(HEADER, header="  ")).put(A, headers=(v(9),)).put(A, headers=(v(1),)).roll()
    story.clean()
    assert story.offsets() == [1]


@pytest.mark.parametrize("codec", [0, 4])
def test_strict_mode_stops_at_a_malformed_version(codec: int) -> None:
    story = Story(HEADER, codec=codec).put(A, headers=(v(1),)).put(A, headers=((("v", None),),)).roll()
    rules = replace(HEADER, strict_headers=True, kafka_4_3=False)
    with pytest.raises(RecordRefused, match="header 'v' has no version") as caught:
        compact(story.segments, rules)
    assert caught.value.offset == 1
    with pytest.raises(RecordRefused, match="header 'v' has no version"):
        clean(story.segments, rules)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([None, 0, 1, -1, 2**63 - 1, -(2**63)]), st.booleans()),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(Strategy),
    st.sampled_from([2, 3, None]),
    st.integers(1, 7),
)
def test_the_survivor_of_a_key_is_its_greatest_record_however_rounds_are_cut(
    rows: list[tuple[str, int | None, bool]], strategy: Strategy, slots: int | None, per_segment: int
) -> None:
    rules = replace(HEADER, strategy=strategy)
    story = Story(rules)
    for number, (key, version, tombstone) in enumerate(rows):
        headers = v(version) if version is not None else ()
        value = None if tombstone else b"%d" % number
        story.put(key, value=value, headers=(headers,), timestamps_ms=(abs(version or 0) % 7,))
        if number % per_segment == per_segment - 1:
            story.roll()
    if story.active:
        story.roll()
    everything = story.records()
    in_rounds(story, 0, slots)
    best: dict[bytes, Record] = {}
    for record in everything:
        key = record.key or b""
        best[key] = max(record, best.get(key, record), key=lambda found: sort_key(found, rules))
    assert {(record.key, record.offset) for record in story.records()} == {
        (key, found.offset) for key, found in best.items()
    }


def test_segments_of_which_nothing_is_lost_stay() -> None:
    story = Story(HEADER)
    for key in range(4):
        story.put(f"unique{key}").roll()
    story.put(A, headers=(v(1),)).put(A, headers=(v(2),)).roll()
    results, logs = compact(story.segments, replace(HEADER, kafka_4_3=False, segment_bytes=100))
    assert [result.unchanged for result in results] == [True] * 4 + [False]
    merged, (log,) = compact(story.segments, replace(HEADER, kafka_4_3=False))
    assert not merged[0].unchanged
    assert log == b"".join(logs)
    again, (same,) = compact([ReferenceSegment(0, 6, log)], replace(HEADER, kafka_4_3=False))
    assert again[0].unchanged
    assert same == log
