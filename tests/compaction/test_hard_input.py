"""Damaged, odd and large input: nothing crashes, nothing is lost, memory stays."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_state.replay import CompletedTransaction
from sidecar.compaction.inflating import Inflater
from sidecar.compaction.key_table import KeyTable, reduce_blobs
from sidecar.compaction.library import seal_buffer
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.scan import scan_split
from sidecar.compaction.segments import Split, chunks
from sidecar.compaction_strategy import Strategy
from sidecar.errors import CorruptFile, SegmentChanged, SettingsError, SidecarError
from sidecar.logformat.bodies.building import build_batch, build_empty_batch
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.headers import Codec
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.packing import bucket_bits, table_slots
from sidecar.rewriting.run import required, rewritten, scanned
from tests.compaction.engine import HASH_KEY, Source, as_input, compact, job_of
from tests.compaction.reference.cleaning import clean
from tests.compaction.reference.values import ReferenceSegment
from tests.compaction.story import NOW_MS, RETENTION_MS, Story

RULES = CompactionRules(10**12)


def sealed(batch: bytes) -> bytes:
    data = np.frombuffer(bytearray(batch), np.uint8)
    seal_buffer(data, len(data))
    return data.tobytes()


def same_as_reference(log: bytes, end_offset: int, rules: CompactionRules = RULES, **options: int) -> bytes:
    segment = ReferenceSegment(0, end_offset, log)
    _, (found,) = compact([segment], rules, **options)
    assert found == clean([segment], rules).groups[0].log
    return found


def test_a_key_of_no_bytes_is_a_key() -> None:
    story = Story().put(b"").put(b"").put(None).roll()
    assert len(same_as_reference(story.segments[0].log, 3)) > 0
    story.clean()
    assert [record.key for record in story.records()] == [b""]


@pytest.mark.parametrize("exact", [False, True])
def test_a_key_of_a_mebibyte(exact: bool) -> None:
    rules = replace(RULES, exact_keys=exact)
    story = Story()
    for last in b"abca":
        story.put(bytes(2**20) + bytes([last]))
    same_as_reference(story.roll().segments[0].log, 4, rules, slots=1024)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("strategy", Strategy)
def test_more_keys_than_the_table_has_slots(strategy: Strategy, exact: bool) -> None:
    rules = replace(RULES, strategy=strategy, header="v", exact_keys=exact)
    random = Random(1)
    story = Story()
    for _ in range(40):
        keys = [random.randrange(3000) for _ in range(200)]
        version = tuple((("v", struct.pack(">q", random.randrange(5))),) for _ in keys)
        story.put(*keys, headers=version, timestamps_ms=tuple(random.randrange(50) for _ in keys))
    same_as_reference(story.roll().segments[0].log, story.next_offset, rules, slots=1024, split_bytes=3000)


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_with_more_records_than_the_table_has_slots(codec: int) -> None:
    story = Story(codec=codec).put(*range(3000)).put(*range(2000)).roll()
    same_as_reference(story.segments[0].log, 5000, slots=1024)


def test_only_tombstones_and_then_nothing_but_the_end() -> None:
    story = Story()
    story.rules = replace(story.rules, now_ms=1000, delete_retention_ms=10)
    story.put(1, value=None).put(2, value=None).roll()
    dirty = story.clean().end_offset
    assert story.offsets() == [0, 1]
    story.clean(dirty, now_ms=1010)
    assert (story.offsets(), story.last_offsets()) == ([], [1])


def test_a_log_of_markers_only() -> None:
    story = Story().commit(1).abort(2).commit(1).roll()
    dirty = story.clean().end_offset
    assert story.offsets() == [0, 1, 2]
    story.clean(dirty, now_ms=NOW_MS + RETENTION_MS)
    assert story.last_offsets() == [0, 1, 2]  # no producer has data: control batches of its epoch are its last


def test_the_largest_offsets() -> None:
    base = 2**62
    batches = [build_batch([Record(at, 0, b"a", b"b")]) for at in (base, base + 2**31 - 2, base + 2**31 - 1)]
    segment = ReferenceSegment(base, base + 2**31, b"".join(batches))
    results, (log,) = compact([segment], RULES)
    assert log == batches[2]
    assert results[0].end_offset == base + 2**31


def test_an_empty_segment_and_no_segment() -> None:
    results, logs = compact([ReferenceSegment(0, 5, b""), ReferenceSegment(5, 7, b"")], RULES)
    assert (logs, results[0].end_offset) == ([b""], 7)
    assert compact([], RULES) == ([], [])


def test_equal_hashes_of_different_keys_are_distinguished_with_exact_keys() -> None:
    def blob(key: bytes, ordinal: int, split: int = 0) -> bytes:
        return struct.pack("<QQQQqq", 1, 11, 22, split << 32 | ordinal + 1, 0, len(key)) + key

    rules = replace(RULES, exact_keys=True)
    (winners,) = reduce_blobs([blob(b"one", 0), blob(b"two", 1), blob(b"one", 2)], rules, 1, 0)
    assert sorted(np.frombuffer(winners.ordinals, np.uint32)) == [1, 2]
    by_hash = [struct.pack("<QQQQ", 1, 11, 22, ordinal + 1) for ordinal in range(3)]
    (winner,) = reduce_blobs(by_hash, RULES, 1, 0)
    assert list(np.frombuffer(winner.ordinals, np.uint32)) == [2]


@pytest.mark.parametrize("exact", [False, True])
@given(st.binary(max_size=200))
def test_any_blob_is_read_or_refused(exact: bool, blob: bytes) -> None:
    with suppress(CorruptFile):
        reduce_blobs([blob], replace(RULES, exact_keys=exact), 3, 2)


def test_a_blob_that_claims_too_much_is_refused() -> None:
    for bad in (struct.pack("<Q", 2**40), struct.pack("<QQQQ", 2, 1, 1, 1), struct.pack("<QQQQ", 1, 1, 1, 9 << 32 | 1)):
        with pytest.raises(CorruptFile, match="exchange between stages"):
            reduce_blobs([bad], RULES, 1, 0)


LOGS = [
    Story(codec=codec).put(1, 2, None, 1, headers=((("v", bytes(8)),), (), (), (("", None),))).put(2, value=None).roll()
    for codec in range(5)
]


@pytest.mark.parametrize("codec", range(5))
@settings(max_examples=60)
@given(position=st.integers(21, 400), byte=st.integers(0, 255))
def test_any_damage_under_a_right_checksum_is_found_or_harmless(codec: int, position: int, byte: int) -> None:
    log = LOGS[codec].segments[0].log
    size = int.from_bytes(log[8:12]) + 12
    first = bytearray(log[:size])
    first[position % size] = byte
    first[8:12] = log[8:12]
    data = sealed(bytes(first)) + log[size:]
    segment = ReferenceSegment(0, 100, data)
    ours: bytes | None = None
    with suppress(CorruptFile):
        (ours,) = compact([segment], RULES)[1]
    theirs: bytes | None = None
    with suppress(CorruptFile, ValueError):
        theirs = clean([segment], RULES).groups[0].log
    if theirs is not None:
        assert ours is not None


@given(st.binary(max_size=300), st.integers(0, 4))
def test_any_records_decode_or_are_refused(body: bytes, count: int) -> None:
    header = build_empty_batch(base_offset=0, last_offset=9)
    batch = bytearray(header + body)
    batch[57:61] = count.to_bytes(4)
    with suppress(CorruptFile):
        compact([ReferenceSegment(0, 10, sealed(bytes(batch)))], replace(RULES, strategy=Strategy.HEADER, header="v"))


def test_a_flipped_bit_is_found_with_its_position() -> None:
    story = Story().put(1).put(2).roll()
    log = bytearray(story.segments[0].log)
    log[-1] ^= 1
    with pytest.raises(CorruptFile, match="checksum") as caught:
        compact([ReferenceSegment(0, 2, bytes(log))], RULES)
    assert caught.value.position == len(log) // 2


@pytest.mark.parametrize("codec", [0, 3])
def test_a_segment_that_changes_between_scan_and_rewriting(codec: int) -> None:
    logs = [Story(codec=codec).put(*keys).put(7).roll().segments[0].log for keys in ((1, 2, 1), (1, 1, 1))]
    shorter = Story(codec=codec).put(1, 2, 1).roll().segments[0].log
    damaged = bytearray(logs[0])
    damaged[len(logs[0]) // 3] ^= 1
    before = ReferenceSegment(0, 4, logs[0])
    for changed in (shorter, bytes(damaged)):
        job = job_of([before], RULES)
        with scanned([job], LocalEngine()) as run:
            (found,) = run.results
            assert not isinstance(found, SidecarError)
            now = replace(found, job=replace(job, files=(Source(before, changed),)))
            with pytest.raises((CorruptFile, SegmentChanged), match=r"0\.log|segment"):
                required(rewritten(replace(run, results=(now,)), None)[0])


def test_a_piece_that_ends_within_a_batch_is_reported() -> None:
    log = Story().put(1).put(2).roll().segments[0].log
    job = job_of([ReferenceSegment(0, 2, log)], RULES)
    ((piece,),) = job.pieces
    cut = replace(piece, end=len(log) // 2 + 5), replace(piece, begin=len(log) // 2 + 5)
    with scanned([replace(job, pieces=(cut,))], LocalEngine()) as run:
        (found,) = run.results
    assert isinstance(found, CorruptFile)
    assert "ended there when the segment was first read" in str(found)


def test_small_windows_and_large_batches_give_the_same() -> None:
    story = Story(codec=2)
    for number in range(30):
        story.put(*range(number + 1))
    segment = as_input(story.roll().segments[0])
    split = Split(0, 0, 0, segment.size_bytes)
    for window_bytes in (64, 1000, 1 << 20):
        found = [
            size for chunk in chunks(segment, split, window_bytes=window_bytes) for size in chunk.columns().size_bytes
        ]
        assert sum(found) == segment.size_bytes


def test_blobs_are_emitted_when_the_table_is_full_and_hold_every_key() -> None:
    emitted: list[tuple[int, bytes]] = []
    table = KeyTable(RULES, HASH_KEY, lambda bucket, blob: emitted.append((bucket, blob)), slots=1024, bucket_bits=3)
    story = Story()
    for begin in range(0, 5000, 100):
        story.put(*range(begin, begin + 100))
    segment = as_input(story.roll().segments[0])
    scan = scan_split(segment, Split(0, 0, 0, segment.size_bytes), table, Inflater())
    table.emit()
    assert (scan.record_count, scan.competing) == (5000, 5000)
    assert len(emitted) > 8
    winners = 0
    for bucket in range(8):
        for found in reduce_blobs([blob for number, blob in emitted if number == bucket], RULES, 1, 3):
            winners += len(found.ordinals) // 4
    assert winners == 5000


def test_sizes_of_tables_and_buckets_follow_the_input() -> None:
    assert (bucket_bits(0), bucket_bits(2**26), bucket_bits(2**26 + 1), bucket_bits(2**50)) == (0, 0, 1, 12)
    assert (table_slots(0), table_slots(10**6), table_slots(2**40)) == (1024, 32768, 2**21)


@pytest.mark.parametrize("options", [{"segment_bytes": 0}, {"delete_retention_ms": -1}])
def test_impossible_rules_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(SettingsError):
        CompactionRules(0, **options)  # type: ignore[arg-type]


def claiming(batch: bytes, count: int) -> bytes:
    """The batch with another count of records, and offsets for so many."""
    changed = bytearray(batch)
    changed[57:61] = count.to_bytes(4, signed=True)
    changed[23:27] = max(count - 1, 0).to_bytes(4, signed=True)
    return sealed(bytes(changed))


def gone_or_kept(kind: str, codec: int, base_offset: int) -> bytes:
    records = [Record(base_offset + at, 5, b"k%d" % at, b"v" * 10) for at in range(3)]
    transactional = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    return build_batch(records, codec=codec, **(transactional if kind == "aborted" else {}))


@pytest.mark.parametrize("kind", ["data", "deleted", "aborted"])
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [2**31 - 1, 2**20, 11])
def test_a_count_that_cannot_fit_the_records_is_corruption(kind: str, codec: Codec, count: int) -> None:
    """Before anything is allocated for it: a table for so many keys would take 128 GiB."""
    first = build_batch([Record(0, 5, b"k", b"v")])
    log = first + claiming(gone_or_kept(kind, codec, 1), count)
    segment = ReferenceSegment(0, 2**31, log)
    job = job_of([segment], RULES, start_offset=2**31 if kind == "deleted" else 0)
    if kind == "aborted":
        job = replace(job, completed=(CompletedTransaction(7, 1, 2**31 + 5, 0, aborted=True),))
    with scanned([job], LocalEngine()) as run:
        (found,) = run.results
    assert isinstance(found, CorruptFile)
    assert f"{count} records claimed" in str(found) or "does not decode" in str(found)
    assert (found.file, found.position, found.offset) == (as_input(segment).file, len(first), 1)


def test_batches_with_as_many_records_as_fit_are_no_corruption() -> None:
    records = [Record(at, 0, b"", b"") for at in range(50)]
    for codec in Codec:
        log = build_batch(records, codec=codec)
        same_as_reference(log, 50)
