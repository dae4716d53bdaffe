"""What one look at a cluster says of one partition."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.broker.cluster_view import ClusterView, LeaderView, PartitionOffset, require_broker
from sidecar.broker.files import FileBrokerFacts
from sidecar.broker.live_facts import OTHERS_ASKED_MAX, LiveBrokerFacts, _facts_of, _Look
from sidecar.broker.topic_configs import ConfigValue, resolve_policy
from sidecar.config.topic_policy import CleanupPolicy, TopicPolicySettings
from sidecar.errors import BrokerUnavailable
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import render
from tests.fakes.manual_clock import ManualClock

ORDERS = TopicPartition("orders", 0)
ID, OTHER_ID = "ASNFZ4mrze_-3LqYdlQyEA", "AAAAAAAAAAAAAAAAAAAAAQ"
FROM_FILES = PartitionFacts(ORDERS, ID, False, -1, 0, 7)


def a_look(leader: LeaderView | None, stable: PartitionOffset | None, topic_id: str | None = ID) -> _Look:
    cluster = ClusterView(
        "abc",
        frozenset({1, 2}),
        {} if leader is None else {ORDERS: leader},
        {} if topic_id is None else {"orders": topic_id},
        {"orders": "TOPIC_AUTHORIZATION_FAILED"} if leader is None else {},
    )
    return _Look(cluster, {} if stable is None else {ORDERS: stable})


def files_with(topic_id: str | None) -> PartitionFiles:
    return PartitionFiles(ORDERS, Path("/logs"), Path("/logs/orders-0"), topic_id, (), 0, (), False)


@pytest.mark.parametrize(
    ("look", "leads", "reason"),
    [
        (a_look(LeaderView(1, 4), PartitionOffset(90)), True, ""),
        (a_look(LeaderView(1, 4), PartitionOffset(90), topic_id=None), True, ""),
        (a_look(LeaderView(2, 4), None), False, "broker 2 leads"),
        (a_look(LeaderView(-1, 4), None), False, "no leader now"),
        (a_look(LeaderView(1, 4), PartitionOffset(-1, "FENCED_LEADER_EPOCH")), False, "FENCED_LEADER_EPOCH"),
        (a_look(LeaderView(1, 4), None), False, "no answer"),
        (a_look(None, None), False, "TOPIC_AUTHORIZATION_FAILED"),
        (a_look(LeaderView(1, 4), PartitionOffset(90), topic_id=OTHER_ID), False, "stray directory"),
    ],
)
def test_nothing_is_led_that_cluster_and_leader_do_not_agree_on(look: _Look, leads: bool, reason: str) -> None:
    found = _facts_of(look, 1, files_with(ID), FROM_FILES)
    assert found.leads == leads
    assert reason in render(found.reason)
    assert (found.reason is None) == leads
    assert found.stable_end_offset == (90 if leads else 0)
    assert found.transactions_decided == leads


def test_a_transaction_holds_what_is_stable_below_the_high_watermark() -> None:
    look = a_look(LeaderView(1, 4), PartitionOffset(90))
    reported = {mark: _facts_of(look, 1, files_with(ID), FROM_FILES, mark).transaction_open for mark in (0, 89, 90, 91)}
    assert reported == {0: False, 89: False, 90: False, 91: True}


def test_a_directory_without_an_id_takes_the_clusters() -> None:
    found = _facts_of(a_look(LeaderView(1, 4), PartitionOffset(90)), 1, files_with(None), FROM_FILES)
    assert (found.leads, found.topic_id, found.leader_epoch) == (True, ID, 4)


def test_a_broker_that_the_cluster_does_not_count_as_alive_is_away() -> None:
    with pytest.raises(BrokerUnavailable, match=r"broker 3 is not among the live brokers of its cluster \(1, 2\)"):
        require_broker(a_look(LeaderView(1, 4), None).cluster, 3)


def test_the_operator_wins_over_the_broker_and_every_value_has_an_origin() -> None:
    reported = {
        "cleanup.policy": ConfigValue("compact, delete", "topic"),
        "retention.ms": ConfigValue("1000", "broker's properties"),
        "segment.bytes": ConfigValue("many", "topic"),
    }
    entries = [
        TopicPolicySettings(pattern="other", retention_ms=1),
        TopicPolicySettings(pattern="ord.*", retention_ms=2, cleanup_policy=CleanupPolicy.DELETE),
        TopicPolicySettings(pattern="orders", retention_ms=3),
    ]
    plain = resolve_policy("orders", reported, {}, ())
    assert (plain.cleanup_policy, plain.retention_ms, plain.segment_bytes) == ({"compact", "delete"}, 1000, None)
    assert plain.origins["retention_ms"] == "broker's properties"
    assert plain.origins["segment_bytes"] == "not known"
    over = resolve_policy("orders", reported, {}, entries)
    assert (over.cleanup_policy, over.retention_ms) == ({"delete"}, 2)
    assert over.origins["retention_ms"] == "topics.policies, entry ord.*"


class OthersAreGone:
    """A connection over which only one node answers."""

    servers = "127.0.0.1:9092"

    def __init__(self) -> None:
        self.asked: list[tuple[int | None, bool]] = []

    def send(self, _request: Any, node_id: int | None = None, *, spare: bool = False) -> Any:
        self.asked.append((node_id, spare))
        if node_id != 1:
            raise BrokerUnavailable("no answer")
        return SimpleNamespace(topics=(), brokers=(), cluster_id="abc")


def test_the_one_beside_us_is_asked_once_some_others_did_not_answer(tmp_path: Path) -> None:
    connection = OthersAreGone()
    facts = LiveBrokerFacts(FileBrokerFacts([tmp_path]), connection, None, 1, ManualClock())  # type: ignore[arg-type]
    facts._look = _Look(ClusterView("abc", frozenset(range(1, 100)), {}, {}))
    assert facts._elsewhere("orders").cluster_id == "abc"
    *others, own = connection.asked
    assert (len(set(others)), {spare for _, spare in others}, own) == (OTHERS_ASKED_MAX, {True}, (1, False))
    facts._elsewhere("orders")
    assert len(set(connection.asked)) == 2 * OTHERS_ASKED_MAX + 1  # others than before
