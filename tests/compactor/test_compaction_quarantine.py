"""Who fails is left alone for longer and longer, and never for ever."""

from __future__ import annotations

import pytest

from sidecar.compactor.candidate_queue import CandidateQueue
from sidecar.compactor.policy import Assessment, Trigger
from sidecar.config import CompactionPolicy
from sidecar.errors import CorruptFile
from tests.compactor.compaction_rig import led
from tests.fakes.manual_clock import ManualClock

A, B = led("a"), led("b")
ODD = CorruptFile("expected magic 2, found 7", file="orders-0/segments/0.log", position=61)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def queue(clock: ManualClock) -> CandidateQueue:
    queue = CandidateQueue(clock, wait_s=60, wait_max_s=400)
    queue.replace([(A, CompactionPolicy()), (B, CompactionPolicy())])
    return queue


def test_each_failure_doubles_the_rest_up_to_a_limit(clock: ManualClock, queue: CandidateQueue) -> None:
    for expected_s in (60, 120, 240, 400, 400):
        held = queue.failed(queue.entries[A.topic_partition], ODD)
        assert held.until_s == clock.monotonic_s() + expected_s
        clock.sleep_s(expected_s - 1)
        assert queue.is_resting(queue.entries[A.topic_partition])
        clock.sleep_s(1)
        assert not queue.is_resting(queue.entries[A.topic_partition])


def test_ten_thousand_failures_are_no_overflow(clock: ManualClock, queue: CandidateQueue) -> None:
    for _ in range(10_000):
        held = queue.failed(queue.entries[A.topic_partition], ODD)
    assert held.until_s == clock.monotonic_s() + 400


def test_the_reason_stays_while_it_is_tried_again_and_success_ends_it(
    clock: ManualClock, queue: CandidateQueue
) -> None:
    queue.failed(queue.entries[A.topic_partition], ODD)
    clock.sleep_s(61)
    entry = queue.entries[A.topic_partition]
    held = entry.quarantined
    assert held is not None
    assert (held.failures, held.error, held.failed_at_ms) == (1, "CorruptFile", 1_000_000)
    assert held.reason.startswith(
        "orders-0/segments/0.log, at byte 61: expected magic 2, found 7; restore the object from"
    )
    entry.assessed(Assessment(0, 100, 1, 200, Trigger.DIRTY_RATIO, None), clock.now_ms())
    entry.succeeded()
    assert (queue.entries[A.topic_partition].quarantined, queue.weighed().quarantined) == (None, 0)
    assert queue.failed(queue.entries[A.topic_partition], ODD).until_s == clock.monotonic_s() + 60


def test_others_are_not_touched_and_those_that_are_not_ours_are_forgotten(queue: CandidateQueue) -> None:
    queue.failed(queue.entries[A.topic_partition], ODD)
    assert not queue.is_resting(queue.entries[B.topic_partition])
    queue.replace([(A, CompactionPolicy()), (B, CompactionPolicy())])
    assert queue.weighed().quarantined == 1
    queue.replace([(B, CompactionPolicy())])
    assert queue.weighed().quarantined == 0
