"""Rounds over logs that are damaged, have holes, or change while they are archived."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from sidecar.archive.keys import below
from sidecar.broker.files import FileBrokerFacts
from sidecar.compaction.rules import DAY_MS
from sidecar.compactor.gc import GcTask
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.errors import CorruptFile, CoverageHole, ObjectMissing, PartitionError, SidecarError, StoreDenied
from sidecar.model import PartName, TopicPartition
from sidecar.partition.plan import LAST_RESORT
from sidecar.runner import checks
from tests.discovery.made_up import a_partition
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden_copy
from tests.runner.archives import parts_of
from tests.runner.rig import (
    archive,
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    tools_for,
)


def test_a_damaged_segment_stops_its_partition_there_and_no_other(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    spans = rolled_ranges(copy, "orders-0")
    damaged = copy / "orders-0" / f"{spans[3][0]:020d}.log"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0x10
    damaged.write_bytes(content)
    with tools_for(copy, store, tmp_path / "state") as context:
        report = archive(context, copy)
    stopped = [outcome for outcome in report.outcomes if outcome.error]
    assert [str(outcome.files.topic_partition) for outcome in stopped] == ["orders-0"]
    error = stopped[0].error
    assert isinstance(error, CorruptFile)
    assert error.file == str(damaged)
    assert error.position is not None
    states = archived_states(store)
    assert ranges(states["orders-0"]) == spans[:3]
    assert ranges(states["orders-1"]) == rolled_ranges(copy, "orders-1")
    assert report.exit_code == 3


@pytest.mark.parametrize("kind", ["truncated", "zero tail", "foreign", "trailing bytes"])
def test_a_segment_that_does_not_end_exactly_is_not_archived(kind: str, tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    first = copy / "orders-1" / f"{0:020d}.log"
    content = first.read_bytes()
    first.write_bytes(
        {
            "truncated": content[:-7],
            "zero tail": content + bytes(4096),
            "foreign": b"\x89PNG\r\n\x1a\n" + content,
            "trailing bytes": content + b"\x00\x01",
        }[kind]
    )
    with tools_for(copy, store, tmp_path / "state") as context:
        report = archive(context, copy, "orders")
    stopped = {str(outcome.files.topic_partition): str(outcome.error) for outcome in report.outcomes if outcome.error}
    assert set(stopped) == {"orders-1"}
    assert str(first) in stopped["orders-1"]
    assert "orders-1" not in archived_states(store)


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        (None, False),
        (StoreDenied("no"), True),
        (PartitionError("no"), False),
        (CorruptFile("no", file="{log_dir}/orders-0/00000000000000000000.log"), False),
        (CorruptFile("no", file="cluster/orders/0/id/commits/00000000000000000000.json"), True),
    ],
)
def test_segments_are_pinned_during_an_outage_of_the_store_or_of_the_archive_but_not_of_their_own_log(
    error: SidecarError | None, is_outage: bool, tmp_path: Path
) -> None:
    directory = a_partition(tmp_path, "orders-0", 0, 10)
    files = read_partition_directory(TopicPartition("orders", 0), tmp_path, directory)
    if isinstance(error, CorruptFile):
        error = error.within(error.file.format(log_dir=tmp_path))
    assert checks._is_outage(error, files) is is_outage


def test_an_archive_is_read_again_if_a_segment_of_it_was_compacted_and_deleted_since(tmp_path: Path) -> None:
    """Its replacement has the producers at the same offset."""
    copy, store, missed = copy_partitions(tmp_path, "orders-0"), MemoryStore(), list[str]()
    spans = rolled_ranges(copy, "orders-0")
    shutil.copytree(copy, tmp_path / "later")
    remove_offsets(copy / "orders-0", lambda offset: offset <= spans[3][0])
    with tools_for(copy, store, tmp_path / "state") as context:
        assert archive(context, copy, "orders").errors == []
    shutil.copytree(tmp_path / "later", copy, dirs_exist_ok=True)

    def missing(operation: str, key: str) -> None:
        if operation == "read" and key.endswith(".indexes") and not missed:
            missed.append(key)
            raise ObjectMissing(f"{key}: no such object")

    store.before = missing
    with tools_for(copy, store, tmp_path / "state") as context:
        assert archive(context, copy, "orders").errors == []
    assert len(missed) == 1
    assert ranges(archived_states(store)["orders-0"]) == spans


@pytest.mark.leaves_damage("missing_object")
def test_an_archived_object_that_is_missing_is_a_fault_of_its_partition(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    spans = rolled_ranges(copy, "orders-0")
    rolled_later = [file for file in (copy / "orders-0").glob("0*.*") if int(file.name[:20]) > spans[2][0]]
    (tmp_path / "later").mkdir()
    for file in rolled_later:
        shutil.move(file, tmp_path / "later")
    with tools_for(copy, store, tmp_path / "state") as context:
        archive(context, copy, "orders")
    state = archived_states(store)["orders-0"]
    key = below(state.lineage.root, state.segments[-1].indexes_key)
    del store.objects[key]
    for file in rolled_later:
        shutil.move(tmp_path / "later" / file.name, file)
    with tools_for(copy, store, tmp_path / "state") as context:
        report = archive(context, copy, "orders")
    assert [str(error) for error in report.errors] == [f"{key}: committed, but not in the store"]
    assert isinstance(report.errors[0], CorruptFile)


def test_an_idle_partition_is_reported_when_gc_finds_that_its_archive_is_gone(tmp_path: Path) -> None:
    copy, store = copy_partitions(tmp_path, "orders-0", "orders-1"), MemoryStore()
    with tools_for(copy, store, tmp_path / "state") as context, rounds_over(context, copy) as rounds:
        assert rounds.run_once().errors == []
        clearing = GcTask(context, DAY_MS)
        clearing.offer(rounds.checks.led())
        emptied, store.objects = store.objects, {}
        assert rounds.run_once().errors == []  # An idle partition costs no request.
        clearing()
        for _ in range(2):
            errors = rounds.run_once().errors
            assert [type(error) for error in errors] == [CorruptFile, CorruptFile]
            assert all("is missing, although this sidecar" in str(error) for error in errors)
        assert store.objects == {}
        store.objects = emptied
        assert rounds.run_once().errors == []


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_missing_index_is_rebuilt_as_the_broker_would(suffix: str, tmp_path: Path) -> None:
    copy, store = golden_copy("3.9.1", tmp_path / "copy") / "logs", MemoryStore()
    files = {path.name: path.read_bytes() for path in (copy / "orders-1").glob(f"*.{suffix}")}
    for name in files:
        (copy / "orders-1" / name).unlink()
    with tools_for(copy, store, tmp_path / "state", "3.9.1") as context:
        assert archive(context, copy, "orders").errors == []
    state = archived_states(store)["orders-1"]
    part = PartName.OFFSET_INDEX if suffix == "index" else PartName.TIME_INDEX
    for segment in state.segments:
        rebuilt = parts_of(store, state, segment)[part]
        broker = files[f"{segment.base_offset:020d}.{suffix}"]
        # A segment that was active across a restart has entries of its own making; see test_golden_indexes.
        assert len(rebuilt) > 0
        assert rebuilt == broker or len(rebuilt) <= len(broker)


def test_a_gap_between_archive_and_disk_stops_the_partition_until_it_is_recorded_as_lost(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    spans = rolled_ranges(copy, "orders-0")
    later = tmp_path / "later"
    later.mkdir()
    for file in sorted((copy / "orders-0").glob("0*.*")):
        if int(file.name[:20]) > spans[2][0]:
            file.rename(later / file.name)
    with tools_for(copy, store, tmp_path / "state") as context:
        archive(context, copy, "orders")
        for base, _ in spans[:4]:
            for file in (copy / "orders-0").glob(f"{base:020d}.*"):
                file.unlink()
        for file in later.iterdir():
            if int(file.name[:20]) >= spans[4][0]:
                shutil.copy2(file, copy / "orders-0" / file.name)
        report = archive(context, copy, "orders")
        errors = [outcome.error for outcome in report.outcomes if outcome.error]
        assert [type(error) for error in errors] == [CoverageHole]
        assert f"ends at offset {spans[1][1]}" in str(errors[0])
        assert str(errors[0]).endswith(LAST_RESORT)
    with tools_for(copy, store, tmp_path / "state", record_lost=True) as context:
        report = archive(context, copy, "orders")
        assert report.errors == []
    state = archived_states(store)["orders-0"]
    assert ranges(state) == spans[:2] + spans[4:]
    assert [(hole.base_offset, hole.end_offset) for hole in state.holes] == [(spans[1][1], spans[4][0])]


def test_a_log_that_is_replaced_during_the_upload_is_not_committed(tmp_path: Path) -> None:
    copy = golden_copy("4.3.0", tmp_path / "copy") / "logs"
    victim = copy / "orders-1" / f"{0:020d}.log"

    def replace_it(operation: str, key: str) -> None:
        if operation == "upload" and "orders/1/" in key and key.endswith(".indexes"):
            content = victim.read_bytes()
            victim.unlink()
            victim.write_bytes(content)

    store = MemoryStore(before=replace_it)
    with tools_for(copy, store, tmp_path / "state", uploads_ahead=1) as context:
        report = archive(context, copy, "orders")
    assert [type(outcome.error).__name__ for outcome in report.outcomes if outcome.error] == ["SegmentChanged"]
    assert "orders-1" not in archived_states(store)
    assert not [key for key in store.objects if "/orders/1/" in key]


@pytest.mark.parametrize(("changes", "errors"), [(1, 0), (2, 1)])
def test_a_file_that_changes_once_after_its_listing_is_retried_at_the_next_check_and_is_no_error(
    changes: int, errors: int, tmp_path: Path
) -> None:
    copy, left = copy_partitions(tmp_path, "orders-1"), list(range(changes))
    victim = copy / "orders-1" / f"{0:020d}.log"

    def replace_it(operation: str, key: str) -> None:
        if operation == "upload" and key.endswith(".indexes") and left:
            left.pop()
            content = victim.read_bytes()
            victim.unlink()
            victim.write_bytes(content)

    store = MemoryStore(before=replace_it)
    with (
        tools_for(copy, store, tmp_path / "state", retry_wait_s=60, uploads_ahead=1) as context,
        structlog.testing.capture_logs() as logs,
    ):
        rounds = rounds_over(context, copy)
        for number in range(changes + 1 - errors):
            rounds.run_once()
            is_retried = number + 1 < changes + 1 - errors
            assert (rounds.due_in_s() == 0) is is_retried
        stopped = [line["event"] for line in logs if line["log_level"] == "error"]
        assert stopped == ["partition_stopped"] * errors
        assert ("orders-1" in archived_states(store)) is not bool(errors)
        context.clock.advance_ms(60_000)  # type: ignore[attr-defined]
        assert rounds.run_once().errors == []
    assert ranges(archived_states(store)["orders-1"]) == rolled_ranges(copy, "orders-1")


def test_a_log_that_retention_deletes_during_the_upload_is_archived_all_the_same(tmp_path: Path) -> None:
    copy = golden_copy("4.3.0", tmp_path / "copy") / "logs"
    expected = rolled_ranges(copy, "append-time-0")

    def delete_it(operation: str, key: str) -> None:
        if operation == "upload" and key.endswith(".log"):
            for file in (copy / "append-time-0").glob(f"{int(key.rpartition('/')[2][:20]):020d}.*"):
                if file.suffix != ".snapshot":
                    file.unlink()

    store = MemoryStore(before=delete_it)
    with tools_for(copy, store, tmp_path / "state", uploads_ahead=1) as context:
        report = archive(context, copy, "append-time")
    assert report.errors == []
    assert ranges(archived_states(store)["append-time-0"]) == expected


def test_a_segment_that_is_gone_from_the_middle_is_a_hole_and_not_an_archived_range(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    spans = rolled_ranges(copy, "orders-0")
    (copy / "orders-0" / f"{spans[3][0]:020d}.log").unlink()
    with tools_for(copy, store, tmp_path / "state") as context:
        report = archive(context, copy, "orders")
    errors = [outcome.error for outcome in report.outcomes if outcome.error]
    assert [type(error) for error in errors] == [CoverageHole]
    text = str(errors[0])
    assert text.startswith(f"orders-0: offsets [{spans[3][0]}, {spans[3][1]}) are missing in {copy / 'orders-0'}: the")
    assert f"ends at offset {spans[3][0] - 1}, the next segment begins at {spans[3][1]}" in text
    assert f"Usually {spans[3][0]:020d}.log was deleted; or {spans[2][0]:020d}.log has lost its end" in text
    assert text.endswith(LAST_RESORT)
    assert ranges(archived_states(store)["orders-0"]) == spans[:2]
    with tools_for(copy, store, tmp_path / "state", record_lost=True) as context:
        assert archive(context, copy, "orders").errors == []
    state = archived_states(store)["orders-0"]
    assert ranges(state) == [*spans[:3], *spans[4:]]
    assert [(hole.base_offset, hole.end_offset) for hole in state.holes] == [spans[3]]


def test_offsets_that_another_replica_compacted_away_are_no_hole_where_the_policy_says_so(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    spans = rolled_ranges(copy, "orders-0")
    (copy / "orders-0" / f"{spans[3][0]:020d}.log").unlink()
    policies = [TopicPolicySettings(pattern="orders", cleanup_policy="compact,delete")]
    with tools_for(copy, store, tmp_path / "state") as context:
        context = replace(context, facts=FileBrokerFacts([copy], assume_leader=True, policies=policies))
        with structlog.testing.capture_logs() as logs:
            assert archive(context, copy, "orders").errors == []
        counted = f"offsets_accepted_as_compacted_total {spans[3][1] - spans[3][0]}.0"
        assert counted in context.metrics.exposition()[0].decode()
    reported = [line for line in logs if line["event"] == "missing_offsets_accepted_as_compacted"]
    assert [(line["offsets"], line["reason"]) for line in reported] == [
        (spans[3], "cleanup.policy has compact (topics.policies, entry orders)")
    ]
    state = archived_states(store)["orders-0"]
    assert (state.end_offset, state.holes) == (spans[-1][1], ())
