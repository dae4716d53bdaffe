"""The topic configs that the broker reported last, overridden by the operator's."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecar.broker.cluster_view import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigValue,
    DescribedConfigs,
    RequestProblem,
    ask_configs,
    missing_right,
)
from sidecar.broker.connection import BrokerConnection
from sidecar.clock import Clock
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.event_log import EVENTS
from sidecar.topic_policy import BROKER_CONFIGS, NOT_REPORTED, POLICY_NAMES, TOPIC_CONFIGS, TopicPolicy

NOT_KNOWN = "not known"


INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
"""Of brokers from 4.1 on, for tests: it wins over `segment.bytes`."""


@dataclass(eq=False)
class TopicConfigs:
    """Asks for all topics when the answer has become old, and for new topics at once. `overrides`: may change meanwhile."""

    connection: BrokerConnection
    overrides: Sequence[TopicPolicySettings]
    max_age_s: float
    clock: Clock
    _resolved_by: tuple[TopicPolicySettings, ...] = field(default=(), init=False)
    _of_topics: dict[str, dict[str, ConfigValue]] = field(default_factory=dict, init=False)
    _of_broker: Mapping[str, ConfigValue] = field(default_factory=dict, init=False)
    _problems: dict[str, RequestProblem] = field(default_factory=dict, init=False)
    _broker_problems: tuple[RequestProblem, ...] = field(default=(), init=False)
    _asked: frozenset[str] = field(default=frozenset(), init=False)
    _kept: frozenset[str] = field(default=frozenset(), init=False)
    _asked_s: float | None = field(default=None, init=False)
    _policies: dict[str, TopicPolicy] = field(default_factory=dict, init=False)

    def refresh(self, broker_id: int, topics: frozenset[str]) -> None:
        """Ask for what is missing or old. Raises BrokerUnavailable.

        A broker that restarts may say for a moment that it does not know a topic. Its answer of before counts then, for one more
        `max_age_s` at most, and it is asked again with the next refresh.
        """
        now_s = self.clock.monotonic_s()
        is_old = self._asked_s is None or now_s - self._asked_s >= self.max_age_s
        wanted = topics if is_old else topics - self._asked
        if is_old:
            keys, name = [kafka_name for kafka_name, _ in BROKER_CONFIGS.values()], str(broker_id)
            of_broker = ask_configs(self.connection, broker_id, BROKER_RESOURCE, [name], keys)
            self._of_broker, self._broker_problems = of_broker.values.get(name, {}), tuple(of_broker.problems.values())
        if wanted:
            found = ask_topics(self.connection, sorted(wanted), broker_id)
            passing = {topic for topic, problem in found.problems.items() if not problem.is_denied}
            kept = passing & (self._of_topics.keys() - self._kept if is_old else self._of_topics.keys())
            of_before = {topic: reported for topic, reported in self._of_topics.items() if topic in kept or not is_old}
            problems = {topic: known for topic, known in self._problems.items() if not is_old and topic not in wanted}
            self._of_topics = of_before | dict(found.values)
            self._problems = problems | dict(found.problems)
            self._kept = frozenset(kept)
        if is_old or wanted:
            self._policies = {}
        self._asked = topics - self._kept
        self._asked_s = now_s if is_old else self._asked_s

    def policy(self, topic: str) -> TopicPolicy:
        overrides = tuple(self.overrides)
        if overrides != self._resolved_by:
            self._policies, self._resolved_by = {}, overrides
        # Another thread may ask just while new answers come in: what it makes of the old ones goes with them.
        policies = self._policies
        found = policies.get(topic)
        if found is None:
            of_topic = self._of_topics.get(topic, {})
            unanswered = "" if of_topic else why_unanswered(self._problems.get(topic))
            found = policies[topic] = resolve_policy(topic, of_topic, self._of_broker, overrides, unanswered=unanswered)
        return found

    def missing_rights(self, archives: Callable[[str], bool]) -> tuple[str, ...]:
        """A sentence for each kind of right that we lack on the cluster and on topics that are archived."""
        problems = [problem for topic, problem in self._problems.items() if archives(topic)]
        of_topics = missing_right(problems, "data at risk is not reported for these topics, and they are not compacted")
        of_broker = missing_right(
            self._broker_problems, "the value of broker.producer_id_expiration_ms in the settings is used"
        )
        return (*of_topics, *of_broker)


def why_unanswered(problem: RequestProblem | None) -> str:
    """Why the configuration of a topic is not known. `problem`: the answer for it, None where there is none yet."""
    return NOT_REPORTED if problem is None else str(problem)


def ask_topics(connection: BrokerConnection, topics: Sequence[str], node_id: int | None = None) -> DescribedConfigs:
    """The configurations of topics, of which any node knows. Raises BrokerUnavailable."""
    keys = [*(kafka_name for kafka_name, _ in TOPIC_CONFIGS.values()), INTERNAL_SEGMENT_BYTES]
    reported = ask_configs(connection, node_id, TOPIC_RESOURCE, topics, keys)
    for values in reported.values.values():
        if INTERNAL_SEGMENT_BYTES in values:
            values["segment.bytes"] = values.pop(INTERNAL_SEGMENT_BYTES)
    return reported


def resolve_policy(
    topic: str,
    of_topic: Mapping[str, ConfigValue],
    of_broker: Mapping[str, ConfigValue],
    overrides: Sequence[TopicPolicySettings],
    *,
    unanswered: str = "",
) -> TopicPolicy:
    """The effective values for a topic, each with its origin.

    Args:
        of_topic, of_broker: the broker's values, by Kafka's names; empty where no broker was queried.
        overrides: of the operator; the first whose pattern matches the topic counts.
        unanswered: why the topic's are empty although a broker is asked.
    """
    values: dict[str, Any] = {}
    origins = {name: NOT_KNOWN if name in BROKER_CONFIGS else unanswered or NOT_KNOWN for name in POLICY_NAMES}
    for reported, names in ((of_topic, TOPIC_CONFIGS), (of_broker, BROKER_CONFIGS)):
        for name, (kafka_name, read) in names.items():
            found = reported.get(kafka_name)
            if found is None:
                continue
            try:
                values[name] = read(found.text)
            except ValueError:
                # Nothing of ours breaks because a broker has a value that no broker of today would accept.
                EVENTS.warning("topic_config_unknown_value", topic=topic, name=kafka_name, value=found.text)
                continue
            origins[name] = found.origin
    override = next((entry for entry in overrides if re.fullmatch(entry.pattern, topic)), None)
    overridden = {} if override is None else override.values
    for name, value in overridden.items():
        values[name] = TOPIC_CONFIGS[name][1](str(value)) if name == "cleanup_policy" else value
    if override is not None:
        origins |= dict.fromkeys(overridden, f"topics.policies, entry {override.pattern}")
    return TopicPolicy(**values, origins=origins, overridden=frozenset(overridden), unanswered=unanswered)
