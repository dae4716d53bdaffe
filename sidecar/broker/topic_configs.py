"""The configurations of topics as the broker told them last, with what the operator says over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sidecar.broker.cluster_view import BROKER_RESOURCE, TOPIC_RESOURCE, DescribedConfigs, ask_configs
from sidecar.broker.connection import BrokerConnection
from sidecar.broker.rights import RequestProblem, missing_right
from sidecar.broker.topic_policy import (
    BROKER_CONFIGS,
    INTERNAL_SEGMENT_BYTES,
    TOPIC_CONFIGS,
    ConfigValue,
    resolve_policy,
)
from sidecar.clock import Clock
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.topic_policy import NOT_TOLD, TopicPolicy, Unanswered


class TopicConfigs:
    """Asks for all topics when the answer has become old, and for new topics at once."""

    def __init__(
        self, connection: BrokerConnection, overrides: Sequence[TopicPolicySettings], max_age_s: float, clock: Clock
    ) -> None:
        """Asks nobody yet. Args: overrides: may change while they are used."""
        self._connection = connection
        self._overrides = overrides
        self._resolved_by: tuple[TopicPolicySettings, ...] = ()
        self._max_age_s = max_age_s
        self._clock = clock
        self._of_topics: dict[str, dict[str, ConfigValue]] = {}
        self._of_broker: dict[str, ConfigValue] = {}
        self._problems: dict[str, RequestProblem] = {}
        self._broker_problems: tuple[RequestProblem, ...] = ()
        self._asked: frozenset[str] = frozenset()
        self._kept: frozenset[str] = frozenset()
        self._asked_s: float | None = None
        self._policies: dict[str, TopicPolicy] = {}

    def refresh(self, broker_id: int, topics: frozenset[str]) -> None:
        """Ask for what is missing or old. Raises BrokerUnavailable.

        A broker that restarts may say for a moment that it does not know a topic. Its answer of before counts then, for one more
        `max_age_s` at most, and it is asked again with the next refresh.
        """
        now_s = self._clock.monotonic_s()
        is_old = self._asked_s is None or now_s - self._asked_s >= self._max_age_s
        wanted = topics if is_old else topics - self._asked
        if is_old:
            self._ask_broker(broker_id)
        if wanted:
            found = ask_topics(self._connection, sorted(wanted), broker_id)
            passing = {topic for topic, problem in found.problems.items() if not problem.is_denied}
            kept = passing & (self._of_topics.keys() - self._kept if is_old else self._of_topics.keys())
            of_before = {topic: told for topic, told in self._of_topics.items() if topic in kept or not is_old}
            problems = {topic: known for topic, known in self._problems.items() if not is_old and topic not in wanted}
            self._of_topics = of_before | dict(found.values)
            self._problems = problems | dict(found.problems)
            self._kept = frozenset(kept)
        if is_old or wanted:
            self._policies = {}
        self._asked = topics - self._kept
        self._asked_s = now_s if is_old else self._asked_s

    def _ask_broker(self, broker_id: int) -> None:
        keys = [kafka_name for kafka_name, _ in BROKER_CONFIGS.values()]
        name = str(broker_id)
        found = ask_configs(self._connection, broker_id, BROKER_RESOURCE, [name], keys)
        self._of_broker, self._broker_problems = found.values.get(name, {}), tuple(found.problems.values())

    def policy(self, topic: str) -> TopicPolicy:
        """What holds for a topic."""
        overrides = tuple(self._overrides)
        if overrides != self._resolved_by:
            self._policies, self._resolved_by = {}, overrides
        # Another thread may ask just while new answers come in: what it makes of the old ones goes with them.
        policies = self._policies
        found = policies.get(topic)
        if found is None:
            of_topic = self._of_topics.get(topic, {})
            unanswered = None if of_topic else why_unanswered(self._problems.get(topic))
            found = policies[topic] = resolve_policy(topic, of_topic, self._of_broker, overrides, unanswered=unanswered)
        return found

    def missing_rights(self, archives: Callable[[str], bool]) -> tuple[str, ...]:
        """A sentence for each kind of right that we lack on the cluster and on topics that are archived."""
        problems = [problem for topic, problem in self._problems.items() if archives(topic)]
        of_topics = missing_right(problems, "data at risk is not seen there, and nothing is compacted")
        of_broker = missing_right(self._broker_problems, "broker.producer_id_expiration_ms counts as it is set here")
        return (*of_topics, *of_broker)


def why_unanswered(problem: RequestProblem | None) -> Unanswered:
    """Why the configuration of a topic is not known. `problem`: the answer for it, None where there is none yet."""
    return NOT_TOLD if problem is None else Unanswered(str(problem))


def ask_topics(connection: BrokerConnection, topics: Sequence[str], node_id: int | None = None) -> DescribedConfigs:
    """The configurations of topics, of which any node knows. Raises BrokerUnavailable."""
    keys = [*(kafka_name for kafka_name, _ in TOPIC_CONFIGS.values()), INTERNAL_SEGMENT_BYTES]
    told = ask_configs(connection, node_id, TOPIC_RESOURCE, topics, keys)
    return DescribedConfigs({topic: _with_internal(values) for topic, values in told.values.items()}, told.problems)


def _with_internal(values: dict[str, ConfigValue]) -> dict[str, ConfigValue]:
    internal = values.pop(INTERNAL_SEGMENT_BYTES, None)
    return values if internal is None else {**values, "segment.bytes": internal}
