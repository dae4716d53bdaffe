"""Planned segments stay held open until they are archived: over rounds, failed turns and the broker's retention."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import NoneType

import pytest
from structlog.testing import capture_logs

from sidecar.archive.actions import LossReason
from sidecar.archive.state import Hole
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.partition_directory import ListingCache
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import CorruptFile, ObjectDamaged, SidecarError, StoreDenied, StoreUnavailable
from sidecar.host.pinned_files import PinnedFiles
from sidecar.http.pages import status_json
from sidecar.model import PartName
from tests.compactor.before_upload_rig import DELAY_MS
from tests.compactor.before_upload_rig import rig as before_upload_rig
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.retention.pinned_rig import Outage, after_an_outage, held_names, open_deleted
from tests.runner.rig import (
    archive,
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    sample,
    status_of,
    tools_for,
)


@pytest.mark.parametrize("uploads", [0, 2], ids=["the partition had no archive before", "the archive has a beginning"])
@pytest.mark.parametrize("partition", ["orders-0", "transactions-0"])
def test_what_retention_takes_during_an_outage_is_archived_when_it_is_over(
    tmp_path: Path, partition: str, uploads: int
) -> None:
    with after_an_outage(tmp_path, partition, uploads) as (context, rounds, outage, directory):
        expected = rolled_ranges(directory.parent, partition)
        start = expected[len(expected) // 2][0]
        remove_offsets(directory, lambda offset: offset >= start)
        report = rounds.run_once()
        assert report.errors == []
        archived = ranges(archived_states(outage.store)[partition])
        assert held_names(context) == [base_offset for base_offset, _ in expected[len(archived) :]]
        assert open_deleted(directory.parent) == []
    found = archived_states(outage.store)[partition]
    undisturbed = MemoryStore()
    again = copy_partitions(tmp_path / "again", partition)
    with tools_for(again, undisturbed, tmp_path / "again" / "state") as context:
        archive(context, again)
    wanted = archived_states(undisturbed)[partition]
    assert ranges(found) == ranges(wanted) == expected[: len(archived)]
    assert expected[len(archived) - 1][0] >= start
    assert found.holes == ()
    for ours, theirs in zip(found.segments, wanted.segments, strict=True):
        assert ours.part(PartName.LOG) == theirs.part(PartName.LOG)
        ours_aborted, theirs_aborted = ours.part(PartName.TRANSACTION_INDEX), theirs.part(PartName.TRANSACTION_INDEX)
        assert (ours_aborted and ours_aborted.crc32c) == (theirs_aborted and theirs_aborted.crc32c)
        assert ours.leader_epochs == theirs.leader_epochs
        assert ours.snapshot.exact == theirs.snapshot.exact


def test_the_producers_below_the_first_segment_are_known_though_their_snapshot_is_gone_with_it(tmp_path: Path) -> None:
    log_dir, outage = copy_partitions(tmp_path, "transactions-0"), Outage()
    directory = log_dir / "transactions-0"
    remove_offsets(directory, lambda offset: offset >= 116)
    undisturbed = copy_partitions(tmp_path / "again", "transactions-0")
    remove_offsets(undisturbed / "transactions-0", lambda offset: offset >= 116)
    store = MemoryStore()
    with tools_for(undisturbed, store, tmp_path / "again" / "state") as context:
        archive(context, undisturbed)
    with tools_for(log_dir, outage.store, tmp_path / "state", record_lost=True) as context:
        rounds = rounds_over(context, log_dir)
        rounds.run_once()
        outage.left = None
        remove_offsets(directory, lambda offset: offset >= 431)
        assert rounds.run_once().errors == []
    found, wanted = (archived_states(one)["transactions-0"] for one in (outage.store, store))
    assert ranges(found) == ranges(wanted)
    assert ranges(found)[0] == (116, 220)
    for ours, theirs in zip(found.segments, wanted.segments, strict=True):
        assert ours.snapshot.exact
        snapshots = [one.part(PartName.PRODUCER_SNAPSHOT) for one in (ours, theirs)]
        assert None not in snapshots
        assert len({part.size_bytes for part in snapshots if part is not None}) == 1


def test_what_retention_takes_behind_a_task_is_archived_by_those_that_follow(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    expected = rolled_ranges(log_dir, "orders-0")
    with tools_for(log_dir, store, tmp_path / "state", task_s=1.0, uploads_ahead=1, record_lost=True) as context:
        clock, site = context.clock, []
        assert isinstance(clock, ManualClock)

        def slow(operation: str, _key: str) -> None:
            if operation == "upload":
                clock.advance_ms(2_000)
                site.append(held_names(context))
                remove_offsets(log_dir / "orders-0", lambda offset: offset >= expected[-1][0])

        store.before = slow
        rounds = rounds_over(context, log_dir)
        assert rounds.run_once().errors == []
        assert site[0] == [base_offset for base_offset, _ in expected]
        # The tasks that follow the first one find them gone, before another answer of the leader.
        assert held_names(context) == []
    state = archived_states(store)["orders-0"]
    assert (ranges(state), state.holes) == (expected, ())


def test_bytes_held_of_deleted_files_are_counted(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (context, rounds, outage, directory):
        size_bytes = (directory / f"{0:020d}.log").stat().st_size
        remove_offsets(directory, lambda offset: offset >= 140)
        outage.left = 0
        rounds.run_once()
        assert f"pinned_deleted_bytes {float(size_bytes)}".encode() in context.metrics.exposition()[0]
        context.stop.set()
        rounds.run_once()
        assert held_names(context) == []
        assert b"pinned_deleted_bytes 0.0" in context.metrics.exposition()[0]


def test_pins_do_not_depend_on_the_room_of_the_queue(tmp_path: Path) -> None:
    log_dir, outage = copy_partitions(tmp_path, "orders-0", "transactions-0"), Outage()
    rolled = [base for name in ("orders-0", "transactions-0") for base, _ in rolled_ranges(log_dir, name)]
    with tools_for(log_dir, outage.store, tmp_path / "state", max_queue=1) as context:
        rounds = rounds_over(context, log_dir)
        assert rounds.run_once().errors
        assert held_names(context) == sorted(rolled)
        assert sample(context, "unpinned_segments") == 0.0


def test_segments_beyond_the_limit_of_pins_are_counted_shown_and_logged_once(tmp_path: Path) -> None:
    log_dir, outage = copy_partitions(tmp_path, "orders-0"), Outage()
    unpinned = len(rolled_ranges(log_dir, "orders-0")) - 2
    with tools_for(log_dir, outage.store, tmp_path / "state", pins=2) as context, capture_logs() as logs:
        rounds = rounds_over(context, log_dir)
        for _ in range(3):
            assert rounds.run_once().errors
            assert held_names(context) == [0, 140]
            assert sample(context, "unpinned_segments") == unpinned
            assert [row["unpinned_segments"] for row in status_json(status_of(context))["partitions"]] == [unpinned]
        outage.left = None
        for _ in range(2):
            assert rounds.run_once().errors == []
        assert sample(context, "unpinned_segments") == 0.0
        assert [row["unpinned_segments"] for row in status_json(status_of(context))["partitions"]] == [0]
    found = [line for line in logs if line["event"] in ("segments_not_pinned", "all_segments_pinned")]
    assert [(line["event"], line["log_level"]) for line in found] == [
        ("segments_not_pinned", "warning"),
        ("all_segments_pinned", "info"),
    ]
    assert (found[0]["segments"], found[0]["partitions"], found[0]["pinned"]) == (unpinned, ["orders-0"], 2)


def truncated(directory: Path) -> None:
    remove_offsets(directory, lambda offset: offset < 504)


def moved_away(directory: Path) -> None:
    directory.rename(directory.with_name(f"{directory.name}.0123456789abcdef0123456789abcdef-delete"))


def made_anew(directory: Path) -> None:
    old = directory.with_name("old")
    directory.rename(old)
    shutil.copytree(old, directory)


def led_under_another_epoch(directory: Path) -> None:
    path = directory / "leader-epoch-checkpoint"
    path.write_text("0\n1\n7 0\n")
    remove_offsets(directory, lambda offset: offset >= 248)


@pytest.mark.parametrize(
    ("change", "kept"),
    [(truncated, [0, 140, 248]), (moved_away, []), (made_anew, []), (led_under_another_epoch, [])],
)
def test_what_retention_did_not_take_is_let_go(tmp_path: Path, change: Callable[[Path], None], kept: list[int]) -> None:
    with after_an_outage(tmp_path) as (context, rounds, outage, directory):
        assert len(held_names(context)) > 3
        before = dict(context.pinned._pinned)
        change(directory)
        outage.left = 0
        rounds.run_once()
        still = [file for file, descriptor in before.items() if context.pinned._pinned.get(file) == descriptor]
        assert sorted(int(file.path.stem) for file in still) == kept
        assert open_deleted(directory.parent) == []


def test_a_file_whose_time_has_changed_is_listed_pinned_and_archived_again(tmp_path: Path) -> None:
    """No directory shows that, and no other file comes or goes."""
    with after_an_outage(tmp_path) as (context, rounds, outage, directory):
        outage.left, names = 0, held_names(context)
        cache = ListingCache(ManualClock(directory.stat().st_mtime_ns // 1_000_000 + 60_000))
        rounds.checks.scan = partial(scan_log_dirs, [directory.parent], TopicFilter((".*",)), cache=cache)
        rounds.run_once()
        os.utime(directory / f"{names[2]:020d}.log")
        rounds.run_once()
        rounds.run_once()
        assert held_names(context) == names
        os.utime(directory / f"{names[1]:020d}.timeindex")
        outage.left = None
        for _ in range(2):
            rounds.run_once()
        assert [base for base, _ in ranges(archived_states(outage.store)["orders-0"])] == names


def test_what_was_planned_as_the_first_of_an_archive_and_is_lost_is_reported_once(tmp_path: Path) -> None:
    with after_an_outage(tmp_path, pinned=PinnedFiles(limit=0)) as (context, rounds, outage, directory):
        remove_offsets(directory, lambda offset: offset >= 248)
        with capture_logs() as logs:
            rounds.run_once()
            rounds.run_once()
        assert [(line["from_offset"], line["to_offset"]) for line in logs if line["event"] == "offsets_lost"] == [
            (0, 248)
        ]
        assert b"lost_offsets_total 248.0" in context.metrics.exposition()[0]
    assert ranges(archived_states(outage.store)["orders-0"])[0][0] == 248


def test_what_cannot_be_archived_from_its_descriptor_keeps_nothing_else_from_it(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    directory = log_dir / "orders-0"
    with (directory / f"{140:020d}.log").open("r+b") as file:
        file.seek(70)
        file.write(b"damage")
    expected = rolled_ranges(log_dir, "orders-0")
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        rounds = rounds_over(context, log_dir)
        (failed,) = rounds.run_once().outcomes
        assert isinstance(failed.error, CorruptFile)
        (failed,) = rounds.run_once().outcomes
        assert isinstance(failed.error, CorruptFile), "it stands in the directory: a person may still restore it"
        remove_offsets(directory, lambda offset: offset >= 362)
        with capture_logs() as logs:
            for _ in range(3):
                rounds.run_once()
        assert [line["path"][-8:] for line in logs if line["event"] == "pinned_segment_released"] == ["0140.log"]
    state = archived_states(store)["orders-0"]
    assert ranges(state) == [expected[0], *expected[2:]]
    assert state.holes == (Hole(140, 248, LossReason.NOT_ON_DISK),)


def test_one_bad_read_does_not_release_what_only_a_pin_has(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (_, rounds, outage, directory), capture_logs() as logs:
        spans = rolled_ranges(directory.parent, "orders-0")
        with (directory / f"{spans[0][0]:020d}.log").open("r+b", buffering=0) as file:
            status, right = os.fstat(file.fileno()), os.pread(file.fileno(), 6, 70)
            remove_offsets(directory, lambda offset: offset >= spans[0][1])
            for content in (b"damage", right):
                os.pwrite(file.fileno(), content, 70)
                os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
                (outcome,) = rounds.run_once().outcomes
                assert isinstance(outcome.error, CorruptFile if content == b"damage" else NoneType)
    assert ranges(archived_states(outage.store)["orders-0"]) == spans
    assert "pinned_segment_released" not in {line["event"] for line in logs}


def test_what_waits_for_a_transaction_is_released_when_retention_takes_it(tmp_path: Path) -> None:
    """Its end marker lies above, and may be taken, too: it would keep what lies above from the archive for ever."""
    log_dir = copy_partitions(tmp_path, "transactions-0")
    with tools_for(log_dir, MemoryStore(), tmp_path / "state", record_lost=True) as context, capture_logs() as logs:
        rounds = rounds_over(context, log_dir)
        assert rounds.run_once().errors == []
        assert 603 in held_names(context)
        remove_offsets(log_dir / "transactions-0", lambda offset: offset >= 848)
        rounds.run_once()
        assert 603 not in held_names(context)
    released = [line for line in logs if line["event"] == "pinned_segment_released"]
    assert [line["path"][-8:] for line in released] == ["0603.log"]


def test_what_is_gone_does_not_wait_to_be_compacted(tmp_path: Path) -> None:
    with before_upload_rig(tmp_path, "orders-0") as site:
        expected = rolled_ranges(site.log_dir, "orders-0")
        outage = Outage()
        site.store.before = outage.before
        site.round()
        clock = site.context.clock
        assert isinstance(clock, ManualClock)
        clock.advance_ms(DELAY_MS)
        assert isinstance(site.round().outcomes[0].error, StoreUnavailable)
        outage.left = None
        remove_offsets(site.log_dir / "orders-0", lambda offset: offset >= expected[3][0])
        assert site.round().errors == []
        assert ranges(archived_states(site.store)["orders-0"]) == expected


@pytest.mark.parametrize("kind", [StoreDenied, ObjectDamaged])
def test_what_rolls_while_the_archive_of_its_partition_cannot_be_read_is_pinned(
    kind: type[SidecarError], tmp_path: Path
) -> None:
    """A damaged commit may be restored from a replica of the bucket: the partition goes on then, if its segments are there."""
    log_dir, store, aside = copy_partitions(tmp_path, "orders-0"), MemoryStore(), tmp_path / "aside"
    spans = rolled_ranges(log_dir, "orders-0")
    aside.mkdir()
    for file in (log_dir / "orders-0").glob("0*.*"):
        if int(file.stem) > spans[3][0]:
            shutil.move(file, aside)

    def fault(operation: str, key: str) -> None:
        if operation == "read" and "/commits/" in key:
            raise kind(f"{key}: read with another CRC-32C")

    with tools_for(log_dir, store, tmp_path / "state", retry_wait_s=60.0) as context:
        with rounds_over(context, log_dir) as rounds:
            rounds.cycle()
            assert rounds.finish().errors == []
        store.before = fault
        with rounds_over(context, log_dir) as rounds:
            (outcome,) = rounds.cycle().outcomes
            assert isinstance(outcome.error, StoreDenied | CorruptFile)
            for file in aside.iterdir():
                shutil.move(file, log_dir / "orders-0")
            rounds.cycle()  # It backs off.
        assert held_names(context) == [base_offset for base_offset, _ in spans]
        context.pinned.release()
