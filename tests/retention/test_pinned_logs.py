"""What of a partition's planned segments stays held, and what of it may be archived: as the leader says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from sidecar.broker.files import FileBrokerFacts
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import PartitionError
from sidecar.host.listed_files import identity_of
from sidecar.host.pinned_files import PinnedFiles
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import LeaderEpoch, PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import StrayDirectory, Wait
from sidecar.retention.log_starts import LogStarts
from sidecar.retention.loss_tracker import LossTracker
from sidecar.runner.context import RunContext
from sidecar.runner.partition_archiver import PartitionArchiver
from tests.fakes.disk_with_room import DiskWithRoom
from tests.fakes.memory_store import MemoryStore
from tests.retention.pinned_rig import Outage, after_an_outage, held_names
from tests.runner.one_partition import archived, planned
from tests.runner.rig import (
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rounds_over,
    tools_for,
)
from tests.runner.test_asking_the_broker import AWAY, Leadership


def listed(log_dir: Path) -> PartitionFiles:
    (files,) = scan_log_dirs([log_dir], TopicFilter(("orders",))).partitions
    return files


def planned_and_held(context: RunContext, log_dir: Path) -> tuple[PartitionArchiver, PartitionFiles]:
    files = listed(log_dir)
    archiver = PartitionArchiver(context, files)
    plan = planned(context, archiver, files)
    context.pinned.keep(segment.log for segment in plan.segments)
    archiver.pinned.planned(plan)
    return archiver, files


def released(logs: list[EventDict]) -> list[int]:
    """Base offsets of the segments whose pins went before they were archived, as the log says."""
    return [int(Path(line["path"]).stem) for line in logs if line["event"] == "pinned_segment_released"]


class Answering(Leadership):
    """A leader that reports what is stable."""

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        return replace(super().partition(files), transactions_decided=True)


Led = TypeVar("Led", bound=Answering)


@contextmanager
def led(
    tmp_path: Path, kind: type[Led] = Answering, epoch: int | None = None
) -> Iterator[tuple[Path, RunContext, Led]]:
    """A log dir with one partition, and the leader of it: the context's facts. `kind`, `epoch`: of the leader."""
    log_dir = copy_partitions(tmp_path, "orders-0")
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        facts = kind(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0, epoch=epoch)
        yield log_dir, replace(context, facts=facts), facts


@pytest.mark.parametrize("log_start_offset", [248, 140, 0, None], ids=["known", "older", "oldest", "not known"])
def test_a_pinned_segment_is_archived_without_its_file_whatever_log_start_the_leader_reports(
    tmp_path: Path, log_start_offset: int | None
) -> None:
    with led(tmp_path) as (log_dir, context, facts):
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= 248)
        files, facts.cluster_start_offset = listed(log_dir), log_start_offset
        plan = planned(context, archiver, files)
        assert [segment.base_offset for segment in plan.segments][:4] == [0, 140, 248, 362]
        assert plan.files == files


@pytest.mark.parametrize("is_pinned", [True, False], ids=["pinned before", "not pinned yet"])
def test_a_file_that_changes_in_place_between_listing_and_pinning_is_not_taken_for_pinned(
    is_pinned: bool, tmp_path: Path
) -> None:
    """The open descriptor decides, not the name. The next listing shows the file as it is, and it is pinned then."""
    with led(tmp_path) as (log_dir, context, _facts):
        archiver, files = planned_and_held(context, log_dir)
        every = held_names(context)
        if not is_pinned:
            context.pinned.release()
        plan = planned(context, archiver, listed(log_dir))
        os.utime(files.segments[1].log.path, ns=(0, 0))
        for changed, left in ((True, [0, *every[2:]]), (False, every)):
            context.pinned.keep([*archiver.pinned.logs, *(segment.log for segment in plan.segments)])
            archiver.pinned.planned(plan)
            assert archiver.pinned.is_outdated is changed
            assert held_names(context) == left == [int(log.path.stem) for log in archiver.pinned.logs]
            plan = planned(context, archiver, listed(log_dir))


@pytest.mark.parametrize(("own", "later"), [(2, 1), (2, 0), (0, 0)], ids=["some", "all", "none"])
def test_what_follows_the_deleted_segments_waits_for_them_and_for_nothing_else(
    own: int, later: int, tmp_path: Path
) -> None:
    with led(tmp_path) as (log_dir, context, _facts):
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= 248)
        plan = planned(context, archiver, listed(log_dir))
        assert len(archiver.pinned.gone) == 2
        planned_now, rest = plan.segments[: own + later], plan.segments[own + later :]
        plan = replace(plan, segments=planned_now, waiting=rest, reason=Wait.CLEANER_RUNNING, recheck_in_ms=5)
        found = archiver.pinned.only_gone(plan)
    assert (found.segments, found.waiting) == (planned_now[:own], (*planned_now[own:], *rest))
    assert (found.reason, found.recheck_in_ms) == ((None, 0) if later else (plan.reason, 5))


@pytest.mark.parametrize(("archived_to", "wanted"), [(None, [0, 140]), (139, [0, 140]), (140, [140]), (248, [])])
def test_what_is_planned_of_deleted_segments_reaches_above_the_archive(
    archived_to: int | None, wanted: list[int], tmp_path: Path
) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= 248)
        files, facts = listed(log_dir), context.facts.partition(files)
        archiver.see(files, facts)
        found = archiver.pinned.plannable(files, facts, archived_to)
        assert [segment.base_offset for segment in found] == wanted


def test_the_producers_at_the_logs_beginning_are_kept_until_something_is_archived(tmp_path: Path) -> None:
    """They may be many, and in each partition."""
    log_dir = copy_partitions(tmp_path, "orders-0")
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        archiver, _files = planned_and_held(context, log_dir)
        assert archiver.plan is not None
        assert archiver.pinned._start is not None
        assert archived(context, archiver, archiver.plan).error is None
        assert archiver.pinned._start is None


def test_what_another_process_has_archived_is_released(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        archiver, files = planned_and_held(context, log_dir)
        assert held_names(context) != []
        with tools_for(log_dir, store, tmp_path / "other state") as other:
            assert rounds_over(other, log_dir).run_once().errors == []
        archiver.known.forget()
        assert planned(context, archiver, files).segments == ()
        archiver.see(files, context.facts.partition(files))
        assert held_names(context) == []


def test_no_gap_is_recorded_where_pinned_segments_have_it_though_every_answer_is_old(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        facts = Answering(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0)
        context = replace(context, facts=facts)
        archiver, files = planned_and_held(context, log_dir)
        plan = archiver.plan
        assert plan is not None
        assert archived(context, archiver, replace(plan, segments=plan.segments[:1])).error is None
        remove_offsets(files.directory, lambda offset: offset >= 362)
        plan = planned(context, archiver, listed(log_dir))
        assert plan.hole is None
        assert archived(context, archiver, plan).error is None
        context.pinned.release()
    state = archived_states(store)["orders-0"]
    assert state.holes == ()
    assert [base for base, _ in ranges(state)][:4] == [0, 140, 248, 362]


def test_under_another_leader_epoch_nothing_is_archived_without_its_file(tmp_path: Path) -> None:
    with led(tmp_path) as (log_dir, context, facts):
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= 248)
        facts.cluster_start_offset, facts.epoch = 248, 99
        assert planned(context, archiver, listed(log_dir)).segments[0].base_offset == 248
        assert held_names(context) == []


@pytest.mark.parametrize(
    ("epoch", "begins", "kept"),
    [(8, 248, [0, 140]), (8, 247, [0]), (8, None, []), (9, 248, [0, 140]), (9, 247, [0])],
    ids=["below", "inside", "unknown", "after another", "inside, after another"],
)
def test_a_leader_that_stays_under_a_new_epoch_keeps_what_was_not_truncated(
    epoch: int, begins: int | None, kept: list[int], tmp_path: Path
) -> None:
    """KRaft raises the epoch where a reassignment removes a replica. Source: PartitionChangeBuilder."""
    with led(tmp_path, epoch=7) as (log_dir, context, facts), capture_logs() as logs:
        archiver, files = planned_and_held(context, log_dir)
        remove_offsets(files.directory, lambda offset: offset >= 248)
        facts.cluster_start_offset, facts.epoch = 248, epoch
        if begins is not None:
            epochs = LeaderEpochs((LeaderEpoch(0, 0), LeaderEpoch(epoch, begins)))
            (files.directory / "leader-epoch-checkpoint").write_bytes(epochs.to_text())
        archiver.see(listed(log_dir), facts.partition(files))
        assert held_names(context) == kept
    assert kept + released(logs) == [0, 140]


@pytest.mark.parametrize("place", [LogStarts, LossTracker])
def test_another_leader_epoch_counts_though_the_check_that_saw_it_failed(
    place: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise PartitionError("cannot be read")

    with led(tmp_path) as (log_dir, context, facts):
        archiver, files = planned_and_held(context, log_dir)
        facts.epoch = 99
        with monkeypatch.context() as patch:
            patch.setattr(place, "seen" if place is LogStarts else "see", fails)
            with pytest.raises(PartitionError):
                archiver.see(files, facts.partition(files))
        assert held_names(context) != []
        archiver.see(files, facts.partition(files))
        assert held_names(context) == []


def test_a_disk_that_is_nearly_full_gets_its_deleted_bytes_back(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.log" for number in range(4)]
    for path in paths:
        path.write_bytes(b"0123456789")
    files = [identity_of(path, path.stat()) for path in paths]
    free = iter([0.01, 0.2, 0.2])
    held = PinnedFiles(limit=4, files=DiskWithRoom(lambda _freed_bytes: next(free)))
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
    with tools_for(log_dir, outage.store, tmp_path / "state") as context:
        facts = Answering(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0)
        context = replace(context, facts=facts)
        rounds = rounds_over(context, log_dir)
        rounds.run_once()
        held = held_names(context)
        assert len(held) > 3
        facts.away = AWAY
        rounds.run_once()
        assert held_names(context) == held
        facts.away, facts.leads = None, False
        rounds.run_once()
        assert held_names(context) == []


def test_what_was_deleted_on_purpose_is_archived_as_deleted(tmp_path: Path) -> None:
    log_dir, outage = copy_partitions(tmp_path, "orders-0"), Outage()
    with tools_for(log_dir, outage.store, tmp_path / "state", uploads_ahead=1) as context:
        facts = Answering(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0)
        rounds = rounds_over(replace(context, facts=facts), log_dir)
        rounds.run_once()
        remove_offsets(log_dir / "orders-0", lambda offset: offset >= 248)
        facts.cluster_start_offset, outage.left = 300, 2  # One segment, then nothing.
        rounds.run_once()
        state = archived_states(outage.store)["orders-0"]
        assert (ranges(state), state.deleted_before_offset) == ([(0, 140)], 140)
        outage.left = None
        assert rounds.run_once().errors == []
    state = archived_states(outage.store)["orders-0"]
    assert (ranges(state)[1], state.holes, state.deleted_before_offset) == ((140, 248), (), 300)


def test_what_goes_with_a_deleted_topic_before_it_is_archived_is_reported(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (context, rounds, _, directory), capture_logs() as logs:
        names = held_names(context)
        rmtree(directory)
        rounds.run_once()
        assert released(logs) == names != []
        assert held_names(context) == []


def test_what_the_settings_exclude_is_let_go_without_an_event(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (context, rounds, _, directory), capture_logs() as logs:
        assert held_names(context) != []
        rounds.checks.scan = partial(scan_log_dirs, [directory.parent], TopicFilter(("other",)))
        rounds.run_once()
        assert held_names(context) == []
    assert released(logs) == []


def test_what_only_pins_have_is_reported_where_the_settings_exclude_it(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (context, rounds, outage, directory), capture_logs() as logs:
        outage.left = 0
        remove_offsets(directory, lambda offset: offset >= 248)
        rounds.run_once()
        rounds.checks.scan = partial(scan_log_dirs, [directory.parent], TopicFilter(("other",)))
        rounds.run_once()
        assert held_names(context) == []
    assert released(logs) == [0, 140]


def test_what_goes_with_a_topic_that_is_created_again_is_reported(tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context, capture_logs() as logs:
        archiver, files = planned_and_held(context, log_dir)
        names = held_names(context)
        stray = StrayDirectory(str(files.topic_id), "another")
        archiver.see(files, replace(context.facts.partition(files), leads=False, reason=stray))
        assert held_names(context) == []
    assert released(logs) == names != []


def test_what_goes_with_a_topic_that_is_created_again_at_once_is_reported(tmp_path: Path) -> None:
    """Its directory was never seen missing: a task was under way, or no check came in between."""
    with after_an_outage(tmp_path) as (context, rounds, outage, directory), capture_logs() as logs:
        names = held_names(context)
        rmtree(directory)
        directory.mkdir()
        (directory / "00000000000000000000.log").touch()
        (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
        outage.left = 0
        rounds.run_once()
        assert released(logs) == names != []
        assert held_names(context) == []


def test_what_goes_with_a_topic_is_reported_also_where_another_broker_leads_the_next_one(tmp_path: Path) -> None:
    with led(tmp_path) as (log_dir, context, facts), capture_logs() as logs:
        archiver, files = planned_and_held(context, log_dir)
        names, facts.leads = held_names(context), False
        files = replace(files, topic_id="another", directory_id=(0, 0))
        archiver.see(files, replace(facts.partition(files), leader_epoch=-1))
        assert released(logs) == names != []
        assert held_names(context) == []
