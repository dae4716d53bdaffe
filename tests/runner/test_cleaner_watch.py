"""Which partitions the broker's cleaner should have cleaned, and since when it has not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import Away, BrokerAway
from sidecar.ports import FactsState
from sidecar.runner.cleaner_watch import CleanerReport, CleanerWatch, backlog_of
from sidecar.topic_policy import TopicPolicy
from tests.fakes.manual_clock import ManualClock

NOW_MS = 1_700_000_000_000
COMPACT = frozenset({"compact"})
ORDERS = TopicPartition("orders", 0)


def a_log(*sizes_and_ages: tuple[int, int]) -> PartitionFiles:
    """Segments of ten offsets each, with sizes and ages in milliseconds; the active one follows."""
    segments = tuple(
        SegmentFiles(
            ORDERS,
            Path("/logs"),
            number * 10,
            number * 10 + 10,
            FileIdentity(Path("/logs/orders-0"), f"{number}.log", number, size_bytes, (NOW_MS - age_ms) * 1_000_000),
            None,
            None,
            None,
            None,
        )
        for number, (size_bytes, age_ms) in enumerate(sizes_and_ages)
    )
    return PartitionFiles(ORDERS, Path("/logs"), Path("/logs/orders-0"), None, segments, len(segments) * 10, (), False)


@pytest.mark.parametrize(
    ("first_dirty", "policy", "dirty_bytes", "clean_bytes", "due_ms_ago", "beyond"),
    [
        (None, TopicPolicy(), 300, 0, 900, False),
        (10, TopicPolicy(), 200, 100, 200, False),  # the ratio of one half is passed by the third segment only
        (20, TopicPolicy(), 100, 200, None, False),
        (30, TopicPolicy(), 0, 300, None, False),
        (15, TopicPolicy(), 200, 200, None, False),  # a segment that the offset falls into counts twice
        (99, TopicPolicy(), 300, 0, 900, False),  # beyond the log's end: it begins anew
        (20, TopicPolicy(min_cleanable_dirty_ratio=0.2), 100, 200, 200, False),
        (None, TopicPolicy(min_compaction_lag_ms=500), 200, 0, 400, False),
        (10, TopicPolicy(min_compaction_lag_ms=150), 200, 100, 50, False),
        (None, TopicPolicy(min_compaction_lag_ms=1_000), 0, 0, None, False),
        (20, TopicPolicy(max_compaction_lag_ms=150), 100, 200, 50, True),
        (20, TopicPolicy(max_compaction_lag_ms=250), 100, 200, None, False),
    ],
)
def test_the_backlog_is_what_the_cleaner_would_reckon(
    first_dirty: int | None,
    policy: TopicPolicy,
    dirty_bytes: int,
    clean_bytes: int,
    due_ms_ago: int | None,
    beyond: bool,
) -> None:
    found = backlog_of(a_log((100, 900), (100, 600), (100, 200)), first_dirty, policy, NOW_MS, None)
    due_since_ms = None if due_ms_ago is None else NOW_MS - due_ms_ago
    assert (found.dirty_bytes, found.clean_bytes) == (dirty_bytes, clean_bytes)
    assert (found.due_since_ms, found.is_beyond_max_lag) == (due_since_ms, beyond)


@pytest.mark.parametrize(("stable_end", "dirty_bytes"), [(30, 300), (29, 200), (20, 200), (19, 100), (9, 0)])
def test_a_segment_that_reaches_above_the_last_stable_offset_is_not_the_cleaners_yet(
    stable_end: int, dirty_bytes: int
) -> None:
    found = backlog_of(a_log((100, 900), (100, 600), (100, 200)), None, TopicPolicy(), NOW_MS, stable_end)
    assert (found.dirty_bytes, found.due_since_ms is None) == (dirty_bytes, dirty_bytes == 0)


class Facts(FileBrokerFacts):
    """What a live broker would say besides."""

    topic_policy = TopicPolicy(cleanup_policy=COMPACT)
    stable_end_offset: int | None = None
    away: Away | None = None

    def state(self) -> FactsState:
        return replace(super().state(), away=self.away)

    def policy(self, topic: str) -> TopicPolicy:
        return self.topic_policy

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        facts = super().partition(files)
        if self.stable_end_offset is None:
            return facts
        return replace(facts, leads=True, transactions_decided=True, stable_end_offset=self.stable_end_offset)


class Broker:
    """A log dir with one compacted partition, on a clock of its own."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.clock = ManualClock(NOW_MS)
        (log_dir / "orders-0").mkdir(parents=True)
        self.facts = Facts([log_dir], clock=self.clock)
        self._segments = 0
        self.roll()
        self.roll()

    def roll(self) -> None:
        path = self.log_dir / "orders-0" / f"{self._segments * 10:020d}.log"
        path.write_bytes(bytes(100))
        self._date(path)
        self._segments += 1

    def cleans(self, first_dirty_offset: int, topic: str = "orders") -> None:
        path = self.log_dir / "cleaner-offset-checkpoint"
        path.write_text(f"0\n1\n{topic} 0 {first_dirty_offset}\n")
        self._date(path)

    def watch(self) -> CleanerWatch:
        return CleanerWatch([self.log_dir], self.facts, self.clock, stalled_after_s=60)

    def _date(self, path: Path) -> None:
        os.utime(path, ns=(self.clock.now_ms() * 1_000_000,) * 2)


def stalled(report: CleanerReport) -> list[int]:
    return [found.stalled_s for found in report.stalled]


def test_a_cleaner_that_works_is_no_alarm_and_one_that_stops_is(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    watch = broker.watch()
    for offset in (10, 20, 30, 40):
        broker.cleans(offset)
        broker.roll()
        assert stalled(watch.look()) == []
        broker.clock.advance_ms(50_000)
    for _ in range(5):
        broker.roll()
    watch.look()
    broker.clock.advance_ms(61_000)
    report = watch.look()
    assert stalled(report) == [61]
    assert (report.dirty_bytes, report.max_dirty_ratio) == (600, pytest.approx(0.6))
    assert "makes no progress: orders-0" in report.line
    broker.cleans(90)
    assert stalled(watch.look()) == []


def test_a_new_process_counts_from_its_first_look_and_only_who_looks_once_believes_the_age_of_the_file(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path)
    broker.cleans(0)
    broker.clock.advance_ms(100_000)
    watch = broker.watch()
    assert stalled(watch.look()) == []
    broker.clock.advance_ms(61_000)
    assert stalled(watch.look()) == [61]
    once = CleanerWatch([tmp_path], broker.facts, broker.clock, stalled_after_s=60, counts_from_files=True)
    assert stalled(once.look()) == [161]


def test_nothing_stands_still_while_the_broker_is_down(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.cleans(0)
    watch = broker.watch()
    watch.look()
    broker.facts.away = BrokerAway("no answer")
    for _ in range(3):
        broker.clock.advance_ms(50_000)
        assert stalled(watch.look()) == []
    broker.facts.away = None
    broker.clock.advance_ms(50_000)
    assert stalled(watch.look()) == []
    broker.clock.advance_ms(50_000)
    assert stalled(watch.look()) == [100]


def test_a_directory_that_cannot_be_read_for_a_moment_begins_no_new_count(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.cleans(0)
    watch = broker.watch()
    watch.look()
    broker.clock.advance_ms(50_000)
    odd = tmp_path / "orders-0" / f"{99:020d}.log"
    odd.mkdir()
    (problem,) = watch.look().problems
    assert "is not a regular file" in problem
    odd.rmdir()
    broker.clock.advance_ms(11_000)
    assert stalled(watch.look()) == [61]


def test_others_progress_does_not_hide_the_one_that_was_given_up(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    watch = broker.watch()
    watch.look()
    for _ in range(7):
        broker.clock.advance_ms(10_000)
        broker.cleans(5, topic="others")
        found = watch.look()
    assert stalled(found) == [70]


def test_without_configurations_only_what_was_cleaned_before_is_watched(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.facts.topic_policy = TopicPolicy()
    assert broker.watch().look().partitions == 0
    broker.cleans(0)
    assert broker.watch().look().partitions == 1
    broker.facts.topic_policy = TopicPolicy(cleanup_policy=frozenset({"delete"}))
    assert broker.watch().look().partitions == 0


def test_files_that_cannot_be_believed_are_reported_and_looks_are_rare(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    (tmp_path / "cleaner-offset-checkpoint").write_text("7\n")
    watch = broker.watch()
    assert watch.is_due()
    (problem,) = watch.look().problems
    assert "cleaner-offset-checkpoint" in problem
    assert not watch.is_due()
    broker.clock.advance_ms(20_000)
    assert watch.is_due()


def test_what_an_open_transaction_held_back_begins_to_stand_when_it_ends(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for _ in range(4):
        broker.roll()
    broker.cleans(10)
    broker.facts.stable_end_offset = 15
    watch = broker.watch()
    for _ in range(4):
        broker.clock.advance_ms(50_000)
        assert stalled(watch.look()) == []
    broker.facts.stable_end_offset = 50
    broker.clock.advance_ms(50_000)
    assert stalled(watch.look()) == []
    broker.clock.advance_ms(50_000)
    assert stalled(watch.look()) == [100]
