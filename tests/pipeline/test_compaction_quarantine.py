"""Who fails is left alone for longer and longer, and never for ever."""

from __future__ import annotations

import pytest

from sidecar.compactor.worker import Quarantine
from sidecar.errors import CorruptFile
from sidecar.model import TopicPartition
from tests.fakes.manual_clock import ManualClock

ORDERS, ACCOUNTS = TopicPartition("orders", 0), TopicPartition("accounts", 3)
ODD = CorruptFile("expected magic 2, found 7", file="orders-0/0.log", position=61)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


def test_each_failure_doubles_the_rest_up_to_a_limit(clock: ManualClock) -> None:
    quarantine = Quarantine(clock, wait_s=60, wait_max_s=400)
    for expected_s in (60, 120, 240, 400, 400):
        held = quarantine.failed(ORDERS, ODD)
        assert held.until_s == clock.monotonic_s() + expected_s
        clock.sleep_s(expected_s - 1)
        assert quarantine.is_resting(ORDERS)
        clock.sleep_s(1)
        assert not quarantine.is_resting(ORDERS)


def test_ten_thousand_failures_are_no_overflow(clock: ManualClock) -> None:
    quarantine = Quarantine(clock, wait_s=60, wait_max_s=400)
    for _ in range(10_000):
        held = quarantine.failed(ORDERS, ODD)
    assert held.until_s == clock.monotonic_s() + 400


def test_the_reason_stays_while_it_is_tried_again_and_success_ends_it(clock: ManualClock) -> None:
    quarantine = Quarantine(clock, wait_s=60, wait_max_s=400)
    quarantine.failed(ORDERS, ODD)
    clock.sleep_s(61)
    held = quarantine.of(ORDERS)
    assert held is not None
    assert (held.failures, held.error, held.failed_at_ms) == (1, "CorruptFile", 1_000_000)
    assert held.reason == "orders-0/0.log, at byte 61: expected magic 2, found 7"
    quarantine.succeeded(ORDERS)
    assert (quarantine.of(ORDERS), len(quarantine)) == (None, 0)
    assert quarantine.failed(ORDERS, ODD).until_s == clock.monotonic_s() + 60


def test_others_are_not_touched_and_those_that_are_not_ours_are_forgotten(clock: ManualClock) -> None:
    quarantine = Quarantine(clock, wait_s=60, wait_max_s=400)
    quarantine.failed(ORDERS, ODD)
    assert not quarantine.is_resting(ACCOUNTS)
    quarantine.keep_only({ACCOUNTS})
    assert len(quarantine) == 0
