"""The active segment of an idle log is held open before retention rolls and deletes it in one step, and archived then."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sidecar.archive.keys import below
from sidecar.broker.files import FileBrokerFacts
from sidecar.discovery.scan import ScanResult
from sidecar.host.pinned_files import PinnedFiles
from sidecar.http.pages import status_json
from sidecar.logformat.batches import scan_file
from sidecar.model import PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import BrokerAway, Wait, render
from sidecar.retention.active_tail import HOLD_MS
from sidecar.runner.partition_status import AT_RISK_MS
from sidecar.topic_policy import TopicPolicy
from tests.fakes.disk_with_room import DiskWithRoom
from tests.fakes.manual_clock import ManualClock
from tests.retention.pinned_rig import held_names
from tests.retention.test_loss_tracker import NAME, Away, Site
from tests.runner.rig import (
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    status_of,
    tools_for,
)
from tests.runner.test_asking_the_broker import Leadership, rounds_of

DAY_MS = 86_400_000
BASE, END = 964, 1050
"""The active segment of the sample: where it begins, and where its log ends."""


@dataclass
class Asked(Leadership):
    """A leader that is asked, and tells what is stable; by topic, for how long it keeps records."""

    decided: bool = True
    open: bool = False
    stable: int = END
    segment_bytes: int | None = None
    retention_ms: dict[str, int] = field(default_factory=dict)

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        facts = super().partition(files)
        stable = self.stable if str(files.topic_partition) == NAME else facts.stable_end_offset
        return replace(facts, transactions_decided=self.decided, transaction_open=self.open, stable_end_offset=stable)

    def policy(self, topic: str) -> TopicPolicy:
        retention_ms = self.retention_ms.get(topic, 7 * DAY_MS)
        delete = frozenset({"delete"})
        return TopicPolicy(cleanup_policy=delete, retention_ms=retention_ms, segment_bytes=self.segment_bytes)


@dataclass
class Idle(Site):
    """A log that nobody writes to any more."""

    @property
    def newest_ms(self) -> int:
        """The largest timestamp of its records."""
        return self.newest_of(NAME, BASE)

    def newest_of(self, name: str, base_offset: int) -> int:
        log = self.directory.with_name(name) / f"{base_offset:020d}.log"
        return max(int(batches.max_timestamp_ms.max()) for batches in scan_file(log, base_offset=base_offset))

    @property
    def clock(self) -> ManualClock:
        assert isinstance(self.context.clock, ManualClock)
        return self.context.clock

    @property
    def asked(self) -> Asked:
        assert isinstance(self.facts, Asked)
        return self.facts

    def at(self, left_ms: int) -> None:
        """So long before retention takes all of it."""
        self.clock.advance_ms(self.newest_ms + 7 * DAY_MS - left_ms - self.clock.now_ms())

    def row(self) -> dict[str, Any]:
        self.rounds.run_once()
        rows: list[dict[str, Any]] = status_json(status_of(self.context))["partitions"]
        (row,) = (row for row in rows if f"{row['topic']}-{row['partition']}" == NAME)
        return row

    def lost_above(self, rounds: int) -> list[tuple[int, int]]:
        """What so many rounds tell to be lost above the archive."""
        with capture_logs() as logs:
            for _ in range(rounds):
                self.rounds.run_once()
        return [(line["from_offset"], line["to_offset"]) for line in logs if line["event"] == "offsets_lost"]

    def takes_all(self, new_base_offset: int = END) -> None:
        """Retention rolls and deletes in one step; the roll has left a snapshot."""
        snapshot = (self.directory / f"{END:020d}.snapshot").read_bytes()
        remove_offsets(self.directory, lambda _offset: False)
        (self.directory / f"{new_base_offset:020d}.log").touch()
        (self.directory / f"{new_base_offset:020d}.snapshot").write_bytes(snapshot)
        self.asked.cluster_start_offset = self.asked.stable = new_base_offset


@contextmanager
def idle_log(tmp_path: Path, *others: str, limit: int = 100, only_tail: bool = False) -> Iterator[Idle]:
    log_dir, store = copy_partitions(tmp_path, NAME, *others), Away()
    directory = log_dir / NAME
    if only_tail:
        remove_offsets(directory, lambda offset: offset >= BASE)
    facts = Asked(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=BASE if only_tail else 0)
    held = PinnedFiles(limit=limit, files=DiskWithRoom())
    with tools_for(log_dir, store, tmp_path / "state") as context:
        context.metrics._backlog._clock = context.clock
        context = replace(context, facts=facts, pinned=held)
        yield Idle(context, facts, store, rounds_of(context, log_dir), directory)
        held.release()


@pytest.mark.parametrize("only_tail", [False, True], ids=["the archive goes on", "the archive is empty"])
def test_it_is_archived_when_it_is_gone(only_tail: bool, tmp_path: Path) -> None:
    with idle_log(tmp_path, only_tail=only_tail) as idle:
        rolled = rolled_ranges(idle.directory.parent, NAME)
        content = (idle.directory / f"{BASE:020d}.log").read_bytes()
        for left_ms in (HOLD_MS // 2, 0, -1000):
            idle.at(left_ms)
            idle.row()
            assert held_names(idle.context) == [BASE]
        idle.takes_all()
        assert idle.lost(3) == []
        assert held_names(idle.context) == []
        assert idle.row()["state"] == "archived"
        state = archived_states(idle.store)[NAME]
        assert (ranges(state), state.holes, state.deleted_before_offset) == ([*rolled, (BASE, END)], (), 0)
        last = state.segments[-1]
        assert last.snapshot.origin == "broker"
        assert idle.store.objects[below(state.lineage.root, last.log_key)] == content
        sample = idle.context.metrics.registry.get_sample_value
        assert sample("tiered_sidecar_data_at_risk_in_seconds") == math.inf


def test_what_is_held_is_not_reported_as_at_risk(tmp_path: Path) -> None:
    with idle_log(tmp_path) as idle:
        sample = idle.context.metrics.registry.get_sample_value
        idle.at(HOLD_MS + 1)
        row = idle.row()
        assert (row["active_deadline_ms"], held_names(idle.context)) == (idle.newest_ms + 7 * DAY_MS, [])
        idle.at(HOLD_MS - 1)
        assert idle.row()["active_deadline_ms"] is not None, "it was not held yet when it was looked at"
        for left_ms in (AT_RISK_MS, 1, -AT_RISK_MS):
            idle.at(left_ms)
            row = idle.row()
            assert (row["active_deadline_ms"], row["reason"], row["state"]) == (
                None,
                render(Wait.ACTIVE_SEGMENT_PINNED),
                "archived",
            )
            assert sample("tiered_sidecar_data_at_risk_in_seconds") == math.inf


def without_broker(idle: Idle) -> None:
    idle.asked.decided = False


def in_a_transaction(idle: Idle) -> None:
    idle.asked.open = True


def without_room(idle: Idle) -> None:
    idle.context.pinned.limit = 0


@pytest.mark.parametrize("unheld", [without_broker, in_a_transaction, without_room])
def test_what_is_not_held_is_reported_as_at_risk_and_then_as_lost(
    unheld: Callable[[Idle], None], tmp_path: Path
) -> None:
    with idle_log(tmp_path) as idle:
        unheld(idle)
        idle.at(AT_RISK_MS // 2)
        idle.row()
        row = idle.row()
        assert (row["state"], row["reason"]) == ("at_risk", render(Wait.ACTIVE_SEGMENT_IDLE))
        idle.asked.open = False
        idle.takes_all()
        assert idle.lost_above(3) == [(BASE, END)]


def test_what_is_written_to_once_more_is_held_anew_when_it_is_still_again(tmp_path: Path) -> None:
    with idle_log(tmp_path) as idle:
        idle.at(AT_RISK_MS)
        idle.row()
        assert held_names(idle.context) == [BASE]
        log = idle.directory / f"{BASE:020d}.log"
        os.utime(log, ns=(idle.clock.now_ms() * 1_000_000,) * 2)
        idle.row()
        assert held_names(idle.context) == [], "it is not idle any more"
        idle.at(AT_RISK_MS - 4 * DAY_MS)
        idle.row()
        assert held_names(idle.context) == [BASE]


def preallocated(idle: Idle) -> None:
    idle.asked.segment_bytes = (idle.directory / f"{BASE:020d}.log").stat().st_size


def behind_the_end(idle: Idle) -> None:
    idle.asked.stable = END - 20


@pytest.mark.parametrize("unheld", [preallocated, behind_the_end])
def test_what_will_be_another_file_or_end_elsewhere_is_at_risk(unheld: Callable[[Idle], None], tmp_path: Path) -> None:
    with idle_log(tmp_path) as idle:
        unheld(idle)
        idle.at(AT_RISK_MS // 2)
        idle.row()
        assert (idle.row()["state"], held_names(idle.context)) == ("at_risk", [])


def test_it_stays_held_while_the_broker_is_away_or_a_listing_met_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with idle_log(tmp_path) as idle:
        idle.at(AT_RISK_MS)
        idle.row()
        for number in range(3):
            idle.asked.away = BrokerAway(f"no answer {number}")
            idle.row()
            assert held_names(idle.context) == [BASE]
        idle.asked.away = None
        scan = idle.rounds.checks.scan

        def vanishing(doubted: Collection[Path] = ()) -> ScanResult:
            found = scan(doubted)
            return replace(found, partitions=tuple(replace(files, active_log=None) for files in found.partitions))

        monkeypatch.setattr(idle.rounds.checks, "scan", vanishing)
        idle.row()
        assert held_names(idle.context) == [BASE]
        monkeypatch.undo()
        idle.takes_all()
        assert idle.lost_above(3) == []


def test_an_empty_archives_beginning_is_kept_while_the_leader_has_not_reported_the_deletion(tmp_path: Path) -> None:
    with idle_log(tmp_path, only_tail=True) as idle:
        idle.at(AT_RISK_MS)
        idle.row()
        idle.takes_all()
        idle.asked.cluster_start_offset = BASE
        idle.row()
        idle.asked.cluster_start_offset = END
        assert idle.lost_above(3) == []
        (segment,) = archived_states(idle.store)[NAME].segments
        assert (segment.base_offset, segment.snapshot.exact) == (BASE, True)


def test_under_another_leader_it_is_let_go(tmp_path: Path) -> None:
    with idle_log(tmp_path) as idle:
        idle.at(AT_RISK_MS)
        idle.row()
        assert held_names(idle.context) == [BASE]
        idle.asked.leads = False
        idle.row()
        assert held_names(idle.context) == []
        idle.asked.leads, idle.asked.epoch = True, 7
        idle.row()
        assert held_names(idle.context) == [BASE]
        idle.asked.epoch = 8
        idle.takes_all()
        assert idle.lost_above(3) == [(BASE, END)]


def test_where_it_rolls_after_all_it_is_archived_once_with_its_own_indexes(tmp_path: Path) -> None:
    with idle_log(tmp_path) as idle:
        rolled = rolled_ranges(idle.directory.parent, NAME)
        idle.at(AT_RISK_MS)
        idle.row()
        (idle.directory / f"{END:020d}.log").touch()
        assert idle.lost(2) == []
        idle.takes_all()
        assert idle.lost(2) == []
        state = archived_states(idle.store)[NAME]
        assert (ranges(state), state.holes) == ([*rolled, (BASE, END)], ())


def test_what_went_later_is_no_part_of_what_is_held(tmp_path: Path) -> None:
    with idle_log(tmp_path) as idle:
        idle.at(AT_RISK_MS)
        idle.row()
        idle.takes_all(END + 50)  # A record woke it up, and went as well, between two looks.
        assert idle.lost_above(3) == [(END, END + 50)]
        assert ranges(archived_states(idle.store)[NAME])[-1] == (BASE, END)


def test_where_another_leaders_segments_have_its_beginning_it_is_not_held(tmp_path: Path) -> None:
    with idle_log(tmp_path) as idle:
        idle.at(AT_RISK_MS)
        ((archiver, plan),) = idle.rounds.plan()[0]
        look = archiver.status(plan.files, plan, None)
        for archived_end_offset, is_expected in ((None, True), (BASE, True), (BASE + 1, False), (END, False)):
            reported = archiver.tail.with_active_risk(
                replace(look, archived_end_offset=archived_end_offset), plan.files
            )
            assert (archiver.tail.expected(plan) is not None) == is_expected
            assert (reported.active_deadline_ms is None) == (archived_end_offset == END)


@pytest.mark.parametrize(("retention_ms", "held"), [(7 * DAY_MS - 60_000, 302), (7 * DAY_MS + 60_000, BASE)])
def test_where_there_is_not_room_for_all_the_first_deadline_decides(
    retention_ms: int, held: int, tmp_path: Path
) -> None:
    with idle_log(tmp_path, "append-time-0", limit=1) as idle:
        idle.asked.retention_ms["append-time"] = retention_ms - (idle.newest_of("append-time-0", 302) - idle.newest_ms)
        rounds = rounds_over(idle.context, idle.directory.parent)
        rounds.run_once()
        idle.at(HOLD_MS // 2)
        for _ in range(2):
            rounds.run_once()
            assert held_names(idle.context) == [held]
