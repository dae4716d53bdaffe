"""KIP-280's topic configs, reported by a broker that has them: asked for, believed, and shown with what wins over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.broker.cluster_view import TOPIC_RESOURCE
from sidecar.broker.connection import BrokerConnection
from sidecar.broker.topic_configs import TopicConfigs, ask_topics, resolve_policy
from sidecar.compactor.topic_rule import topic_rule
from sidecar.config import CompactionSettings, load_settings
from sidecar.runner import effective_policy as shown
from sidecar.topic_policy import TopicPolicy
from tests.fakes.manual_clock import ManualClock
from tests.golden import golden

KNOWN = {"cleanup.policy": "compact", "compaction.strategy": "header", "compaction.strategy.header": "seq"}


class Fork:
    """A broker that carries KIP-280. Like every broker, it leaves configs out of its answer that it does not know.

    `source`: where it has them from, as Kafka numbers it: 1 the topic, 4 its own properties, 5 the default.
    """

    def __init__(self, source: int = 1) -> None:
        self.source = source

    def send(self, request: Any, _node_id: int | None = None) -> Any:
        results = [
            SimpleNamespace(
                error_code=0,
                resource_name=resource.resource_name,
                configs=[
                    SimpleNamespace(name=name, value=KNOWN[name], config_source=self.source, is_sensitive=False)
                    for name in resource.configuration_keys
                    if name in KNOWN
                ],
            )
            for resource in request.resources
        ]
        return SimpleNamespace(results=results)


def reported(source: int = 1) -> TopicPolicy:
    found = ask_topics(cast("BrokerConnection", Fork(source)), ["orders"])
    return resolve_policy("orders", found.values["orders"], {}, ())


def test_the_configs_are_asked_for_and_believed() -> None:
    policy = reported()
    assert (policy.compaction_strategy, policy.compaction_strategy_header) == ("header", "seq")
    assert policy.origins["compaction_strategy"] == "topic"
    assert policy.origins["retention_ms"] == "not known"


@pytest.mark.parametrize(
    ("source", "name"),
    [(2, "broker, dynamic"), (3, "cluster, dynamic"), (4, "broker's properties"), (5, "Kafka's default")],
)
def test_what_a_broker_reports_as_its_own_default_counts_for_the_topic(source: int, name: str) -> None:
    """`log.cleaner.compaction.strategy` comes back under the topic config's name, with another source."""
    policy = reported(source)
    settings = CompactionSettings.model_validate({"topics": ["orders"]})
    rule = topic_rule(settings, "orders", policy)
    assert rule.policy is not None
    assert (rule.policy.strategy, rule.policy.header) == ("header", "seq")
    assert (rule.sources["strategy"], rule.sources["header"], rule.is_declared) == (name, name, True)


@pytest.mark.parametrize(
    ("entry", "strategy", "header"),
    [
        ({}, ("header", "topic"), ("seq", "topic")),
        (
            {"header": "v", "strategy": "header"},
            *[(value, "compaction.topics, entry orders") for value in ("header", "v")],
        ),
        ({"strategy": "timestamp"}, ("timestamp", "compaction.topics, entry orders"), ("", "topic")),
    ],
)
def test_the_effective_policy_names_what_wins(
    entry: dict[str, Any], strategy: tuple[str, str], header: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def facts(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(
            refresh=lambda: None, policy=lambda _topic: reported(), state=lambda: SimpleNamespace(away=None)
        )

    monkeypatch.setattr(shown, "open_facts", facts)
    flags = {
        "store.url": "memory://none",
        "broker.log_dirs": [str(golden("4.3.0") / "logs")],
        "compaction.topics": [{"pattern": "orders", **entry}],
    }
    values, _ = shown.effective_policy(load_settings(flags=flags).settings, "orders", ManualClock())
    assert values["compaction_strategy"] == {"value": "header", "source": "topic"}
    for name, (value, source) in (("strategy", strategy), ("header", header)):
        assert values[f"compaction.{name}"] == {"value": value, "source": source}


class Restarting(Fork):
    """Gives for topics what a test wants instead of an answer, and counts how often it is asked for them."""

    def __init__(self) -> None:
        super().__init__()
        self.error_code = 0
        self.asked = 0

    def send(self, request: Any, _node_id: int | None = None) -> Any:
        answer = super().send(request)
        if request.resources[0].resource_type == TOPIC_RESOURCE:
            self.asked += 1
            for result in answer.results:
                result.error_code = self.error_code
        return answer


UNKNOWN_TOPIC, TOPIC_DENIED = 3, 29


def test_a_topic_that_a_broker_does_not_know_for_a_moment_keeps_its_rule_and_is_asked_for_again() -> None:
    broker, clock, topics = Restarting(), ManualClock(), frozenset({"orders"})
    configs = TopicConfigs(cast("BrokerConnection", broker), [], 300, clock)
    configs.refresh(1, topics)
    known = configs.policy("orders")
    assert known.compaction_strategy == "header"
    broker.error_code = UNKNOWN_TOPIC
    clock.advance_ms(300_000)
    configs.refresh(1, topics)
    assert configs.policy("orders") == known
    configs.refresh(1, topics)
    assert (configs.policy("orders"), broker.asked) == (known, 3)
    broker.error_code = 0
    configs.refresh(1, topics)
    configs.refresh(1, topics)
    assert (configs.policy("orders"), broker.asked) == (known, 4)


def test_an_answer_is_kept_for_twice_its_age_at_most_and_not_where_the_right_to_it_is_gone() -> None:
    broker, clock, topics = Restarting(), ManualClock(), frozenset({"orders"})
    configs = TopicConfigs(cast("BrokerConnection", broker), [], 300, clock)
    configs.refresh(1, topics)
    broker.error_code = UNKNOWN_TOPIC
    for _ in range(2):
        assert configs.policy("orders").unanswered == ""
        clock.advance_ms(300_000)
        configs.refresh(1, topics)
        configs.refresh(1, topics)
    assert configs.policy("orders").unanswered == "UNKNOWN_TOPIC_OR_PARTITION"
    broker.error_code = 0
    clock.advance_ms(300_000)
    configs.refresh(1, topics)
    assert configs.policy("orders").unanswered == ""
    broker.error_code = TOPIC_DENIED
    clock.advance_ms(300_000)
    configs.refresh(1, topics)
    assert configs.policy("orders").unanswered.startswith("TOPIC_AUTHORIZATION_FAILED")
    assert len(configs.missing_rights(lambda _topic: True)) == 1
