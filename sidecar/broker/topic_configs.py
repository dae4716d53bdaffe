"""The configurations of topics as the broker told them last, with what the operator says over them."""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.broker.cluster_view import BROKER_RESOURCE, TOPIC_RESOURCE, describe_configs
from sidecar.broker.connection import BrokerConnection
from sidecar.broker.topic_policy import (
    BROKER_CONFIGS,
    INTERNAL_SEGMENT_BYTES,
    TOPIC_CONFIGS,
    ConfigValue,
    resolve_policy,
)
from sidecar.clock import Clock
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.model import TopicPolicy


class TopicConfigs:
    """Asks for all topics when the answer has become old, and for new topics at once."""

    def __init__(
        self, connection: BrokerConnection, overrides: Sequence[TopicPolicySettings], max_age_s: float, clock: Clock
    ) -> None:
        self._connection = connection
        self._overrides = tuple(overrides)
        self._max_age_s = max_age_s
        self._clock = clock
        self._of_topics: dict[str, dict[str, ConfigValue]] = {}
        self._of_broker: dict[str, ConfigValue] = {}
        self._asked: frozenset[str] = frozenset()
        self._asked_s: float | None = None
        self._policies: dict[str, TopicPolicy] = {}

    def refresh(self, broker_id: int, topics: frozenset[str]) -> None:
        """Ask for what is missing or old. Raises BrokerUnavailable."""
        now_s = self._clock.monotonic_s()
        is_old = self._asked_s is None or now_s - self._asked_s >= self._max_age_s
        wanted = topics if is_old else topics - self._asked
        if is_old:
            keys = [kafka_name for kafka_name, _ in BROKER_CONFIGS.values()]
            found = describe_configs(self._connection, broker_id, BROKER_RESOURCE, [str(broker_id)], keys)
            self._of_broker = found.get(str(broker_id), {})
        if wanted:
            keys = [*(kafka_name for kafka_name, _ in TOPIC_CONFIGS.values()), INTERNAL_SEGMENT_BYTES]
            told = describe_configs(self._connection, broker_id, TOPIC_RESOURCE, sorted(wanted), keys)
            kept = {} if is_old else self._of_topics
            self._of_topics = kept | {topic: _with_internal(values) for topic, values in told.items()}
        if is_old or wanted:
            self._policies = {}
        self._asked = topics
        self._asked_s = now_s if is_old else self._asked_s

    def policy(self, topic: str) -> TopicPolicy:
        """What holds for a topic."""
        found = self._policies.get(topic)
        if found is None:
            of_topic = self._of_topics.get(topic, {})
            found = self._policies[topic] = resolve_policy(topic, of_topic, self._of_broker, self._overrides)
        return found


def _with_internal(values: dict[str, ConfigValue]) -> dict[str, ConfigValue]:
    internal = values.pop(INTERNAL_SEGMENT_BYTES, None)
    return values if internal is None else {**values, "segment.bytes": internal}
