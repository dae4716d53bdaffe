"""Segments are joined by the sizes that they have after compaction, and none is committed before all its bytes were checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from sidecar.archive.state import PartitionState
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.errors import CorruptFile, ObjectDamaged, SegmentChanged
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.indexes.offset_index import OffsetIndexCheck
from sidecar.logformat.indexes.rebuild import IndexBuilder
from sidecar.logformat.names import Suffix, file_name
from sidecar.model import ObjectKey
from sidecar.ports import ObjectFacts
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.what_if import what_if
from sidecar.rewriting.work_files import LocalParts
from tests.compaction.directories import compacted
from tests.compactor.before_upload_rig import rig
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import (
    NOW_MS,
    WRITER,
    compact_one,
    compactor,
    log_of,
    only_state,
    sound,
    use,
)
from tests.runner.rig import archive, archived_states, copy_partitions, tools_for
from tests.segment.made_logs import LEADER_EPOCH, records_in, roll, winners

SEGMENT_BYTES = 20_000
RULES = CompactionRules(NOW_MS, segment_bytes=SEGMENT_BYTES)


def few_large_and_many_small(count: int = 8, *, seed: int = 0) -> dict[int, tuple[bytes, ...]]:
    """Segments of some 12 kB: one large value of a key of its own, and 200 small ones of keys that every segment has."""
    random, segments, offset = Random(seed), dict[int, tuple[bytes, ...]](), 0
    for number in range(count):
        large = Record(offset, NOW_MS - 5_000_000, b"large%d" % number, random.randbytes(9_000))
        small = [Record(offset + at, NOW_MS - 5_000_000, b"hot%d" % (at % 5), b"v") for at in range(1, 201)]
        batches = [build_batch([large], leader_epoch=LEADER_EPOCH)]
        batches += [build_batch(small[at : at + 20], leader_epoch=LEADER_EPOCH) for at in range(0, 200, 20)]
        segments[offset] = tuple(batches)
        offset += 201
    return {**segments, offset: ()}


def store_of(tmp_path: Path, segments: dict[int, tuple[bytes, ...]], store: MemoryStore | None = None) -> MemoryStore:
    store = store or MemoryStore(ManualClock(NOW_MS))
    log_dir = copy_partitions(tmp_path, "orders-0")
    roll(log_dir, segments, max(segments))
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    return store


def sizes(store: MemoryStore) -> list[int]:
    state = only_state(store)
    return [len(log_of(store, state, segment)) for segment in state.segments]


def records(store: MemoryStore) -> list[Record]:
    state = only_state(store)
    return records_in(log_of(store, state, segment) for segment in state.segments)


def test_an_archived_topic_of_few_large_values_and_many_hot_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path, few_large_and_many_small())
    use(monkeypatch, store)
    before = records(store)
    result = compact_one(store, only_state(store), RULES, tmp_path)
    assert result.error is None
    assert max(sizes(store)) <= SEGMENT_BYTES
    assert len(sizes(store)) < 8
    assert [output.size_bytes for output in result.outputs] == sizes(store)
    assert {record.offset for record in records(store)} == winners(before, Strategy.OFFSET)
    sound(store)
    again = compact_one(store, only_state(store), RULES, tmp_path)
    assert again.commit_number is None
    assert all(output.unchanged for output in again.outputs)


def test_a_dry_run_says_the_sizes_that_come_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path, few_large_and_many_small())
    use(monkeypatch, store)
    request = CompactionRequest(only_state(store).lineage.root, RULES, WRITER)
    (dry,) = compactor(store).compact([request], dry_run=True)
    job = compactor(store).job_of(request)
    assert job is not None
    (outlook,) = what_if(job, [Strategy.OFFSET], LocalEngine())  # type: ignore[arg-type]
    (result,) = compactor(store, tmp_path).compact([request])
    for found in (dry, outlook):
        assert [output.size_bytes for output in found.outputs] == sizes(store)
    assert result.bytes_after == sum(sizes(store))


def test_a_directory_of_few_large_values_and_many_hot_keys(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    segments = few_large_and_many_small()
    roll(log_dir, segments, max(segments))
    for snapshot in (log_dir / "orders-0").glob("*.snapshot"):
        snapshot.unlink()
    out = tmp_path / "out" / "orders-0"
    out.parent.mkdir()
    compaction = compacted(log_dir / "orders-0", out, RULES)
    logs = {int(path.stem): path.read_bytes() for path in out.glob("*.log")}
    assert max(map(len, logs.values())) <= SEGMENT_BYTES
    assert [len(logs[output.base_offset]) for output in compaction.outputs] == [
        o.size_bytes for o in compaction.outputs
    ]
    everything = records_in(b"".join(batches) for batches in segments.values())
    assert {r.offset for r in records_in(logs[base] for base in sorted(logs))} == winners(everything, Strategy.OFFSET)
    for base_offset in (output.base_offset for output in compaction.outputs):
        log = logs[base_offset]
        check = OffsetIndexCheck((out / file_name(base_offset, Suffix.OFFSET_INDEX)).read_bytes(), base_offset)
        builder = IndexBuilder(base_offset)
        for columns in scan_bytes(log, base_offset=base_offset):
            check.add(columns)
            builder.add(columns)
        assert check.finish(builder.finish().offset_index).reason == ""


def test_copies_before_an_upload_of_few_large_values_and_many_hot_keys(tmp_path: Path) -> None:
    with rig(tmp_path, "orders-0") as site:
        segments = few_large_and_many_small()
        roll(site.log_dir, segments, max(segments))
        site.round()
        assert site.compactor.cycle()
        assert site.round().errors == []
        state = archived_states(site.store)["orders-0"]
        assert [segment.base_offset for segment in state.segments] == sorted(segments)[:-1]
        for segment in state.segments:
            assert segment.size_bytes <= sum(map(len, segments[segment.base_offset])) + 16_384
        assert 1 in site.generations("orders-0")
        sound(site.store)


@pytest.mark.parametrize("seed", range(8))
def test_no_segment_that_is_joined_is_larger_than_the_limit(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a segment that was as large before, with what stays of it alone, may be."""
    random = Random(seed)
    segments, offset = dict[int, tuple[bytes, ...]](), 0
    for _ in range(12):
        base_offset, batches = offset, []
        for _ in range(random.randint(1, 8)):
            found = [_random_record(random, offset + at) for at in range(random.randint(1, 12))]
            offset += len(found)
            batches.append(build_batch(found, leader_epoch=LEADER_EPOCH, codec=random.choice([0, 0, 1])))
        segments[base_offset] = tuple(batches)
    store = store_of(tmp_path, {**segments, offset: ()})
    use(monkeypatch, store)
    before = records(store)
    rules = replace(RULES, segment_bytes=random.choice([1_000, 5_000, 20_000]))
    result = compact_one(store, only_state(store), rules, tmp_path)
    assert result.error is None
    for output in result.outputs:
        assert output.size_bytes <= max(rules.segment_bytes, output.sources[0].size_bytes)
        assert len(output.sources) == 1 or output.size_bytes <= rules.segment_bytes
    assert [output.size_bytes for output in result.outputs] == sizes(store)
    assert {record.offset for record in records(store) if record.value is not None} <= winners(before, Strategy.OFFSET)
    for first, second in zip(result.outputs, result.outputs[1:], strict=False):
        joined = first.size_bytes + second.size_bytes
        assert joined > rules.segment_bytes or first.unchanged or second.unchanged
    sound(store)


def _random_record(random: Random, offset: int) -> Record:
    is_large = random.random() < 0.05
    key = b"large%d" % offset if is_large else b"hot%d" % random.randrange(4)
    value = random.randbytes(random.randint(500, 4_000) if is_large else random.randint(0, 30))
    return Record(offset, NOW_MS - 5_000_000 + offset, key, value)


class Damaging(LocalParts):
    """Parts that hold other bytes than were written."""

    def pieces(self, number: int, size_bytes: int) -> Iterator[memoryview]:
        for piece in super().pieces(number, size_bytes):
            changed = bytearray(piece)
            changed[-1] ^= 1
            yield memoryview(changed)


class Shortening(LocalParts):
    """Parts whose last batch is gone."""

    def pieces(self, number: int, size_bytes: int) -> Iterator[memoryview]:
        content = b"".join(map(bytes, super().pieces(number, size_bytes)))
        (columns,) = scan_bytes(content)
        yield memoryview(content)[: int(columns.position[-1])]


@pytest.mark.parametrize(("parts", "error"), [(Damaging, CorruptFile), (Shortening, SegmentChanged)])
def test_staged_bytes_that_are_not_what_was_written_are_not_committed(
    parts: type[LocalParts], error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path, few_large_and_many_small())
    use(monkeypatch, store)
    monkeypatch.setattr("sidecar.compactor.archive.compactor.LocalParts", parts)
    before = only_state(store)
    result = compact_one(store, before, RULES, tmp_path)
    assert isinstance(result.error, error)
    assert only_state(store).segments == before.segments
    sound(store)


class Lying(MemoryStore):
    """Keeps no checksums, and other bytes than were sent once `damages`."""

    damages = False

    def upload(self, key: ObjectKey, source: object) -> object:  # type: ignore[override]
        sent_crc32c = super().upload(key, source)  # type: ignore[arg-type]
        if self.damages and key.endswith(".log"):
            self.objects[key] = self.objects[key][:-1] + bytes([self.objects[key][-1] ^ 1])
        return sent_crc32c

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        facts = super().head(key)
        return None if facts is None else replace(facts, crc32c=None)


@pytest.mark.parametrize("damages", [False, True])
def test_a_store_without_checksums_is_read_back_before_the_commit(
    damages: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Lying(ManualClock(NOW_MS))
    store_of(tmp_path, few_large_and_many_small(), store)
    use(monkeypatch, store)
    before: PartitionState = only_state(store)
    store.damages = damages
    result = compact_one(store, before, RULES, tmp_path)
    assert isinstance(result.error, ObjectDamaged) if damages else result.error is None
    assert (only_state(store).segments == before.segments) is damages
