"""Planned segments stay held open until they are archived: over rounds, failed turns and the broker's retention."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.archive.state import Hole
from sidecar.broker.files import FileBrokerFacts
from sidecar.clock import ManualClock
from sidecar.discovery.scan import scan_log_dirs
from sidecar.discovery.topic_filter import TopicFilter
from sidecar.errors import CorruptFile, StoreUnavailable
from sidecar.model import PartitionFiles, PartName
from sidecar.pipeline.held_files import HeldFiles
from sidecar.pipeline.lost_offsets import NOT_ON_DISK
from sidecar.pipeline.partition import GONE_IN_DOUBT, PartitionArchiver
from sidecar.pipeline.rounds import Rounds
from sidecar.pipeline.sources import identity_of
from sidecar.pipeline.tools import Tools
from sidecar.ports import PartitionFacts
from tests.fakes.memory_store import MemoryStore
from tests.pipeline.rig import (
    archive,
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    tools_for,
)
from tests.pipeline.test_asking_the_broker import Leadership


class Outage:
    """A store that takes nothing while it is away, after so many uploads."""

    def __init__(self, uploads: int = 0) -> None:
        self.left: int | None = uploads
        self.store = MemoryStore(before=self._before)

    def _before(self, operation: str, _key: str) -> None:
        if operation == "upload" and self.left is not None:
            if self.left <= 0:
                raise StoreUnavailable("no answer")
            self.left -= 1


@contextmanager
def after_an_outage(
    tmp_path: Path, partition: str = "orders-0", uploads: int = 0, held: HeldFiles | None = None
) -> Iterator[tuple[Tools, Rounds, Outage, Path]]:
    """All was planned, and failed after some segments: two uploads each."""
    log_dir, outage = copy_partitions(tmp_path, partition), Outage(uploads)
    with tools_for(log_dir, outage.store, tmp_path / "state", record_lost=True, uploads_ahead=1) as tools:
        tools = tools if held is None else replace(tools, held=held)
        rounds = rounds_over(tools, log_dir)
        (failed,) = rounds.run_once().outcomes
        assert isinstance(failed.error, StoreUnavailable)
        outage.left = None
        yield tools, rounds, outage, log_dir / partition
        tools.held.release()


def held_names(tools: Tools) -> list[int]:
    return sorted(int(file.path.stem) for file in tools.held._held)


def open_deleted(log_dir: Path) -> list[str]:
    links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [link for link in links if link.startswith(str(log_dir)) and link.endswith("(deleted)")]


@pytest.mark.parametrize("uploads", [0, 2], ids=["nothing was archived before", "the archive has a beginning"])
@pytest.mark.parametrize("partition", ["orders-0", "transactions-0"])
def test_what_retention_takes_during_an_outage_is_archived_when_it_is_over(
    tmp_path: Path, partition: str, uploads: int
) -> None:
    with after_an_outage(tmp_path, partition, uploads) as (tools, rounds, outage, directory):
        expected = rolled_ranges(directory.parent, partition)
        start = expected[len(expected) // 2][0]
        remove_offsets(directory, lambda offset: offset >= start)
        report = rounds.run_once()
        assert report.errors == []
        archived = ranges(archived_states(outage.store)[partition])
        assert held_names(tools) == [base_offset for base_offset, _ in expected[len(archived) :]]
        assert open_deleted(directory.parent) == []
    found = archived_states(outage.store)[partition]
    undisturbed = MemoryStore()
    again = copy_partitions(tmp_path / "again", partition)
    with tools_for(again, undisturbed, tmp_path / "again" / "state") as tools:
        archive(tools, again)
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


def test_what_retention_takes_behind_a_round_that_was_over_is_archived_by_the_next(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    expected = rolled_ranges(log_dir, "orders-0")
    with tools_for(log_dir, store, tmp_path / "state", round_s=1.0, record_lost=True) as tools:
        clock = tools.clock
        assert isinstance(clock, ManualClock)
        store.before = lambda operation, _key: clock.advance_ms(2_000) if operation == "upload" else None
        rounds = rounds_over(tools, log_dir)
        rounds.run_once()
        archived = len(ranges(archived_states(store)["orders-0"]))
        assert 0 < archived < len(expected) - 2
        assert held_names(tools) == [base_offset for base_offset, _ in expected[archived:]]
        remove_offsets(log_dir / "orders-0", lambda offset: offset >= expected[-1][0])
        for _ in range(len(expected)):
            rounds.run_once()
            assert b"held_deleted_bytes 0.0" in tools.metrics.exposition()[0] or open_deleted(log_dir)
        assert held_names(tools) == []
    state = archived_states(store)["orders-0"]
    assert (ranges(state), state.holes) == (expected, ())


def test_bytes_held_of_deleted_files_are_counted(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (tools, rounds, outage, directory):
        size_bytes = (directory / f"{0:020d}.log").stat().st_size
        remove_offsets(directory, lambda offset: offset >= 140)
        outage.left = 0
        rounds.run_once()
        assert f"held_deleted_bytes {float(size_bytes)}".encode() in tools.metrics.exposition()[0]
        tools.stop.set()
        rounds.run_once()
        assert held_names(tools) == []
        assert b"held_deleted_bytes 0.0" in tools.metrics.exposition()[0]


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
    path.write_text("0\n2\n0 0\n7 1000\n")
    remove_offsets(directory, lambda offset: offset >= 248)


@pytest.mark.parametrize(
    ("change", "kept"),
    [(truncated, [0, 140, 248]), (moved_away, []), (made_anew, []), (led_under_another_epoch, [])],
)
def test_what_retention_did_not_take_is_let_go(tmp_path: Path, change: Callable[[Path], None], kept: list[int]) -> None:
    with after_an_outage(tmp_path) as (tools, rounds, outage, directory):
        assert len(held_names(tools)) > 3
        before = dict(tools.held._held)
        change(directory)
        outage.left = 0
        rounds.run_once()
        still = [file for file, descriptor in before.items() if tools.held._held.get(file) == descriptor]
        assert sorted(int(file.path.stem) for file in still) == kept
        assert open_deleted(directory.parent) == []


def test_what_was_planned_as_the_first_of_an_archive_and_is_lost_is_told_once(tmp_path: Path) -> None:
    with after_an_outage(tmp_path, held=HeldFiles(limit=0)) as (tools, rounds, outage, directory):
        remove_offsets(directory, lambda offset: offset >= 248)
        with capture_logs() as logs:
            rounds.run_once()
            rounds.run_once()
        assert [(line["from_offset"], line["to_offset"]) for line in logs if line["event"] == "offsets_lost"] == [
            (0, 248)
        ]
        assert b"lost_offsets_total 248.0" in tools.metrics.exposition()[0]
    assert ranges(archived_states(outage.store)["orders-0"])[0][0] == 248


def test_what_cannot_be_archived_from_its_descriptor_keeps_nothing_else_from_it(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    directory = log_dir / "orders-0"
    with (directory / f"{140:020d}.log").open("r+b") as file:
        file.seek(70)
        file.write(b"damage")
    expected = rolled_ranges(log_dir, "orders-0")
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as tools:
        rounds = rounds_over(tools, log_dir)
        (failed,) = rounds.run_once().outcomes
        assert isinstance(failed.error, CorruptFile)
        (failed,) = rounds.run_once().outcomes
        assert isinstance(failed.error, CorruptFile), "it stands in the directory: a person may still restore it"
        remove_offsets(directory, lambda offset: offset >= 362)
        with capture_logs() as logs:
            for _ in range(3):
                rounds.run_once()
        assert [line["path"][-8:] for line in logs if line["event"] == "held_segment_let_go"] == ["0140.log"]
    state = archived_states(store)["orders-0"]
    assert ranges(state) == [expected[0], *expected[2:]]
    assert state.holes == (Hole(140, 248, NOT_ON_DISK),)


class Answering(Leadership):
    """A leader that tells what is stable."""

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        return replace(super().partition(files), transactions_decided=True)


@pytest.mark.parametrize(
    ("log_start_offsets", "planned", "reasons"),
    [
        ([248], [0, 140, 248, 362], [""]),
        ([140, 248], [0, 140, 248, 362], [GONE_IN_DOUBT, ""]),
        ([None, None], [248, 362], [GONE_IN_DOUBT, ""]),
        ([0, 0], [248, 362], [GONE_IN_DOUBT, ""]),
    ],
    ids=["told", "told at the next look", "not told", "nothing was deleted by the leader"],
)
def test_only_what_the_leader_has_deleted_is_archived_without_its_file(
    tmp_path: Path, log_start_offsets: list[int | None], planned: list[int], reasons: list[str]
) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    topics = TopicFilter(("orders",))
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as tools:
        facts = Answering(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0)
        tools = replace(tools, facts=facts)
        (files,) = scan_log_dirs([log_dir], topics).partitions
        archiver = PartitionArchiver(tools, files)
        plan = archiver.plan(files)
        tools.held.keep(segment.log for segment in plan.segments)
        archiver.held.planned(plan)
        remove_offsets(files.directory, lambda offset: offset >= 248)
        (files,) = scan_log_dirs([log_dir], topics).partitions
        for log_start_offset, reason in zip(log_start_offsets, reasons, strict=True):
            facts.cluster_start_offset = log_start_offset
            plan = archiver.plan(files)
            assert plan.reason == reason
        assert [segment.base_offset for segment in plan.segments][: len(planned)] == planned
        assert plan.files == files
        tools.held.release()


def test_a_disk_that_is_nearly_full_gets_its_deleted_bytes_back(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.log" for number in range(4)]
    for path in paths:
        path.write_bytes(b"0123456789")
    files = [identity_of(path, path.stat()) for path in paths]
    free = iter([0.01, 0.2, 0.2])
    held = HeldFiles(limit=4, free=lambda _descriptor: next(free))
    held.keep(files)
    for path in paths[:3]:
        path.unlink()
    with capture_logs() as logs:
        held.keep(files)
    assert [line["path"] for line in logs] == [str(paths[2])], "the least urgent goes first"
    assert held.unlinked_bytes() == 20
    assert [held.has(file) for file in files] == [True, True, False, True]
    held.release()


def test_held_segments_outlive_a_broker_that_is_away_but_not_its_leadership(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    outage = Outage()
    with tools_for(log_dir, outage.store, tmp_path / "state") as tools:
        facts = Answering(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0)
        tools = replace(tools, facts=facts)
        rounds = rounds_over(tools, log_dir)
        rounds.run_once()
        held = held_names(tools)
        assert len(held) > 3
        facts.away = "the broker does not answer"
        rounds.run_once()
        assert held_names(tools) == held
        facts.away, facts.leads = "", False
        rounds.run_once()
        assert held_names(tools) == []
