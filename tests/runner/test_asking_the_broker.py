"""What leadership does to uploads: lost, not to be confirmed, gained; and holes that no replica can fill."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.archive.keys import COMMITS, below
from sidecar.broker.files import FileBrokerFacts
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import BrokerUnavailable, Fenced, SegmentChanged, StaleLeadership
from sidecar.logformat.metadata_files import read_partition_metadata
from sidecar.model import ObjectKey, PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import Away, BrokerAway, NotLeader
from sidecar.ports import FactsState
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.topic_policy import TopicPolicy
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden, golden_copy
from tests.runner.rig import archived_states, ranges, remove_offsets, rolled_ranges, tools_for

AWAY = BrokerAway("connection refused")


@dataclass
class Leadership:
    """The facts of the files, and over them what a broker would say of leadership."""

    files: FileBrokerFacts
    away: Away | None = None
    leads: bool = True
    epoch_at_commit: int | None = None
    stable_at_commit: int | None = None
    topic_id: str | None = None
    cluster_start_offset: int | None = None
    ask_before_away: int | None = None
    epoch: int | None = None
    missing_rights: tuple[str, ...] = ()
    in_cluster: frozenset[str] | None = None

    def cluster_id(self) -> str:
        return self.files.cluster_id()

    def broker_id(self) -> int:
        return self.files.broker_id()

    def refresh(self) -> None:
        self.files.refresh()

    def state(self) -> FactsState:
        return FactsState(None, self.away, self.missing_rights)

    def topics(self) -> frozenset[str] | None:
        return self.in_cluster

    def policy(self, topic: str) -> TopicPolicy:
        return self.files.policy(topic)

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        facts = self.files.partition(files)
        reason = self.away or (None if self.leads else NotLeader())
        epoch = facts.leader_epoch if self.epoch is None else self.epoch
        start = self.cluster_start_offset
        facts = replace(facts, topic_id=files.topic_id or self.topic_id, unanswered=False)
        return replace(facts, leads=self.leads, leader_epoch=epoch, reason=reason, cluster_start_offset=start)

    def confirm(self, files: PartitionFiles) -> PartitionFacts:
        if self.ask_before_away is not None:
            self.ask_before_away -= 1
            if self.ask_before_away < 0:
                raise BrokerUnavailable("127.0.0.1:9092: no answer")
        facts = self.partition(files)
        if self.stable_at_commit is not None:
            facts = replace(facts, stable_end_offset=self.stable_at_commit)
        return facts if self.epoch_at_commit is None else replace(facts, leader_epoch=self.epoch_at_commit)


def rounds_of(context: object, log_dir: Path) -> ArchiveLoop:
    return ArchiveLoop(context, partial(scan_log_dirs, [log_dir], TopicFilter(("orders",))))  # type: ignore[arg-type]


def test_an_upload_that_cannot_be_confirmed_is_kept_and_used_when_the_broker_is_back(tmp_path: Path) -> None:
    log_dir, store = golden("4.3.0") / "logs", MemoryStore()
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), ask_before_away=0)
    with tools_for(log_dir, store, tmp_path) as context:
        context = replace(context, facts=facts)
        rounds = rounds_of(context, log_dir)
        report = rounds.run_once()
        assert {type(error) for error in report.errors} == {BrokerUnavailable}
        assert not any(state.segments for state in archived_states(store).values())
        kept = {key for key in store.objects if key.endswith(".log")}
        assert kept
        facts.away, facts.ask_before_away = AWAY, None
        report = rounds.run_once()
        assert (report.errors, report.broker.away) == ([], AWAY)
        assert not any(state.segments for state in archived_states(store).values())
        facts.away = None
        assert rounds.run_once().errors == []
    assert {key for key in store.objects if key.endswith(".log")} >= kept
    states = archived_states(store)
    assert {name: ranges(state) for name, state in states.items()} == {
        name: rolled_ranges(log_dir, name) for name in ("orders-0", "orders-1")
    }
    live = {segment.log_key for state in states.values() for segment in state.segments}
    assert sum(key.endswith(".log") for key in store.objects) == len(live)


def test_an_answer_of_an_earlier_leadership_costs_no_upload(tmp_path: Path) -> None:
    """Another broker is asked, and may learn later than this one who leads."""
    log_dir, store = golden("4.3.0") / "logs", MemoryStore()
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), epoch=2000, epoch_at_commit=1999)
    with tools_for(log_dir, store, tmp_path) as context:
        rounds = rounds_of(replace(context, facts=facts), log_dir)
        assert {type(error) for error in rounds.run_once().errors} == {StaleLeadership}
        kept = {key for key in store.objects if key.endswith(".log")}
        assert kept
        facts.epoch_at_commit = None
        assert rounds.run_once().errors == []
    live = {below(s.lineage.root, segment.log_key) for s in archived_states(store).values() for segment in s.segments}
    assert kept <= live == {key for key in store.objects if key.endswith(".log")}


def test_rights_that_are_missing_are_in_the_report(tmp_path: Path) -> None:
    log_dir = golden("4.3.0") / "logs"
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), missing_rights=("Describe on topic a",))
    with tools_for(log_dir, MemoryStore(), tmp_path) as context:
        assert rounds_of(replace(context, facts=facts), log_dir).plan()[1].broker.missing_rights == (
            "Describe on topic a",
        )


def test_leadership_that_is_lost_during_the_upload_commits_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    log_dir, store = golden("4.3.0") / "logs", MemoryStore()
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), epoch_at_commit=999)
    with tools_for(log_dir, store, tmp_path) as context:
        report = rounds_of(replace(context, facts=facts), log_dir).run_once()
    assert {type(error).__name__ for error in report.errors} == {"Fenced"}
    assert "leadership changed during the upload" in str(report.errors[0])
    assert not [key for key in store.objects if "/segments/" in key or "/commits/" in key]


def test_a_topic_that_was_made_anew_under_the_same_leader_epoch_is_seen_by_what_is_stable(tmp_path: Path) -> None:
    log_dir, store = golden("4.3.0") / "logs", MemoryStore()
    spans = rolled_ranges(log_dir, "orders-0")
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), stable_at_commit=spans[1][1])
    with tools_for(log_dir, store, tmp_path) as context:
        report = rounds_of(replace(context, facts=facts), log_dir).run_once()
        assert context.journal.count() == 0
    found = next(outcome for outcome in report.outcomes if str(outcome.files.topic_partition) == "orders-0")
    assert type(found.error) is SegmentChanged
    assert "the topic was re-created, or the leader restarted with a shorter log" in str(found.error)
    assert ranges(archived_states(store)["orders-0"]) == spans[:2]


@pytest.mark.parametrize("reported_from_the_start", [True, False])
def test_a_directory_without_a_topic_id_is_archived_under_the_one_that_the_cluster_tells(
    reported_from_the_start: bool, tmp_path: Path
) -> None:
    log_dir, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    metadata = log_dir / "orders-0" / "partition.metadata"
    topic_id = read_partition_metadata(metadata.read_bytes(), str(metadata))
    spans = rolled_ranges(log_dir, "orders-0")
    whole = golden("4.3.0") / "logs" / "orders-0"
    for name in ("orders-0", "orders-1"):
        (log_dir / name / "partition.metadata").unlink()
    remove_offsets(log_dir / "orders-0", lambda offset: offset <= spans[1][1])
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True))
    facts.topic_id = topic_id if reported_from_the_start else None
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_of(replace(context, facts=facts), log_dir)
        assert rounds.run_once().errors == []
        facts.topic_id = topic_id
        for file in whole.glob("0*"):
            if not (log_dir / "orders-0" / file.name).exists():
                shutil.copy2(file, log_dir / "orders-0")
        assert rounds.run_once().errors == []
    state = archived_states(store)["orders-0"]
    assert (state.lineage.incarnation, state.topic_id) == (topic_id if reported_from_the_start else "0", topic_id)
    assert ranges(state) == spans


class OvertakenStore(MemoryStore):
    """Another writer commits when our first commit is already on its way."""

    meanwhile: Callable[[], object] | None = None

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        if COMMITS in key and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        super().put_if_absent(key, body)


def test_a_commit_that_comes_after_the_next_leaders_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    log_dir, store = golden("4.3.0") / "logs", OvertakenStore()
    next_leader = Leadership(FileBrokerFacts([log_dir], assume_leader=True), epoch=999)
    with tools_for(log_dir, store, tmp_path / "a") as context, tools_for(log_dir, store, tmp_path / "b") as others:
        theirs = rounds_of(replace(others, facts=next_leader), log_dir)
        store.meanwhile = theirs.run_once
        report = rounds_of(context, log_dir).run_once()
        assert {type(error) for error in report.errors} == {Fenced}
        assert context.journal.count() == 0
    states = archived_states(store)
    live = {below(state.lineage.root, segment.log_key) for state in states.values() for segment in state.segments}
    assert {key for key in store.objects if key.endswith(".log")} == live
    assert {state.highest_leader_epoch for state in states.values()} == {999}


def test_leadership_that_comes_back_goes_on_where_the_others_sidecar_ended(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    spans = rolled_ranges(copy, "orders-0")
    later = golden_copy("4.3.0", tmp_path / "whole") / "logs"
    remove_offsets(copy / "orders-0", lambda offset: offset <= spans[2][0])
    ours = Leadership(FileBrokerFacts([copy], assume_leader=True))
    with tools_for(copy, store, tmp_path / "a") as context, tools_for(later, store, tmp_path / "b") as others:
        rounds = rounds_of(replace(context, facts=ours), copy)
        assert rounds.run_once().errors == []
        ours.leads = False
        assert rounds.run_once().errors == []
        assert rounds_of(others, later).run_once().errors == []
        shutil.copytree(later / "orders-0", copy / "orders-0", dirs_exist_ok=True)  # as a follower catches up
        ours.leads = True
        before = dict(store.objects)
        store.calls.clear()
        report = rounds.run_once()
    # It knows by reading that the other one has archived all: nothing is uploaded for a commit that would be refused.
    assert store.objects == before
    assert {name for name in store.calls if name not in {"list", "list_folders", "read", "head"}} == set()
    ends = {str(outcome.files.topic_partition): outcome.end_offset for outcome in report.outcomes}
    assert ends["orders-0"] == spans[-1][1]


def test_what_no_replica_has_any_more_is_recorded_as_lost_and_archiving_goes_on(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    spans = rolled_ranges(copy, "orders-0")
    whole = golden_copy("4.3.0", tmp_path / "whole") / "logs"
    remove_offsets(copy / "orders-0", lambda offset: offset <= spans[1][0])
    with tools_for(copy, store, tmp_path / "a") as context:
        rounds_of(context, copy).run_once()
    remove_offsets(whole / "orders-0", lambda offset: offset >= spans[3][0])
    facts = Leadership(FileBrokerFacts([whole], assume_leader=True), cluster_start_offset=spans[2][0])
    with tools_for(whole, store, tmp_path / "b") as context:
        rounds = rounds_of(replace(context, facts=facts), whole)
        stopped = [str(error) for error in rounds.run_once().errors]
        assert [text.partition(":")[0] for text in stopped] == ["orders-0"]  # its leader may still have some of it
        facts.cluster_start_offset = spans[3][0]
        with capture_logs() as logs:
            assert rounds.run_once().errors == []
        (reported,) = [event for event in logs if event["event"] == "offsets_lost"]
        assert (reported["log_level"], reported["partition"]) == ("error", "orders-0")
        assert (reported["from_offset"], reported["to_offset"]) == (spans[0][1], spans[3][0])
        metrics = context.metrics.exposition()[0].decode()
        assert f"lost_offsets_total {spans[3][0] - spans[0][1]}.0" in metrics
        (reported_s,) = re.findall(r"^tiered_sidecar_last_loss_timestamp_seconds (\S+)$", metrics, re.MULTILINE)
        assert float(reported_s) == context.clock.now_ms() / 1000
    (hole,) = archived_states(store)["orders-0"].holes
    assert (hole.base_offset, hole.end_offset) == (spans[0][1], spans[3][0])


def test_what_is_archived_does_not_wait_while_the_broker_is_away(tmp_path: Path) -> None:
    log_dir = golden("4.3.0") / "logs"
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True))
    with tools_for(log_dir, MemoryStore(), tmp_path) as context:
        sample = context.metrics.registry.get_sample_value
        rounds = rounds_of(replace(context, facts=facts), log_dir)
        facts.away = AWAY
        rounds.plan()
        assert (sample("tiered_sidecar_pending_segments") or 0) > 0  # nothing is archived yet
        facts.away = None
        rounds.run_once()
        facts.away = AWAY
        rounds.plan()
        assert sample("tiered_sidecar_pending_segments") == 0
        assert sample("tiered_sidecar_oldest_pending_segment_age_seconds") == 0
        assert sample("tiered_sidecar_partitions", {"state": "waiting"}) == 0
        assert sample("tiered_sidecar_partitions", {"state": "idle"}) == 2
