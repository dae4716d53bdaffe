"""Waiting: between attempts, and for one's turn to send."""

from __future__ import annotations

import io
import random
from threading import Thread

import pytest

from sidecar.errors import ObjectDamaged, OutcomeUnknown, StoreDenied, StoreError, StoreUnavailable
from sidecar.storage.bandwidth import BandwidthLimit
from sidecar.storage.retry import Retrier
from sidecar.storage.s3.request_body import PacedBody
from sidecar.store_settings import RetrySettings
from tests.fakes.manual_clock import ManualClock
from tests.fakes.seeded_randomness import SeededRandomness


class Flaky:
    """Fails with the given errors in turn, then succeeds."""

    def __init__(self, *errors: StoreError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def retrier(clock: ManualClock, attempts: int = 4) -> Retrier:
    return Retrier(RetrySettings(attempts=attempts, wait_s_first=1, wait_s_max=5), clock, SeededRandomness(7))


def test_unavailability_is_waited_out_on_the_injected_clock() -> None:
    clock = ManualClock()
    flaky = Flaky(StoreUnavailable("1"), StoreUnavailable("2"), StoreUnavailable("3"))
    assert retrier(clock).run(flaky) == "done"
    assert flaky.calls == 4
    assert 0 < clock.monotonic_s() < 1 + 2 + 4


def test_the_last_error_is_ours_and_not_the_library_s() -> None:
    flaky = Flaky(*(StoreUnavailable(str(n)) for n in range(9)))
    with pytest.raises(StoreUnavailable, match="3"):
        retrier(ManualClock()).run(flaky)
    assert flaky.calls == 4


@pytest.mark.parametrize("error", [OutcomeUnknown("?"), StoreDenied("no")])
def test_what_repetition_cannot_help_is_raised_at_once(error: StoreError) -> None:
    flaky = Flaky(error)
    with pytest.raises(type(error)):
        retrier(ManualClock()).run(flaky)
    assert flaky.calls == 1


def test_damage_is_tried_once_more() -> None:
    assert retrier(ManualClock()).run(Flaky(ObjectDamaged("1"))) == "done"
    flaky = Flaky(ObjectDamaged("1"), ObjectDamaged("2"), ObjectDamaged("3"))
    with pytest.raises(ObjectDamaged, match="2"):
        retrier(ManualClock()).run(flaky)


def test_waits_grow_to_their_bound() -> None:
    waits = [retrier(ManualClock()).wait_s(failures) for failures in (1, 2, 3, 4, 400)]
    assert all(0 <= wait <= bound for wait, bound in zip(waits, (1, 2, 4, 5, 5), strict=True))


def test_bytes_take_the_time_their_rate_demands() -> None:
    clock = ManualClock()
    limit = BandwidthLimit(1000, clock)
    for _ in range(10):
        limit.take(500)
    assert clock.monotonic_s() == pytest.approx(4.5)  # the last 500 are on their way


def test_idle_time_is_not_saved_up() -> None:
    clock = ManualClock()
    limit = BandwidthLimit(1000, clock)
    clock.advance_ms(60_000)
    limit.take(1000)
    limit.take(1000)
    assert clock.monotonic_s() == pytest.approx(61)


def test_threads_share_one_rate() -> None:
    clock = ManualClock()
    limit = BandwidthLimit(1000, clock)
    threads = [Thread(target=lambda: [limit.take(100) for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    limit.take(0)
    assert clock.monotonic_s() >= 2.0


def test_a_paced_body_is_read_block_by_block() -> None:
    clock = ManualClock()
    content = random.Random(1).randbytes(10_000)
    body = PacedBody(bytearray(content), BandwidthLimit(1000, clock))
    assert (body.read(), body.seek(0), clock.monotonic_s()) == (
        content,
        0,
        0.0,
    )  # By who signs it: nothing is sent yet.
    body.begin_sending()
    copied = io.BytesIO()
    while block := body.read(999):
        copied.write(block)
    assert copied.getvalue() == content
    assert clock.monotonic_s() == pytest.approx(10, abs=0.1)


def test_a_paced_body_can_be_sent_again() -> None:
    body = PacedBody(b"0123456789", BandwidthLimit(10**9, ManualClock()))
    assert (len(body), body.seek(0, 2), body.tell()) == (10, 10, 10)
    assert body.seek(4) == 4
    assert body.read(3) == b"456"
    assert body.seek(1, 1) == 8
    assert body.read() == b"89"
    assert body.read(5) == b""


def test_a_limit_may_come_change_and_go_while_it_is_used() -> None:
    clock = ManualClock()
    limit = BandwidthLimit(None, clock)
    limit.take(10**9)
    limit.take(10**9)
    assert (limit.bytes_per_s, clock.monotonic_s()) == (None, 0.0)
    limit.change(1000)
    limit.take(500)
    limit.take(500)
    assert (limit.bytes_per_s is not None, clock.monotonic_s()) == (True, 0.5)
    limit.change(None)
    limit.take(10**9)
    assert clock.monotonic_s() == 0.5
