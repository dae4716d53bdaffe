"""A task ends soon, whatever the backlog: what rolled meanwhile, and what retention is about to take, need not wait for it."""

from __future__ import annotations

import os
from functools import partial
from itertools import groupby
from pathlib import Path

from sidecar.broker.files import FileBrokerFacts
from sidecar.config.topic_filter import TopicFilter
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.discovery.scan import scan_log_dirs
from sidecar.model import ArchivedSegment, TopicPartition
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.context import RunContext
from sidecar.runner.copy_tasks import Done
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archived_states, copy_partitions, ranges, rolled_ranges, tools_for

PARTITIONS = ("orders-0", "append-time-0", "codecs-java-0")
UPLOAD_MS = 100_000


def order_of_work(context: RunContext, log_dir: Path, done: Done = lambda *_: None) -> list[str]:
    """All is archived, and each upload takes `UPLOAD_MS`: the partition of each segment, in the order of their commits."""
    clock, store, order = context.clock, context.store, list[str]()
    assert isinstance(clock, ManualClock)
    assert isinstance(store, MemoryStore)

    def passes(operation: str, _key: str) -> None:
        if operation == "upload":
            clock.advance_ms(UPLOAD_MS // 2)  # Two objects for each segment.

    def committed(topic_partition: TopicPartition, segment: ArchivedSegment) -> None:
        order.append(str(topic_partition))
        done(topic_partition, segment)

    store.before = passes
    loop = ArchiveLoop(context, partial(scan_log_dirs, [log_dir], TopicFilter((".*",))))
    assert loop.run_once(committed).errors == []
    assert {name: ranges(state) for name, state in archived_states(store).items()} == {
        path.name: rolled_ranges(log_dir, path.name) for path in log_dir.iterdir() if path.is_dir()
    }
    return order


def test_a_task_begins_no_segment_when_its_time_is_over(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, *PARTITIONS), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1, task_s=250) as context:
        order = order_of_work(context, log_dir)
    tasks = [list(found) for _, found in groupby(order)]
    assert len(tasks[0]) == 3, "of one partition only: the time is up"
    assert {tasks[0][0], tasks[1][0], tasks[2][0]} == set(PARTITIONS), "who was not reached comes first"


def test_no_backlog_keeps_a_fresh_segment_waiting(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, *PARTITIONS), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1, task_s=50) as context:
        now_s = context.clock.now_ms() // 1000
        for partition in PARTITIONS:
            for number, file in enumerate(sorted((log_dir / partition).glob("*.log"))):
                age_s = 60 if partition == "append-time-0" else 86_400 - number
                os.utime(file, (now_s - age_s, now_s - age_s))
        order = order_of_work(context, log_dir)
    assert order[2] == order[5] == "append-time-0", "of three each has its turn"
    assert order[0] == order[3] != order[1] == order[4]


def test_what_retention_is_about_to_take_goes_before_those_who_wait(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, *PARTITIONS), MemoryStore()
    policies: list[TopicPolicySettings] = []
    commits: list[TopicPartition] = []

    def change(topic_partition: TopicPartition, _segment: ArchivedSegment) -> None:
        commits.append(topic_partition)
        policies[:] = [TopicPolicySettings(pattern=topic_partition.topic, retention_ms=1)] if len(commits) == 1 else []

    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1, task_s=50) as context:
        object.__setattr__(context, "facts", FileBrokerFacts([log_dir], assume_leader=True, policies=policies))
        order = order_of_work(context, log_dir, change)
    assert order[0] == order[1] != order[2]


def test_of_what_retention_is_about_to_take_the_nearest_deadline_goes_first(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0", "append-time-0"), MemoryStore()
    policies = [
        TopicPolicySettings(pattern="orders", retention_ms=1),
        TopicPolicySettings(pattern="append.*", retention_ms=2),
    ]
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1, task_s=50) as context:
        object.__setattr__(context, "facts", FileBrokerFacts([log_dir], assume_leader=True, policies=policies))
        for partition in ("orders-0", "append-time-0"):
            for file in (log_dir / partition).glob("*.timeindex"):
                file.write_bytes(b"")  # Else each segment has a deadline of its own.
            for file in (log_dir / partition).glob("*.log"):
                os.utime(file, (1_000, 1_000))
        assert order_of_work(context, log_dir)[:3] == ["orders-0"] * 3
