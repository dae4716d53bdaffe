"""A round ends soon, whatever the backlog: what rolled meanwhile, and what retention is about to take, need not wait for it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from sidecar.broker.files import FileBrokerFacts
from sidecar.clock import ManualClock
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.discovery.scan import scan_log_dirs
from sidecar.discovery.topic_filter import TopicFilter
from sidecar.partition.wait_reason import Wait
from sidecar.pipeline.tools import Tools
from sidecar.runner.round_report import RoundReport
from sidecar.runner.rounds import Rounds
from tests.fakes.memory_store import MemoryStore
from tests.pipeline.rig import archived_states, copy_partitions, ranges, rolled_ranges, tools_for

PARTITIONS = ("orders-0", "append-time-0", "codecs-java-0")
UPLOAD_MS = 100_000


def rounds_over(tools: Tools, log_dir: Path, store: MemoryStore) -> Rounds:
    """Each upload takes `UPLOAD_MS`."""
    clock = tools.clock
    assert isinstance(clock, ManualClock)

    def passes(operation: str, _key: str) -> None:
        if operation == "upload":
            clock.advance_ms(UPLOAD_MS // 2)  # Two objects for each segment.

    store.before = passes
    return Rounds(tools, partial(scan_log_dirs, [log_dir], TopicFilter((".*",))))


def archived(report: RoundReport) -> dict[str, int]:
    return {str(one.files.topic_partition): len(one.archived) for one in report.outcomes if one.archived}


def test_a_round_begins_no_segment_when_its_time_is_over(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, *PARTITIONS), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1, round_s=250) as tools:
        rounds = rounds_over(tools, log_dir, store)
        first = rounds.run_once()
        assert list(archived(first).values()) == [3], "of one partition only: the time is up"
        assert first.errors == []
        assert first.look_again_s == 0
        assert [one.reason for one in first.outcomes] == [Wait.ROUND_OVER] * len(PARTITIONS)
        assert sum(one.waiting for one in first.outcomes) == sum(len(rolled_ranges(log_dir, p)) for p in PARTITIONS) - 3
        second = rounds.run_once()
        assert archived(second).keys().isdisjoint(archived(first)), "who was not reached comes first"
        for _ in range(100):
            if rounds.run_once().look_again_s != 0:
                break
    assert {name: ranges(state) for name, state in archived_states(store).items()} == {
        name: rolled_ranges(log_dir, name) for name in PARTITIONS
    }


def test_no_backlog_keeps_a_fresh_segment_waiting(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, *PARTITIONS), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1, round_s=50) as tools:
        now_s = tools.clock.now_ms() // 1000
        for partition in PARTITIONS:
            for number, file in enumerate(sorted((log_dir / partition).glob("*.log"))):
                age_s = 60 if partition == "append-time-0" else 86_400 - number
                os.utime(file, (now_s - age_s, now_s - age_s))
        rounds = rounds_over(tools, log_dir, store)
        turns = [list(archived(rounds.run_once())) for _ in range(7)]
    assert turns[2] == turns[5] == ["append-time-0"], "of three each has its turn"
    assert turns[0] == turns[3] != turns[1] == turns[4]


def test_what_retention_is_about_to_take_goes_before_those_who_wait(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, *PARTITIONS), MemoryStore()
    policies: list[TopicPolicySettings] = []
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1, round_s=50) as tools:
        object.__setattr__(tools, "facts", FileBrokerFacts([log_dir], assume_leader=True, policies=policies))
        rounds = rounds_over(tools, log_dir, store)
        (first,) = archived(rounds.run_once())
        policies.append(TopicPolicySettings(pattern=first.rsplit("-", 1)[0], retention_ms=1))
        assert list(archived(rounds.run_once())) == [first]
        policies.clear()
        assert first not in archived(rounds.run_once())


def test_of_what_retention_is_about_to_take_the_nearest_deadline_goes_first(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0", "append-time-0"), MemoryStore()
    policies = [
        TopicPolicySettings(pattern="orders", retention_ms=1),
        TopicPolicySettings(pattern="append.*", retention_ms=2),
    ]
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1, round_s=50) as tools:
        object.__setattr__(tools, "facts", FileBrokerFacts([log_dir], assume_leader=True, policies=policies))
        for partition in ("orders-0", "append-time-0"):
            for file in (log_dir / partition).glob("*.timeindex"):
                file.write_bytes(b"")  # Else each segment has a deadline of its own.
            for file in (log_dir / partition).glob("*.log"):
                os.utime(file, (1_000, 1_000))
        rounds = rounds_over(tools, log_dir, store)
        assert [list(archived(rounds.run_once())) for _ in range(3)] == [["orders-0"]] * 3
