"""The connection to brokers: which addresses it takes, and many threads that share it, one of which meets what fails."""

from __future__ import annotations

import itertools
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import pytest

from sidecar.broker.cluster_view import describe_topics, list_offsets
from sidecar.broker.connection import BrokerConnection
from sidecar.clock import Clock
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.errors import BrokerUnavailable
from sidecar.model import TopicPartition
from tests.fakes.manual_clock import ManualClock
from tests.servers.fake_kafka import NODE_ID, OTHER_ID, EndConnection, FakeKafka, slowly

THREADS = 24
"""More than kafka-python lets wait on a connection, which is 5."""
LIST_OFFSETS, METADATA = 2, 3
TIMEOUT_S = 60.0


def connected(
    kafka: FakeKafka, timeout_s: float = TIMEOUT_S, clock: Clock | None = None
) -> AbstractContextManager[BrokerConnection]:
    settings = BrokerConnectionSettings(bootstrap_servers=(kafka.server,), request_timeout_s=timeout_s)
    return closing(BrokerConnection(settings, clock))


def ask(connection: BrokerConnection, topic: str = "healthy") -> int:
    """How many offsets our own broker tells: one."""
    return len(list_offsets(connection, NODE_ID, {TopicPartition(topic, 0): 3}))


def at_once(asked: Callable[[], int], times: int = 10) -> list[int]:
    """The answers that many threads got, each as often as this."""
    with ThreadPoolExecutor(THREADS) as pool:
        several = [pool.submit(lambda: sum(asked() for _ in range(times))) for _ in range(THREADS)]
    return [each.result() for each in several]


_others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _clients_of_other_tests() -> None:
    """Another test of this worker may leave one to the garbage collector."""
    _others.clear()
    _others.update(threading.enumerate())


def clients() -> int:
    """How many clients this test has open: each has a thread."""
    mine = set(threading.enumerate()) - _others
    return sum(thread.name.startswith("kafka-io-tiered-sidecar") for thread in mine)


def about(topic: str, does: Callable[[], None]) -> Callable[[Any], None]:
    """For `meanwhile`: what the broker does when it is asked for this topic's offsets."""

    def meanwhile(request: Any) -> None:
        if request.API_KEY == LIST_OFFSETS and request.topics[0].name == topic:
            does()

    return meanwhile


def end_connection() -> None:
    raise EndConnection


def test_more_threads_than_kafka_python_lets_wait_are_all_answered() -> None:
    with FakeKafka(meanwhile=slowly(0.002)) as kafka, connected(kafka) as connection:
        assert at_once(lambda: ask(connection)) == [10] * THREADS
        assert kafka.asked[LIST_OFFSETS] == 10 * THREADS


@contextmanager
def refused_again_and_again(asked: Callable[[], object]) -> Iterator[Callable[[], int]]:
    """Another thread asks all the while, and was refused once; what is given ends that, and tells how often it was."""
    is_over, is_refused = threading.Event(), threading.Event()

    def refusals() -> int:
        for count in itertools.count():
            if is_over.is_set():
                return count
            with pytest.raises(BrokerUnavailable):
                asked()
            is_refused.set()
        raise AssertionError

    def ended() -> int:
        is_over.set()
        return other.result(TIMEOUT_S)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(refusals)
        try:
            assert is_refused.wait(TIMEOUT_S)
            yield ended
        finally:
            is_over.set()


@pytest.mark.parametrize("spare", [True, False])
def test_a_dead_neighbour_ends_only_what_it_is_asked(spare: bool) -> None:
    with FakeKafka(meanwhile=slowly(0.002)) as kafka, connected(kafka) as connection:
        ask(connection)
        before = kafka.accepted
        with refused_again_and_again(lambda: describe_topics(connection, [], OTHER_ID, spare=spare)) as refusals:
            assert at_once(lambda: ask(connection)) == [10] * THREADS
            assert refusals() > 0
        assert kafka.asked[LIST_OFFSETS] == 10 * THREADS + 1  # nothing was asked twice
        if spare:
            assert kafka.accepted == before
    assert clients() == 0


def test_a_request_that_always_ends_its_connection_ends_no_other() -> None:
    with (
        FakeKafka(meanwhile=about("poison", end_connection)) as kafka,
        connected(kafka) as connection,
        refused_again_and_again(lambda: ask(connection, "poison")) as refusals,
    ):
        assert at_once(lambda: ask(connection), times=5) == [5] * THREADS
        assert refusals() > 0
    assert clients() == 0


def test_a_request_that_is_never_answered_ends_in_its_time_and_those_behind_it_are_answered() -> None:
    with (
        silence() as meanwhile,
        FakeKafka(meanwhile=meanwhile) as kafka,
        ThreadPoolExecutor(THREADS) as pool,
        connected(kafka, timeout_s=10) as connection,
    ):
        ask(connection)
        silent = pool.submit(ask, connection, "silent")
        while kafka.asked[LIST_OFFSETS] < 2:
            time.sleep(0.01)  # noqa: TID251 - the fake broker's thread is waited for
        time.sleep(9)  # noqa: TID251 - those behind it have nearly all of theirs left when its own is over
        behind = [pool.submit(ask, connection) for _ in range(THREADS - 1)]
        assert [each.result(TIMEOUT_S) for each in behind] == [1] * (THREADS - 1)
        assert str(silent.exception(TIMEOUT_S)) == f"{kafka.server}: no answer within 10 s"
        assert kafka.asked[LIST_OFFSETS] == THREADS + 1  # whose time is over is not sent again


@contextmanager
def silence() -> Iterator[Callable[[Any], None]]:
    """For `meanwhile`: what is asked about the topic `silent` is answered only when all is over."""
    is_over = threading.Event()

    def until_over() -> None:
        is_over.wait(TIMEOUT_S)
        raise EndConnection

    try:
        yield about("silent", until_over)
    finally:
        is_over.set()


def test_a_quota_makes_requests_wait_and_ends_none() -> None:
    with FakeKafka(throttle_ms=100) as kafka, connected(kafka) as connection, ThreadPoolExecutor(4) as pool:
        assert [ask(connection) for _ in range(4)] == [1] * 4
        assert list(pool.map(lambda _: ask(connection), range(4))) == [1] * 4


def test_a_quota_that_takes_longer_than_a_request_may_is_reported() -> None:
    clock = ManualClock(0)
    with (
        FakeKafka(throttle_ms=10 * round(TIMEOUT_S * 1000)) as kafka,
        ThreadPoolExecutor(1) as pool,
        connected(kafka, clock=clock) as connection,
    ):
        ask(connection)
        held_up = pool.submit(ask, connection)
        while not held_up.done():
            clock.advance_ms(1_000)
            time.sleep(0.01)  # noqa: TID251 - the other thread may not have begun yet
        with pytest.raises(BrokerUnavailable, match="most often by a request quota of the broker"):
            held_up.result()
        assert kafka.asked[LIST_OFFSETS] == 1


def test_any_node_is_one_that_can_be_reached() -> None:
    with FakeKafka() as kafka:
        for _ in range(12):  # each chooses anew between a live and a dead node
            with connected(kafka) as connection:
                assert describe_topics(connection, []).broker_ids == {NODE_ID, OTHER_ID}


class CountedLock:
    """A lock that lets the first one in only when all wait for it or hold it."""

    def __init__(self) -> None:
        self._lock, self._all_are_here = threading.Lock(), threading.Barrier(THREADS)

    def __enter__(self) -> None:
        self._all_are_here.wait(TIMEOUT_S)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_threads_that_wait_for_a_connection_share_what_the_one_that_tried_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        connection = BrokerConnection(BrokerConnectionSettings(bootstrap_servers=(server,), request_timeout_s=0.5))
        monkeypatch.setattr(connection, "_opening", CountedLock())
        with ThreadPoolExecutor(THREADS) as pool:
            asked: list[Future[int]] = [pool.submit(ask, connection) for _ in range(THREADS)]
        assert {str(each.exception()) for each in asked} == {f"{server}: no answer within 0.5 s"}
        assert connection._openings == 1


def test_what_is_on_its_way_when_the_connection_is_closed_ends_and_opens_nothing() -> None:
    with (
        silence() as meanwhile,
        FakeKafka(meanwhile=meanwhile) as kafka,
        ThreadPoolExecutor(1) as pool,
        connected(kafka) as connection,
    ):
        silent = pool.submit(ask, connection, "silent")
        while not kafka.asked[LIST_OFFSETS]:
            time.sleep(0.01)  # noqa: TID251 - the fake broker's thread is waited for
        accepted = kafka.accepted
        connection.close()
        assert isinstance(silent.exception(TIMEOUT_S), BrokerUnavailable)
        assert (kafka.accepted, clients()) == (accepted, 0)
        assert ask(connection) == 1


@pytest.mark.parametrize(
    "server", ["kafka", "kafka:", ":9092", "kafka:0", "kafka:65536", "kafka:99999", "kafka:123456"]
)
def test_an_address_that_none_can_have_is_refused(server: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(server))):
        BrokerConnectionSettings(bootstrap_servers=("kafka:65535", "[::1]:1", server))
    assert BrokerConnectionSettings(bootstrap_servers=("kafka:65535", "[::1]:1")).is_configured
