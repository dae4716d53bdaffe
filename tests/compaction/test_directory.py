"""`compact` on directories that real brokers wrote: as the reference says, loadable, and nothing else touched."""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.errors import CorruptFile, SettingsError
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.legacy import build_legacy_message
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting import directory
from sidecar.rewriting.work_files import copy_file
from tests.compaction.directories import DAY_MS, check_against_reference, compacted, tree
from tests.golden import VERSIONS, golden, partitions, wall_clock_ms
from tests.oracle.log_shape import CLEANER
from tests.oracle.random_batches import VERSION_HEADER
from tests.oracle.random_segments import random_log
from tests.snapshots.log_dirs import tree as contents


def rules_of(strategy: Strategy, version: str, later_ms: int = 0) -> CompactionRules:
    return CompactionRules(wall_clock_ms(version) + later_ms, strategy=strategy, header="h1", segment_bytes=16384)


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_directories_become_what_the_reference_says(version: str, tmp_path: Path) -> None:
    """Each partition by all strategies, in another version each."""
    before = contents(golden(version) / "logs")
    saved = 0
    for number, path in enumerate(partitions(version), VERSIONS.index(version)):
        out = tmp_path / path.name
        rules = rules_of(list(Strategy)[number % 3], version)
        compaction = compacted(path, out, rules)
        check_against_reference(path, compaction, rules)
        saved += compaction.bytes_before - compaction.bytes_after
    assert saved > 100_000
    assert contents(golden(version) / "logs") == before
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in partitions(version)}


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_above_the_first_open_transaction_is_touched(version: str, tmp_path: Path) -> None:
    path = golden(version) / "logs" / "compacted-1"
    compaction = compacted(path, tmp_path / path.name, rules_of(Strategy.OFFSET, version), include_active=True)
    last_stable = compaction.survey.last_stable_offset
    assert last_stable < compaction.survey.log_end_offset
    assert compaction.outputs[-1].end_offset <= last_stable < compaction.left_alone[0].end_offset


@pytest.mark.parametrize("version", VERSIONS)
def test_the_active_segment_on_demand(version: str, tmp_path: Path) -> None:
    path = golden(version) / "logs" / "compacted-0"
    rules = rules_of(Strategy.OFFSET, version)
    compaction = compacted(path, tmp_path / path.name, rules, include_active=True)
    check_against_reference(path, compaction, rules)
    assert compaction.left_alone == ()
    assert compaction.outputs[-1].end_offset == compaction.survey.log_end_offset


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_second_time_changes_nothing_but_horizons(strategy: Strategy, tmp_path: Path) -> None:
    """And the producer snapshots survive it, though the batches they tell of are gone."""
    path, rules = golden("4.3.0") / "logs" / "compacted-0", rules_of(strategy, "4.3.0")
    outs = [tmp_path / str(turn) / path.name for turn in range(4)]
    for source, out in zip([path, *outs], outs, strict=False):
        compacted(source, out, rules)
    snapshots = [{name: found for name, found in tree(out).items() if name.endswith(".snapshot")} for out in outs]
    assert snapshots[0] == snapshots[1] == snapshots[2]
    # The first round makes tombstones mortal, the second markers on which nothing depends any more.
    assert tree(outs[2]) == tree(outs[3])


def test_tombstones_go_when_their_time_has_come(tmp_path: Path) -> None:
    path = golden("4.3.0") / "logs" / "compacted-0"
    first = compacted(path, tmp_path / "1" / path.name, rules_of(Strategy.OFFSET, "4.3.0"))
    assert first.out is not None
    later = rules_of(Strategy.OFFSET, "4.3.0", 2 * DAY_MS)
    second = compacted(first.out, tmp_path / "2" / path.name, later)
    check_against_reference(first.out, second, later)
    assert second.records_after < first.records_after


@pytest.mark.parametrize(
    ("topic", "strategy", "split_bytes"),
    [
        ("compacted", Strategy.HEADER, 1000),
        ("transactions", Strategy.OFFSET, 1000),
        ("legacy-v1", Strategy.TIMESTAMP, 1 << 26),
        ("legacy-mixed", Strategy.OFFSET, 1000),
        ("orders", Strategy.TIMESTAMP, 1 << 26),
    ],
)
def test_records_below_the_log_start_neither_compete_nor_stay(
    topic: str, strategy: Strategy, split_bytes: int, tmp_path: Path
) -> None:
    """DeleteRecords moves the log start into the first segment, between two batches or into one."""
    source = next(path for path in partitions("2.7.2") if path.name.rpartition("-")[0] == topic)
    path = shutil.copytree(source, tmp_path / "logs" / source.name, copy_function=shutil.copy2)
    topic_name, _, number = path.name.rpartition("-")
    whole = compacted(path, None, rules_of(strategy, "2.7.2"))
    end = whole.survey.segments[0].end_offset
    for turn, start in enumerate((1, end // 2, end // 2 + 1, end - 1)):
        (path.parent / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic_name} {number} {start}\n")
        rules = rules_of(strategy, "2.7.2")
        found = compacted(path, tmp_path / str(turn) / path.name, rules, split_bytes=split_bytes)
        check_against_reference(path, found, rules)
        assert found.records_before == whole.records_before


def test_legacy_tombstones_go_when_a_broker_has_compacted_beyond_them(tmp_path: Path) -> None:
    """As the cleaner's checkpoint says: tombstones of format 1 have no horizon, the time of their file decides."""
    path = tmp_path / "logs" / "t-0"
    path.mkdir(parents=True)
    for offset, value in ((0, b"v"), (1, None), (2, b"w"), (3, b"x")):
        message = build_legacy_message(offset, b"k%d" % (offset % 2), value, magic=1)
        (path / f"{offset:020d}.log").write_bytes(message)
        os.utime(path / f"{offset:020d}.log", (offset * DAY_MS // 1000,) * 2)
    rules = CompactionRules(9 * DAY_MS, delete_retention_ms=DAY_MS // 2)
    kept = []
    for turn, checkpoint in enumerate((None, 0, 2, 3)):
        if checkpoint is not None:
            (path.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {checkpoint}\n")
        found = compacted(path, tmp_path / str(turn) / "t-0", rules)
        check_against_reference(path, found, rules)
        kept.append(found.records_after)
    assert kept == [2, 2, 2, 1]


def test_a_dry_run_tells_the_same_sizes_and_writes_nothing(tmp_path: Path) -> None:
    path, rules = golden("4.3.0") / "logs" / "compacted-0", rules_of(Strategy.OFFSET, "4.3.0")
    dry = compacted(path, None, rules)
    wet = compacted(path, tmp_path / "out", rules)
    assert (dry.bytes_after, dry.records_after) == (wet.bytes_after, wet.records_after)
    assert [output.size_bytes for output in dry.outputs] == [output.size_bytes for output in wet.outputs]


def test_an_out_directory_that_cannot_be_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    path, rules = golden("4.3.0") / "logs" / "compacted-0", rules_of(Strategy.OFFSET, "4.3.0")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "file").touch()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "meta.properties").touch()
    in_log_dir = (tmp_path / "logs" / "t-0", tmp_path / "logs" / "compacted" / "t-0")
    for out in (tmp_path / "full", tmp_path / "file", *in_log_dir, path / "out"):
        with pytest.raises(SettingsError, match="--out"):
            compacted(path, out, rules)
    (tmp_path / "empty").mkdir()
    assert compacted(path, tmp_path / "empty", rules).out == tmp_path / "empty"
    assert (tmp_path / "empty" / "leader-epoch-checkpoint").exists()


def test_an_out_directory_that_is_a_mount_point_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path)
    with pytest.raises(SettingsError, match="mount point"):
        compacted(golden("4.3.0") / "logs" / "compacted-0", tmp_path, rules_of(Strategy.OFFSET, "4.3.0"))


@pytest.mark.parametrize("seed", range(int(os.environ.get("CONFORMANCE_LOGS", "40"))))
def test_random_logs_become_what_the_reference_says(seed: int, tmp_path: Path) -> None:
    """Open and aborted transactions, every codec and format, splits that begin anywhere."""
    log = random_log(seed, replace(CLEANER, legacy=seed % 3 == 1, cleanable=False))
    source = log.write(tmp_path / "logs")
    rules = CompactionRules(
        log.now_ms + (0, 3 * DAY_MS)[seed // 3 % 2],
        strategy=list(Strategy)[seed % 3],
        header=VERSION_HEADER,
        segment_bytes=(700, 3000, 1_000_000)[seed // 3 % 3],
        exact_keys=seed % 5 == 0,
    )
    active, split_bytes = seed % 2 == 1, (200, 1 << 26)[seed // 2 % 2]
    out = tmp_path / "out" / source.name
    compaction = compacted(source, out, rules, include_active=active, split_bytes=split_bytes)
    check_against_reference(source, compaction, rules)


def test_segments_of_which_nothing_is_lost_are_copied(tmp_path: Path) -> None:
    source = tmp_path / "topic-0"
    source.mkdir()
    for base in (0, 10, 20):
        records = [Record(base + number, 0, b"key-%d" % (base + number), bytes(90)) for number in range(10)]
        (source / f"{base:020d}.log").write_bytes(build_batch(records, leader_epoch=0))
    rules = CompactionRules(0, segment_bytes=1200)
    compaction = compacted(source, tmp_path / "out", rules)
    check_against_reference(source, compaction, rules)
    assert [(output.unchanged, output.counts.kept_records) for output in compaction.outputs] == [(True, 10)] * 2
    assert compaction.bytes_after == compaction.bytes_before
    assert compaction.records_after == compaction.records_before == 20


def test_an_empty_active_segment_is_kept_because_it_says_where_the_log_ends(tmp_path: Path) -> None:
    source = tmp_path / "topic-0"
    source.mkdir()
    (source / f"{0:020d}.log").write_bytes(build_batch([Record(0, 0, b"key")], leader_epoch=0))
    # An old cleaner's work: nothing is left of offsets 5 to 8.
    for base in (5, 9):
        (source / f"{base:020d}.log").touch()
    compaction = compacted(source, tmp_path / "out", CompactionRules(0), include_active=True)
    assert [file.base_offset for file in compaction.left_alone] == [9]
    assert compaction.survey.log_end_offset == 9
    assert (tmp_path / "out" / f"{9:020d}.log").read_bytes() == b""
    assert (tmp_path / "out" / f"{9:020d}.snapshot").exists()


def test_the_active_segment_of_a_running_broker_gets_indexes_without_a_tail_of_zeros(tmp_path: Path) -> None:
    """A broker that was stopped cleanly takes zeros for entries. Of the last one it has 1970 as the segment's newest time."""
    source = tmp_path / "topic-0"
    source.mkdir()
    batches = [build_batch([Record(base, 1000 + base, b"key", bytes(3000))], leader_epoch=0) for base in range(5)]
    (source / f"{0:020d}.log").write_bytes(batches[0])
    active = source / f"{1:020d}.log"
    active.write_bytes(b"".join(batches[1:]))
    position, last_ms = 2 * len(batches[1]), 1004
    entries = {"index": struct.pack(">ii", 2, position), "timeindex": struct.pack(">qiqi", 1003, 2, last_ms, 3)}
    for suffix, entry_bytes in (("index", 8), ("timeindex", 12)):
        (source / f"{1:020d}.{suffix}").write_bytes(entries[suffix][:entry_bytes].ljust(1200, b"\0"))
    compacted(source, tmp_path / "out", CompactionRules(0))
    for suffix, content in entries.items():
        assert (tmp_path / "out" / f"{1:020d}.{suffix}").read_bytes() == content


@pytest.mark.parametrize("tail_bytes", [0, 100])
def test_a_damaged_copy_of_the_active_segment_is_not_delivered(
    tail_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "topic-0"
    source.mkdir()
    batches = [build_batch([Record(base, 0, b"key", bytes(90))], leader_epoch=0) for base in range(3)]
    (source / f"{0:020d}.log").write_bytes(batches[0])
    active = source / f"{1:020d}.log"
    active.write_bytes(batches[1] + batches[2][:tail_bytes])  # a broker is writing there
    compacted(source, tmp_path / "sound", CompactionRules(0))
    assert (tmp_path / "sound" / active.name).read_bytes() == batches[1]

    def damaged(path: Path, target: Path, size_bytes: int) -> None:
        copy_file(path, target, size_bytes)
        if path == active:
            target.write_bytes(target.read_bytes()[:-1] + b"?")

    monkeypatch.setattr(directory, "copy_file", damaged)
    with pytest.raises(CorruptFile, match="checksum"):
        compacted(source, tmp_path / "out", CompactionRules(0))
    assert not (tmp_path / "out").exists()
