"""When a store counts as silent, and when it does not any more."""

from __future__ import annotations

from contextlib import suppress

import pytest

from sidecar.errors import ObjectMissing, OutcomeUnknown, SegmentChanged, SidecarError, StoreDenied, StoreUnavailable
from sidecar.storage.retry import FORGOTTEN_S, SILENT_S, StoreLiveness
from tests.fakes.manual_clock import ManualClock

LONG_MS = int(SILENT_S * 1000)


class Requests:
    """One after the other, each of which takes its time."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.reported: list[str | None] = []
        self.answers = StoreLiveness(self.clock, self.reported.append)

    def send(self, took_ms: int, error: SidecarError | None = None) -> None:
        with suppress(SidecarError), self.answers.asked():
            self.clock.advance_ms(took_ms)
            if error is not None:
                raise error


@pytest.mark.parametrize("error", [StoreUnavailable("read timeout"), OutcomeUnknown("read timeout")])
def test_the_first_attempt_that_waited_in_vain_is_reported_once_and_the_first_answer_ends_it(
    error: SidecarError,
) -> None:
    requests = Requests()
    requests.send(60_000, error)
    assert requests.reported == ["read timeout"]
    assert requests.answers.is_silent()
    requests.send(60_000, error)
    assert len(requests.reported) == 1
    requests.send(5)
    assert requests.reported == ["read timeout", None]
    assert not requests.answers.is_silent()


def test_a_store_that_refuses_for_a_moment_is_busy_and_not_away() -> None:
    requests = Requests()
    for _ in range(5):
        requests.clock.advance_ms(3_600_000)
        requests.send(1, StoreUnavailable("slow down"))
        requests.send(LONG_MS - 2)
    assert requests.reported == []


def test_a_store_that_throttles_answers_however_long_the_bytes_flowed() -> None:
    requests, busy = Requests(), StoreUnavailable("503 SlowDown")
    busy.is_answered = True
    requests.send(60_000, busy)
    assert requests.reported == []
    requests.send(60_000, StoreUnavailable("read timeout"))
    requests.send(1, busy)
    assert requests.reported == ["read timeout", None]


def test_the_first_request_without_an_answer_is_reported_and_not_the_clean_up_after_it() -> None:
    requests = Requests()
    requests.send(LONG_MS - 1, StoreUnavailable("PutObject: read timeout"))
    requests.send(1, StoreUnavailable("DeleteObject: read timeout"))
    assert requests.reported == ["PutObject: read timeout"]
    requests.send(1)
    requests.send(2 * LONG_MS, StoreUnavailable("ListObjectsV2: read timeout"))
    assert requests.reported[2:] == ["ListObjectsV2: read timeout"]


def test_what_failed_long_ago_is_no_silence() -> None:
    requests = Requests()
    for _ in range(2):
        requests.send(1, StoreUnavailable("refused"))
        requests.clock.advance_ms(int(FORGOTTEN_S * 1000))
    assert requests.reported == []


def test_many_short_refusals_are_one_long_silence() -> None:
    requests = Requests()
    for _ in range(11):
        requests.send(1, StoreUnavailable("refused"))
        requests.clock.advance_ms(LONG_MS // 10)
    assert requests.reported == ["refused"]


@pytest.mark.parametrize("error", [ObjectMissing("no such object"), StoreDenied("no right")])
def test_a_no_is_an_answer(error: SidecarError) -> None:
    requests = Requests()
    requests.send(60_000, StoreUnavailable("read timeout"))
    requests.send(1, error)
    assert requests.reported == ["read timeout", None]


def test_an_answer_to_another_request_counts_for_those_that_wait() -> None:
    requests = Requests()
    with suppress(StoreUnavailable), requests.answers.asked():
        requests.clock.advance_ms(60_000)
        requests.send(1)
        requests.clock.advance_ms(LONG_MS - 1)
        raise StoreUnavailable("read timeout")
    assert requests.reported == []
    requests.send(2, StoreUnavailable("read timeout"))
    assert requests.reported == ["read timeout"]


def test_what_ends_a_request_on_this_side_says_nothing_of_the_store() -> None:
    requests = Requests()
    requests.send(60_000, StoreUnavailable("read timeout"))
    with suppress(RuntimeError), requests.answers.asked():
        raise RuntimeError
    assert requests.answers.is_silent()


def test_a_segment_that_changed_is_not_the_stores_silence() -> None:
    requests = Requests()
    requests.send(60_000, SegmentChanged("changed"))
    assert requests.reported == []
