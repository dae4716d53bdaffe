"""The oracle against files that real brokers wrote, against published examples, and when something goes wrong."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.legacy import build_legacy_message
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.leader_epochs import read_leader_epochs
from tests.golden import VERSIONS, golden, partitions
from tests.oracle import CleanRound, Oracle, OracleError, OracleRefused

pytestmark = pytest.mark.real

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
GOLDEN_CONFIG = {"segment.bytes": 16384, "index.interval.bytes": 1024, "delete.retention.ms": DAY_MS}
INDEX_SUFFIXES = {".index", ".timeindex", ".txnindex"}


def log_directory(tmp_path: Path, segments: dict[int, list[bytes]]) -> Path:
    directory = tmp_path / "topic-0"
    directory.mkdir(parents=True)
    for base_offset, batches in segments.items():
        (directory / f"{base_offset:020d}.log").write_bytes(b"".join(batches))
    return directory


def one(offset: int, key: bytes | None, value: bytes | None = b"v", **batch: int) -> bytes:
    return build_batch([Record(offset, NOW_MS, key, value)], **batch)  # type: ignore[arg-type]


def transactional(offset: int, key: bytes, *, producer_id: int, sequence: int = 0) -> bytes:
    producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    return build_batch([Record(offset, NOW_MS, key, b"%d" % offset)], transactional=True, **producer)  # type: ignore[arg-type]


def marker(offset: int, *, commit: bool, producer_id: int, epoch: int = 0) -> bytes:
    identity = {"producer_id": producer_id, "producer_epoch": epoch, "coordinator_epoch": 1, "timestamp_ms": NOW_MS}
    return build_marker(offset, commit=commit, **identity)


def offsets_of(oracle: Oracle, directory: Path, key: bytes | None = None) -> list[int]:
    records = [record for log in sorted(directory.glob("*.log")) for record in oracle.dump_records(log)]
    return [record.offset for record in records if key is None or record.key == key]


@pytest.mark.parametrize("version", VERSIONS)
def test_snapshots_equal_those_that_brokers_wrote(oracle: Oracle, version: str, tmp_path: Path) -> None:
    compared = 0
    for partition in partitions(version):
        out = tmp_path / partition.name
        out.mkdir()
        replay = oracle.snapshots(partition, out)
        assert replay.stopped is None
        for boundary in replay.boundaries:
            written = partition / f"{boundary.offset:020d}.snapshot"
            if written.exists():
                ours = oracle.dump_snapshot(out / written.name)
                assert sorted(ours) == sorted(oracle.dump_snapshot(written)), written
                compared += 1
    assert compared >= 30


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
def test_recovery_gives_the_indexes_of_segments_that_were_open_in_one_run_of_the_broker(
    oracle: Oracle, version: str, tmp_path: Path
) -> None:
    compared = 0
    for partition in partitions(version):
        copy = shutil.copytree(partition, tmp_path / partition.name, copy_function=shutil.copy2)
        segments = oracle.recover(copy, config=GOLDEN_CONFIG)
        assert all(segment.truncated_bytes == 0 for segment in segments)
        epochs = read_leader_epochs((partition / "leader-epoch-checkpoint").read_bytes()).entries
        ends = [*(segment.base_offset for segment in segments[1:]), 2**63 - 1]
        for segment, end_offset in zip(segments, ends, strict=True):
            # A restart closes and reopens the active segment, which shifts its index entries; each one began an epoch.
            if any(segment.base_offset < epoch.start_offset < end_offset for epoch in epochs):
                continue
            for suffix in INDEX_SUFFIXES:
                written, rebuilt = (place / f"{segment.base_offset:020d}{suffix}" for place in (partition, copy))
                assert rebuilt.exists() == written.exists(), written
                assert not written.exists() or rebuilt.read_bytes() == written.read_bytes(), written
            compared += 1
    assert compared >= 20


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
@pytest.mark.parametrize("partition", ["compacted-0", "compacted-1"])
def test_the_cleaner_gives_the_bytes_of_the_real_brokers_cleaner(
    oracle: Oracle, version: str, partition: str, tmp_path: Path
) -> None:
    after = golden(version) / "compacted" / partition
    batches = [batch for log in after.glob("*.log") for batch in oracle.dump_batches(log)]
    (horizon_ms,) = {batch.delete_horizon_ms for batch in batches if batch.delete_horizon_ms >= 0}
    copy = shutil.copytree(golden(version) / "logs" / partition, tmp_path / partition, copy_function=shutil.copy2)
    cleaned = oracle.clean(copy, [CleanRound(horizon_ms - DAY_MS)], config=GOLDEN_CONFIG)
    assert cleaned.rounds[0].end_offset == checkpoint(golden(version) / "compacted", partition)
    names = {path.name for place in (after, copy) for path in place.iterdir()} - {"leader-epoch-checkpoint"}
    different = [name for name in sorted(names) if (after / name).read_bytes() != (copy / name).read_bytes()]
    assert different == []
    for log in after.glob("*.log"):
        assert int((copy / log.name).stat().st_mtime * 1000) == int(log.stat().st_mtime * 1000)


def checkpoint(log_dir: Path, partition: str) -> int:
    topic, _, number = partition.rpartition("-")
    lines = (log_dir / "cleaner-offset-checkpoint").read_text().splitlines()
    return next(int(line.split()[2]) for line in lines if line.split()[:2] == [topic, number])


def test_a_map_for_one_key_makes_progress_inside_a_segment(oracle: Oracle, tmp_path: Path) -> None:
    # Upstream's testPartialSegmentClean.
    directory = log_directory(
        tmp_path, {0: [one(offset, b"%d" % (offset % 2)) for offset in range(5)], 5: [one(5, b"x")]}
    )
    for first_dirty, end, left in ((2, 3, [1, 2, 3, 4, 5]), (3, 4, [2, 3, 4, 5]), (4, 5, [3, 4, 5])):
        cleaned = oracle.clean(directory, [CleanRound(NOW_MS)], first_dirty_offset=first_dirty, map_slots=2)
        assert cleaned.rounds[0].end_offset == end
        assert offsets_of(oracle, directory) == left


def test_tombstones_and_markers_go_in_two_steps(oracle: Oracle, tmp_path: Path) -> None:
    batches = [
        one(0, b"k"),
        one(1, b"k", None),
        transactional(2, b"t", producer_id=1),
        marker(3, commit=False, producer_id=1),
        transactional(4, b"t", producer_id=1, sequence=1),
        marker(5, commit=True, producer_id=1),
    ]
    directory = log_directory(tmp_path, {0: batches, 6: [one(6, b"x")]})
    config = {"delete.retention.ms": 1000}
    first = oracle.clean(directory, [CleanRound(NOW_MS)], config=config)
    assert first.rounds[0].cleaned
    assert offsets_of(oracle, directory) == [1, 3, 4, 5, 6]
    horizons = {
        batch.base_offset: batch.delete_horizon_ms for batch in oracle.dump_batches(directory / f"{0:020d}.log")
    }
    assert horizons == {1: NOW_MS + 1000, 3: -1, 4: -1, 5: -1}
    # A real broker never runs a round without anything dirty; the plain map does.
    later = [CleanRound(NOW_MS + 1000), CleanRound(NOW_MS + 2000)]
    skipped = oracle.clean(directory, later, config=config, first_dirty_offset=6)
    assert [round_.cleaned for round_ in skipped.rounds] == [False, False]
    second = oracle.clean(directory, later, config=config, first_dirty_offset=6, offset_map="plain")
    assert [round_.end_offset for round_ in second.rounds] == [6, 6]
    assert offsets_of(oracle, directory) == [4, 5, 6]


def test_nothing_at_or_above_an_open_transaction_is_cleaned(oracle: Oracle, tmp_path: Path) -> None:
    opened = transactional(2, b"k", producer_id=1)
    directory = log_directory(tmp_path, {0: [one(0, b"k"), one(1, b"k")], 2: [opened, one(3, b"k")], 4: [one(4, b"k")]})
    cleaned = oracle.clean(directory, [CleanRound(NOW_MS)])
    assert (cleaned.last_stable_offset, cleaned.rounds[0].first_uncleanable_offset) == (2, 2)
    assert offsets_of(oracle, directory) == [1, 2, 3, 4]
    with pytest.raises(OracleRefused, match="asked to clean up to 4, Kafka stops at 2"):
        oracle.clean(directory, [CleanRound(NOW_MS, first_uncleanable_offset=4)])


def test_a_finished_aborted_transaction_hides_later_keys_of_its_producer_in_a_partial_round(
    oracle: Oracle, tmp_path: Path
) -> None:
    """LocalLog.collectAbortedTransactions filters by the log start, not by the first dirty offset: a marker that the first
    read position has passed is never met, and committed data counts as aborted when the offset map is built."""
    before = [one(0, b"x"), transactional(1, b"y", producer_id=1), marker(2, commit=False, producer_id=1)]
    filler = [one(offset, b"f%d" % offset) for offset in range(3, 60)]
    dirty = [transactional(60, b"x", producer_id=1, sequence=1), marker(61, commit=True, producer_id=1)]
    directory = log_directory(tmp_path, {0: [*before, *filler, *dirty], 62: [one(62, b"z")]})
    indexed = shutil.copytree(directory, tmp_path / "indexed" / directory.name)
    kept = oracle.clean(indexed, [CleanRound(NOW_MS)], first_dirty_offset=60, config={"index.interval.bytes": 64})
    assert (kept.rounds[0].end_offset, offsets_of(oracle, indexed, b"x")) == (62, [0, 60])
    oracle.clean(directory, [CleanRound(NOW_MS)], first_dirty_offset=60, config={"index.interval.bytes": 65536})
    assert offsets_of(oracle, directory, b"x") == [60]


def test_the_cleaner_cannot_empty_a_legacy_batch_at_the_end_of_the_round(oracle: Oracle, tmp_path: Path) -> None:
    legacy = [build_legacy_message(0, b"a", b"1"), build_legacy_message(1, None, b"1")]
    directory = log_directory(tmp_path, {0: legacy, 2: [one(2, b"x")]})
    with pytest.raises(OracleRefused, match="Empty batches are only supported for magic v2") as caught:
        oracle.clean(directory, [CleanRound(NOW_MS)])
    assert caught.value.java_class == "java.lang.IllegalStateException"


def test_the_cleaner_cannot_rebuild_a_batch_without_sequence(oracle: Oracle, tmp_path: Path) -> None:
    records = [Record(0, NOW_MS, b"a", b"1"), Record(1, NOW_MS, b"b", b"1")]
    batches = [build_batch(records, producer_id=1, producer_epoch=0), one(2, b"a")]
    directory = log_directory(tmp_path, {0: batches, 3: [one(3, b"x")]})
    with pytest.raises(OracleRefused, match="Invalid negative sequence number") as caught:
        oracle.clean(directory, [CleanRound(NOW_MS)])
    assert caught.value.java_class == "java.lang.IllegalArgumentException"


def test_a_kept_legacy_tombstone_becomes_v2_with_a_horizon(oracle: Oracle, tmp_path: Path) -> None:
    directory = log_directory(tmp_path, {0: [build_legacy_message(0, b"a", None), one(1, b"b")], 2: [one(2, b"x")]})
    oracle.clean(directory, [CleanRound(NOW_MS)], config={"delete.retention.ms": 1000})
    tombstone, _ = oracle.dump_batches(directory / f"{0:020d}.log")
    assert (tombstone.magic, tombstone.delete_horizon_ms, tombstone.max_timestamp_ms) == (2, NOW_MS + 1000, -1)


def test_a_segment_without_index_is_cut_and_those_after_it_stay(oracle: Oracle, tmp_path: Path) -> None:
    """LogLoader.loadSegmentFiles recovers what lacks an index; only recoverLog deletes what follows a cut segment."""
    damaged = one(1, b"b")[:-1] + b"\xff"
    directory = log_directory(tmp_path, {0: [one(0, b"a"), damaged], 2: [one(2, b"x")]})
    oracle.clean(directory, [], clean_shutdown=True)
    assert offsets_of(oracle, directory) == [0, 2]


def test_replay_of_whole_segments_forgets_an_epoch_that_came_and_went(oracle: Oracle, tmp_path: Path) -> None:
    data = build_batch([Record(0, NOW_MS, b"a", b"1")], producer_id=1, producer_epoch=1, base_sequence=5)
    markers = [marker(1, commit=True, producer_id=1, epoch=2), marker(2, commit=True, producer_id=1, epoch=1)]
    directory = log_directory(tmp_path, {0: [data], 1: markers, 3: []})
    sequences = {}
    for path in ("recover", "load"):
        out = tmp_path / path
        out.mkdir()
        oracle.snapshots(directory, out, path=path)
        ((_, epoch, sequences[path], *_),) = oracle.dump_snapshot(out / f"{3:020d}.snapshot")
        assert epoch == 1
    assert sequences == {"recover": -1, "load": 5}


def test_a_replay_stops_where_the_broker_would(oracle: Oracle, tmp_path: Path) -> None:
    plain = build_batch([Record(1, NOW_MS, b"a", b"1")], producer_id=1, producer_epoch=0, base_sequence=1)
    directory = log_directory(tmp_path, {0: [transactional(0, b"a", producer_id=1)], 1: [plain], 2: [one(2, b"a")]})
    replay = oracle.snapshots(directory, tmp_path)
    assert [(boundary.offset, boundary.last_stable_offset) for boundary in replay.boundaries] == [(1, 0)]
    assert replay.stopped is not None
    assert "InvalidTxnStateException" in replay.stopped
    assert replay.stopped_at_offset == 1


def test_expiry_before_each_snapshot(oracle: Oracle, tmp_path: Path) -> None:
    data = build_batch([Record(0, NOW_MS, b"a", b"1")], producer_id=1, producer_epoch=0, base_sequence=0)
    directory = log_directory(tmp_path, {0: [data], 1: [transactional(1, b"a", producer_id=2)], 2: []})
    for now_ms, counts in ((NOW_MS + 999, [1, 2]), (NOW_MS + 1000, [0, 1])):  # an open transaction never expires
        replay = oracle.snapshots(directory, tmp_path, now_ms=now_ms, producer_id_expiration_ms=1000, expire=True)
        assert [boundary.producer_count for boundary in replay.boundaries] == counts


def test_recovery_at_load_forgets_producers_that_expire_between_segments(oracle: Oracle, tmp_path: Path) -> None:
    """LogLoader.recoverSegment reloads the last snapshot for each segment, and that filters: state is poorer than a replay's."""
    ended = [transactional(0, b"a", producer_id=1), marker(1, commit=True, producer_id=1)]
    later = build_batch([Record(2, NOW_MS + DAY_MS, b"a", b"2")], producer_id=1, producer_epoch=0, base_sequence=1)
    coordinator_epochs = []
    for load_now_ms in (0, NOW_MS + DAY_MS):
        directory = log_directory(tmp_path / str(load_now_ms), {0: ended, 2: [later]})
        oracle.clean(directory, [], load_now_ms=load_now_ms)
        ((*_, coordinator_epoch, _),) = oracle.dump_snapshot(directory / f"{3:020d}.snapshot")
        coordinator_epochs.append(coordinator_epoch)
    assert coordinator_epochs == [1, -1]


def test_recovery_cuts_at_the_first_invalid_batch(oracle: Oracle, tmp_path: Path) -> None:
    damaged = one(1, b"b")[:-1] + b"\xff"
    directory = log_directory(tmp_path, {0: [one(0, b"a"), damaged]})
    (segment,) = oracle.recover(directory)
    assert (segment.size_bytes, segment.truncated_bytes) == (len(one(0, b"a")), len(damaged))


def test_a_refused_request_ends_nothing(oracle: Oracle, tmp_path: Path) -> None:
    with pytest.raises(OracleRefused, match="not a directory") as caught:
        oracle.recover(tmp_path / "absent-0")
    assert caught.value.java_class == "java.io.IOException"
    directory = log_directory(tmp_path, {0: [one(0, b"a")]})
    assert [batch.last_offset for batch in oracle.dump_batches(directory / f"{0:020d}.log")] == [0]


def test_without_java_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(OracleError, match=r"'java' is not on PATH.*openjdk-17"):
        Oracle()


def test_silence_and_death_of_the_jvm_are_errors(tmp_path: Path) -> None:
    with pytest.raises(OracleError, match="no answer within"), Oracle(timeout_s=0.01):
        pytest.fail("a JVM that starts in 10 ms")
    with Oracle() as dying:
        directory = log_directory(tmp_path, {0: [one(0, b"a")]})
        dying.recover(directory)
        os.kill(dying.pid, signal.SIGKILL)
        with pytest.raises(OracleError, match="ended"):
            dying.recover(directory)
