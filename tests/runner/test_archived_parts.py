"""From real brokers' directories into an archive and back, byte for byte; and what stops a partition stops no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer_state.snapshot import read_snapshot
from sidecar.archive.bundle import cut_parts
from sidecar.archive.keys import below
from sidecar.model import ArchivedSegment, ObjectKey, PartName, SnapshotOrigin
from sidecar.storage.opening import open_store
from sidecar.store_settings import StoreSettings
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.golden import VERSIONS, golden, golden_copy, manifest
from tests.runner.rig import archive, archived_states, ranges, rolled_ranges, tools_for
from tests.verifying import verify_partition

SUFFIXES = {PartName.OFFSET_INDEX: "index", PartName.TIME_INDEX: "timeindex", PartName.TRANSACTION_INDEX: "txnindex"}


def parts_of(store: MemoryStore, root: str, segment: ArchivedSegment) -> dict[PartName, bytes]:
    key = below(root, segment.indexes_key)
    return {PartName.LOG: store.read(below(root, segment.log_key)), **cut_parts(store.read(key), segment, key)}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_archived_part_is_byte_equal_to_its_source(version: str, tmp_path: Path) -> None:
    log_dir, store = golden(version) / "logs", MemoryStore()
    with tools_for(log_dir, store, tmp_path, version) as context:
        report = archive(context, log_dir)
    assert report.errors == []
    compared = 0
    for partition, state in archived_states(store).items():
        for segment in state.segments:
            parts = parts_of(store, state.lineage.root, segment)
            source = log_dir / partition / f"{segment.base_offset:020d}"
            assert parts[PartName.LOG] == source.with_suffix(".log").read_bytes()
            for name, suffix in SUFFIXES.items():
                file = source.with_suffix(f".{suffix}")
                assert parts.get(name) == (file.read_bytes() if file.exists() else None), (segment, suffix)
            snapshot = log_dir / partition / f"{segment.end_offset:020d}.snapshot"
            if segment.snapshot.origin is SnapshotOrigin.BROKER:
                assert parts[PartName.PRODUCER_SNAPSHOT] == snapshot.read_bytes()
            compared += 1
    assert compared > 30


@pytest.mark.parametrize("version", VERSIONS)
def test_every_snapshot_that_a_broker_wrote_equals_the_replayed_state(version: str, tmp_path: Path) -> None:
    log_dir = golden(version) / "logs"
    with tools_for(log_dir, MemoryStore(), tmp_path, version) as context:
        report = archive(context, log_dir)
    seen = sum((outcome.conformance for outcome in report.outcomes), start=type(report.outcomes[0].conformance)())
    assert seen["equal"] >= (15 if version == "2.7.2" else 30)
    assert set(seen) <= {"equal", "absent"}
    assert (seen["absent"] > 10) == (version == "2.7.2")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_snapshot_is_rebuilt_as_the_broker_would_have_written_it(version: str, tmp_path: Path) -> None:
    copy = golden_copy(version, tmp_path / "copy") / "logs"
    originals = {path.relative_to(copy): path.read_bytes() for path in copy.glob("*-*/*.snapshot")}
    for path in originals:
        (copy / path).unlink()
    store = MemoryStore()
    with tools_for(copy, store, tmp_path / "state", version) as context:
        archive(context, copy)
    rebuilt = 0
    for partition, state in archived_states(store).items():
        for segment in state.segments:
            assert segment.snapshot.origin is SnapshotOrigin.REBUILT
            original = originals.get(Path(partition) / f"{segment.end_offset:020d}.snapshot")
            # A log whose beginning was deleted cannot know the producers of those batches; a broker's file does.
            if original is not None and not partition.startswith("trimmed"):
                ours = read_snapshot(parts_of(store, state.lineage.root, segment)[PartName.PRODUCER_SNAPSHOT])
                assert set(ours) == set(read_snapshot(original)), segment
                rebuilt += 1
    assert rebuilt >= (12 if version == "2.7.2" else 28)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_rolled_segments_below_the_last_stable_offset_are_archived_and_none_above(
    version: str, tmp_path: Path
) -> None:
    log_dir, store = golden(version) / "logs", MemoryStore()
    with tools_for(log_dir, store, tmp_path, version) as context:
        archive(context, log_dir)
    states = archived_states(store)
    for topic, facts in manifest(version)["topics"].items():
        for number, partition in enumerate(facts["partitions"]):
            name = f"{topic}-{number}"
            stable = [span for span in rolled_ranges(log_dir, name) if span[1] <= partition["last_stable_offset"]]
            assert (ranges(states[name]) if name in states else []) == stable


def test_a_second_round_has_nothing_to_do_and_asks_the_store_for_nothing(tmp_path: Path) -> None:
    log_dir, store = golden("4.3.0") / "logs", MemoryStore()
    with tools_for(log_dir, store, tmp_path) as context:
        archive(context, log_dir)
        objects = dict(store.objects)
        archive(context, log_dir)
    assert store.objects == objects


def test_verify_finds_the_archive_sound_after_a_round_into_a_directory(tmp_path: Path) -> None:
    log_dir = golden("2.7.2") / "logs"
    store = open_store(StoreSettings(url=str(tmp_path / "archive")))
    with tools_for(log_dir, store, tmp_path / "state", "2.7.2") as context:
        archive(context, log_dir)
    for state in archived_states(store).values():
        found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
        assert found.problems == ()
