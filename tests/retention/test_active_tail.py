"""What never rolls is never archived: when retention deletes an active segment that is idle, and what is reported."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.http.pages import status_json
from sidecar.logformat.batches import scan_file
from sidecar.logformat.bodies.building import build_empty_batch
from sidecar.model import PartitionFiles
from sidecar.partition.wait_reason import Wait, render
from sidecar.retention.active_tail import SCANNED_BYTES_MAX, ActiveTail
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.partition_status import AT_RISK_MS
from sidecar.segment.local_disk import LocalDisk
from sidecar.topic_policy import TopicPolicy
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import copy_partitions, remove_offsets, status_of, tools_for

NAME = "orders-0"
DAY_MS = 86_400_000
BOTH = frozenset({"compact", "delete"})


class Facts(FileBrokerFacts):
    """Facts of files, and a policy that a test sets."""

    topic_policy = TopicPolicy(cleanup_policy=frozenset({"delete"}), retention_ms=7 * DAY_MS)

    def policy(self, topic: str) -> TopicPolicy:
        return self.topic_policy


@dataclass
class Idle:
    """An archived log whose active segment nobody writes to."""

    log_dir: Path
    facts: Facts
    clock: ManualClock
    tail: ActiveTail
    newest_ms: int

    @property
    def files(self) -> PartitionFiles:
        (found,) = scan_log_dirs([self.log_dir], TopicFilter(("orders",))).partitions
        return found

    def at(self, idle_ms: int) -> int | None:
        """The deadline so long after the newest record."""
        self.clock = ManualClock(self.newest_ms + idle_ms)
        self.tail = ActiveTail(self.facts, self.clock)
        return self.tail.deadline_ms(self.files, self.files.active_base_offset, None)


@pytest.fixture
def idle(tmp_path: Path) -> Idle:
    log_dir = copy_partitions(tmp_path, NAME)
    facts, clock = Facts([log_dir], assume_leader=True), ManualClock(0)
    found = Idle(log_dir, facts, clock, ActiveTail(facts, clock), 0)
    active = found.files.active_log
    assert active is not None
    batches = scan_file(active.path, base_offset=found.files.active_base_offset or 0)
    found.newest_ms = max(int(columns.max_timestamp_ms.max()) for columns in batches)
    assert found.newest_ms >= max(map(LocalDisk().largest_timestamp_ms, found.files.segments))
    write(found, found.newest_ms)
    return found


def write(idle: Idle, written_ms: int) -> None:
    active = idle.files.active_log
    assert active is not None
    os.utime(active.path, ns=(written_ms * 1_000_000, written_ms * 1_000_000))


def test_what_is_read_of_an_active_segment_counts_in_the_read_limit_once(idle: Idle) -> None:
    read: list[int] = []
    clock = ManualClock(idle.newest_ms + 100 * DAY_MS)
    tail = ActiveTail(idle.facts, clock, read.append)
    for _ in range(2):
        assert tail.deadline_ms(idle.files, idle.files.active_base_offset, None) is not None
    assert idle.files.active_log is not None
    assert read == [idle.files.active_log.size_bytes]


@pytest.mark.parametrize("retention_ms", [60_000, 7 * DAY_MS])
def test_an_idle_active_segment_is_deleted_when_its_newest_record_is_too_old(retention_ms: int, idle: Idle) -> None:
    idle.facts.topic_policy = replace(idle.facts.topic_policy, retention_ms=retention_ms)
    deadline_ms = idle.newest_ms + retention_ms
    assert idle.at(0) is None
    assert idle.at(retention_ms // 2 - 1) is None, "it may roll any moment"
    assert idle.at(retention_ms // 2 + 1) == deadline_ms
    assert idle.at(retention_ms + 1) == deadline_ms


@pytest.mark.parametrize(
    ("policy", "is_threatened"),
    [
        (TopicPolicy(), False),
        (TopicPolicy(cleanup_policy=BOTH, retention_ms=DAY_MS), True),
        (TopicPolicy(cleanup_policy=frozenset({"compact"}), retention_ms=DAY_MS), False),
        (
            TopicPolicy(retention_ms=-1, retention_bytes=1),
            False,
        ),  # by size a log keeps what exceeds the limit by less than itself
        (TopicPolicy(retention_ms=-1, retention_bytes=0), True),
        (TopicPolicy(retention_ms=DAY_MS, remote_storage_enable=True), False),  # not before it is uploaded
        (TopicPolicy(retention_ms=DAY_MS, remote_storage_enable=True, remote_log_copy_disable=True), True),
        (TopicPolicy(retention_ms=DAY_MS, remote_storage_enable=False), True),
    ],
)
def test_it_depends_on_the_topic(policy: TopicPolicy, is_threatened: bool, idle: Idle) -> None:
    idle.facts.topic_policy = policy
    assert (idle.at(2 * DAY_MS) is not None) == is_threatened


def test_what_is_empty_archived_or_written_to_is_not_threatened(idle: Idle) -> None:
    assert idle.at(6 * DAY_MS) is not None
    files = idle.files
    base_offset, active = files.active_base_offset, files.active_log
    assert base_offset is not None
    assert active is not None
    assert idle.tail.deadline_ms(files, base_offset + 5, base_offset + 6) is not None
    assert idle.tail.deadline_ms(files, base_offset + 5, base_offset + 5) is None
    assert idle.tail.deadline_ms(replace(files, active_log=replace(active, size_bytes=0)), None, None) is None
    with active.path.open("ab") as file:
        times = {"max_timestamp_ms": idle.newest_ms + 5 * DAY_MS}
        file.write(build_empty_batch(base_offset=10**6, last_offset=10**6, **times))
    assert idle.at(6 * DAY_MS) is None


def test_a_replica_that_was_fetched_anew_is_a_young_file_of_old_records(idle: Idle) -> None:
    write(idle, idle.newest_ms + 5 * DAY_MS)
    assert idle.at(6 * DAY_MS) == idle.newest_ms + 7 * DAY_MS
    assert idle.at(3 * DAY_MS) is None


def test_a_segment_that_stays_keeps_what_lies_above_it(idle: Idle) -> None:
    later_ms = idle.newest_ms + 6 * DAY_MS
    segment = idle.files.segments[-1]
    assert segment.time_index is not None
    segment.time_index.path.write_bytes(b"")
    os.utime(segment.log.path, ns=(later_ms * 1_000_000, later_ms * 1_000_000))
    assert idle.at(7 * DAY_MS) is None
    assert idle.at(10 * DAY_MS) == later_ms + 7 * DAY_MS


def test_records_count_by_their_own_time_where_the_segment_is_small_and_else_by_its_last_write(idle: Idle) -> None:
    write(idle, idle.newest_ms + DAY_MS)
    assert idle.at(6 * DAY_MS) == idle.newest_ms + 7 * DAY_MS
    active = idle.files.active_log
    assert active is not None
    with active.path.open("r+b") as file:
        file.truncate(SCANNED_BYTES_MAX + 1)
    write(idle, idle.newest_ms + DAY_MS)
    assert idle.at(6 * DAY_MS) == idle.newest_ms + 8 * DAY_MS


@pytest.mark.parametrize(
    "prepare", [lambda _directory, _base: None, lambda d, base: remove_offsets(d, lambda offset: offset == base)]
)
def test_metric_and_page_count_it_down_although_nothing_happens(
    prepare: Callable[[Path, int], None], idle: Idle, tmp_path: Path
) -> None:
    prepare(idle.log_dir / NAME, idle.files.active_base_offset or 0)
    with tools_for(idle.log_dir, MemoryStore(), tmp_path / "state") as context:
        clock = ManualClock(idle.newest_ms)
        context.metrics._backlog._clock = clock
        context = replace(context, facts=idle.facts, clock=clock)
        rounds = ArchiveLoop(context, partial(scan_log_dirs, [idle.log_dir], TopicFilter(("orders",))))

        def row(idle_ms: int) -> tuple[float | None, dict[str, object]]:
            clock.advance_ms(idle.newest_ms + idle_ms - clock.now_ms())
            rounds.run_once()
            (found,) = status_json(status_of(context))["partitions"]
            return context.metrics.registry.get_sample_value("tiered_sidecar_data_at_risk_in_seconds"), found

        rounds.run_once()
        for idle_ms in (0, 3 * DAY_MS):
            left_s, found = row(idle_ms)
            assert (left_s, found["active_deadline_ms"]) == (math.inf, None)
        left_s, found = row(4 * DAY_MS)
        assert left_s == 3 * DAY_MS / 1000
        assert (found["active_deadline_ms"], found["reason"]) == (idle.newest_ms + 7 * DAY_MS, "")
        left_s, found = row(7 * DAY_MS - AT_RISK_MS // 2)
        assert left_s == AT_RISK_MS / 2000
        assert (found["state"], found["reason"]) == ("at_risk", render(Wait.ACTIVE_SEGMENT_IDLE))
        idle.facts.topic_policy = replace(idle.facts.topic_policy, retention_ms=-1)
        left_s, found = row(7 * DAY_MS)
        assert (left_s, found["active_deadline_ms"], found["reason"]) == (math.inf, None, "")


def test_an_idle_log_is_read_once(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    assert idle.at(6 * DAY_MS) is not None
    monkeypatch.setattr(LocalDisk, "largest_timestamp_ms", None)
    monkeypatch.setattr(LocalDisk, "newest_record", None)
    assert idle.tail.deadline_ms(idle.files, None, None) == idle.newest_ms + 7 * DAY_MS
