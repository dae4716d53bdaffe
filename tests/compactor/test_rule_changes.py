"""A topic's rule may change between a decision and the commit, or be unknown. Nothing is committed by a rule that does not hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import structlog

from sidecar.broker.files import FileBrokerFacts
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive_job import ArchiveJobs
from sidecar.compactor.candidate_queue import Candidate, CandidateAssessor
from sidecar.compactor.topic_counts import RawReason
from sidecar.compactor.topic_rule import RuleChanged, TopicRules, rule_change
from sidecar.compactor.wiring import wire_compaction
from sidecar.config import CompactionPolicy, CompactionSettings, Settings
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.engine_ports import StageEngine
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting.local_engine import LocalEngine, LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.topic_policy import NOT_REPORTED, TopicPolicy
from tests.compactor.before_upload_rig import DELAY_MS, NOW_MS, Rig, before_upload, rig, rounds_scan
from tests.compactor.compaction_rig import Rig as WorkerRig
from tests.compactor.compaction_rig import turns
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import only_state, sound, use
from tests.runner.rig import archived_states, copy_partitions, tools_for
from tests.runner.waiting import within
from tests.segment.made_logs import VERSION, records_in, roll

WAIT_S = 60.0
COMPACT = TopicPolicy(cleanup_policy=frozenset({"compact"}))
BY_OFFSET = replace(COMPACT, compaction_strategy="offset")
BY_HEADER = replace(COMPACT, compaction_strategy="header", compaction_strategy_header=VERSION)
DELETE = TopicPolicy(cleanup_policy=frozenset({"delete"}))
UNKNOWN = TopicPolicy(unanswered=NOT_REPORTED)
DENIED = TopicPolicy(unanswered="TOPIC_AUTHORIZATION_FAILED")


@dataclass
class Story:
    site: Rig
    reported: TopicPolicy
    logs: list[Any]

    def policy(self, _topic: str) -> TopicPolicy:
        return self.reported

    def kept(self) -> set[bytes | None]:
        return {found.value for found in records_in(self.site.stored_logs("orders-0").values())}

    def reasons(self) -> set[str]:
        return {line["reason"] for line in self.logs if line["event"] == "archived_without_compaction"}


def version(number: int) -> tuple[tuple[str, bytes], ...]:
    return ((VERSION, number.to_bytes(8, signed=True)),)


def record(offset: int, value: bytes, number: int) -> Record:
    return Record(offset, NOW_MS - 5_000_000 + offset, b"key", value, version(number))


@contextmanager
def story(tmp_path: Path, reported: TopicPolicy) -> Iterator[Story]:
    """Version 9 of a key, then its version 1."""
    with structlog.testing.capture_logs() as logs, rig(tmp_path, "orders-0") as site:
        nine = build_batch([record(0, b"v9", 9)], leader_epoch=4)
        one = build_batch([record(1, b"v1", 1)], leader_epoch=4)
        roll(site.log_dir, {0: (nine,), 1: (one,), 2: ()}, 2)
        found = Story(site, reported, logs)
        settings = site.waiting.settings
        site.waiting.rule_of = TopicRules(settings, found.policy).rule_of
        yield found


def test_by_one_rule_records_lose(tmp_path: Path) -> None:
    with story(tmp_path, BY_OFFSET) as reported:
        reported.site.round()
        reported.site.compactor.cycle()
        reported.site.round()
        assert reported.kept() == {b"v1"}


@pytest.mark.parametrize(
    "now", [DELETE, BY_HEADER, UNKNOWN, DENIED], ids=["delete", "header", "not reported", "denied"]
)
@pytest.mark.parametrize("when", ["before the copies", "before the round", "at the last upload"])
def test_copies_of_a_rule_that_does_not_hold_are_never_committed(when: str, now: TopicPolicy, tmp_path: Path) -> None:
    with story(tmp_path, BY_OFFSET) as reported:
        site = reported.site
        site.round()
        if when == "before the copies":
            reported.reported = now
        site.compactor.cycle()
        reported.reported = now if when == "before the round" else reported.reported
        uploads: list[str] = []

        def change(operation: str, key: str) -> None:
            if operation == "upload" and "/segments/" in key:
                uploads.append(key)
                reported.reported = now if when == "at the last upload" and len(uploads) >= 2 else reported.reported

        site.store.before = change
        site.round()
        site.store.before = lambda _operation, _key: None
        site.round()
        assert reported.kept() == {b"v9", b"v1"}
        assert site.generations("orders-0") == [0, 0]
        assert reported.reasons() == {"rule_unknown" if now.unanswered else "rule_changed"}
        assert list(site.copies.iterdir()) == []
        assert site.context.journal.count() == 0
        state = only_state(site.store)
        assert sum("/segments/" in key for key in site.store.objects) == 2 * len(state.segments)


@pytest.mark.parametrize(
    "topics",
    [[], [{"pattern": "orders", "strategy": "header", "header": VERSION}]],
    ids=["not compacted", "another strategy"],
)
def test_copies_of_settings_that_are_replaced_during_their_upload_are_never_committed(
    topics: list[object], tmp_path: Path
) -> None:
    with story(tmp_path, BY_OFFSET) as reported:
        site, met, opened = reported.site, Event(), Event()
        site.round()
        site.compactor.cycle()

        def gate(operation: str, key: str) -> None:
            if operation == "upload" and "/segments/" in key:
                met.set()
                assert opened.wait(WAIT_S)

        site.store.before = gate
        given = site.waiting.settings.model_dump() | {"topics": topics}
        now = before_upload(CompactionSettings.model_validate(given), site.context.clock)
        with site.rounds as loop:
            loop.tasks.admits = True
            loop.begin_check()
            loop.drive(within(WAIT_S, met.is_set))
            loop.adopt(rounds_scan(site.log_dir), now)
            opened.set()
            loop.finish()
        site.round()
        states = archived_states(site.store)
        assert not any(segment.generation for state in states.values() for segment in state.segments)
        assert reported.reasons() == {"rule_changed"}
        assert site.context.journal.count() == 0


def test_what_does_not_change_which_records_stay_breaks_nothing_up() -> None:
    policy = CompactionPolicy()
    assert rule_change(policy, policy.model_copy(update={"max_compaction_lag_ms": 7, "keep_raw_ms": 7})) == ""
    assert "from 'offset' to 'timestamp'" in rule_change(policy, CompactionPolicy(strategy=Strategy.TIMESTAMP))
    for change in (
        {"delete_retention_ms": 1},
        {"min_compaction_lag_ms": 1},
        {"on_unkeyed": "refuse"},
        {"strict": True},
    ):
        assert rule_change(policy, CompactionPolicy.model_validate(change))


def test_at_a_start_segments_wait_until_the_broker_has_reported_the_rule(tmp_path: Path) -> None:
    with story(tmp_path, UNKNOWN) as reported:
        reported.site.round()
        assert reported.site.rounds.due_in_s() == DELAY_MS / 1000
        assert archived_states(reported.site.store) == {}
        assert not reported.site.compactor.cycle()
        reported.reported = BY_HEADER
        reported.site.round()
        assert reported.site.compactor.cycle()
        reported.site.round()
        assert reported.kept() == {b"v9"}
        assert reported.reasons() == set()


@pytest.mark.parametrize("now", [UNKNOWN, DENIED], ids=["not reported", "denied"])
def test_segments_of_a_rule_that_stays_unknown_go_raw_and_not_in_silence(now: TopicPolicy, tmp_path: Path) -> None:
    with story(tmp_path, now) as reported:
        if now is UNKNOWN:
            reported.site.round()
            clock = reported.site.context.clock
            assert isinstance(clock, ManualClock)
            clock.advance_ms(DELAY_MS)
        reported.site.round()
        assert reported.kept() == {b"v9", b"v1"}
        assert reported.reasons() == {"rule_unknown"}
        assert reported.site.waiting.raw.status() == {"orders": {str(RawReason.RULE_UNKNOWN): 2}}
        assert all(
            now.unanswered in line["detail"] for line in reported.logs if line["event"] == "archived_without_compaction"
        )


def test_a_topic_that_the_broker_does_not_compact_is_no_fallback(tmp_path: Path) -> None:
    with story(tmp_path, replace(DELETE, unanswered="")) as reported:
        reported.site.round()
        assert reported.kept() == {b"v9", b"v1"}
        assert reported.reasons() == set()


def test_run_asks_for_the_rule_and_counts_what_goes_raw_without_one(tmp_path: Path) -> None:
    class Denies(FileBrokerFacts):
        def policy(self, topic: str) -> TopicPolicy:
            return DENIED

    compaction = {"topics": [{"pattern": "orders", "when": "before_upload"}]}
    settings = Settings.model_validate({"store": {"url": str(tmp_path / "archive")}, "compaction": compaction})
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    facts = Denies([log_dir], assume_leader=True)
    with tools_for(log_dir, store, tmp_path / "state") as context, structlog.testing.capture_logs():
        context = replace(context, facts=facts)
        with wire_compaction(settings, context, LocalEngines(), lambda _: None) as compaction_of:
            scan = partial(scan_log_dirs, [log_dir], TopicFilter((".*",)))
            ArchiveLoop(context, scan, compaction_of.before_upload).run_once()
        exposed, _ = context.metrics.exposition()
    assert re.search(rb'compaction_uncompacted_segments_total\{reason="rule_unknown"\} [1-9]', exposed)


@pytest.mark.parametrize("now", [DELETE, BY_HEADER, UNKNOWN], ids=["delete", "header", "not reported"])
def test_an_archive_compaction_of_a_rule_that_does_not_hold_is_never_committed(
    now: TopicPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, store = copy_partitions(tmp_path, "compacted-0"), MemoryStore()
    use(monkeypatch, store)
    compaction = {"topics": [".*"], "staging_dir": str(tmp_path / "work")}
    settings = Settings.model_validate({"store": {"url": str(tmp_path / "archive")}, "compaction": compaction})
    reported = [BY_OFFSET]
    rules = TopicRules(settings.compaction, lambda _: reported[0])

    class Changes(LocalEngines):
        """The rule changes after the job has begun."""

        def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
            reported[0] = changes
            return LocalEngine()

    with tools_for(log_dir, store, tmp_path / "state") as context, structlog.testing.capture_logs():
        (led,) = ArchiveLoop(context, partial(scan_log_dirs, [log_dir], TopicFilter((".*",)))).run_once().led
        policy = rules.policy_of("compacted")
        assert policy is not None
        work = Candidate(led, policy, CandidateAssessor(store, store.clock)(led, policy))
        before, objects = only_state(store), set(store.objects)
        changes = now
        (refused,) = ArchiveJobs(settings, context, Changes(), rules.rule_of)([work])
        assert isinstance(refused.error, RuleChanged)
        assert only_state(store) == before
        assert set(store.objects) == objects, "what was uploaded is removed"
        reported[0] = changes = BY_OFFSET
        (done,) = ArchiveJobs(settings, context, Changes(), rules.rule_of)([work])
        assert done.error is None
    sound(store)


def test_a_partition_whose_rule_changed_is_compacted_again_only_when_it_is_offered_again() -> None:
    rig = WorkerRig({"changed": 900})
    rig.ends["changed"] = RuleChanged("changed-0: the topic's compaction rule changed")
    rig.offer()
    with structlog.testing.capture_logs() as logs:
        turns(rig)
        turns(rig)
    assert rig.jobs == [["changed"]]
    assert ("compaction_superseded", "warning") in {(line["event"], line["log_level"]) for line in logs}
    assert rig.sample("quarantined_partitions") == 0
    del rig.ends["changed"]
    rig.offer()
    turns(rig)
    assert rig.jobs == [["changed"], ["changed"]]
