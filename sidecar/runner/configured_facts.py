"""Broker facts as the settings want them: from files alone, or from the broker, and with the ids that the operator gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sidecar.broker.connection import BrokerConnection
from sidecar.broker.files import FileBrokerFacts
from sidecar.broker.live_facts import LiveBrokerFacts
from sidecar.broker.topic_configs import TopicConfigs
from sidecar.clock import Clock
from sidecar.config import Settings
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.model import PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.ports import BrokerFacts, FactsState
from sidecar.topic_policy import TopicPolicy


class ConfiguredFacts:
    """Broker facts with the ids that the operator gave instead of those in `meta.properties`."""

    def __init__(self, facts: BrokerFacts, cluster_id: str | None, broker_id: int | None) -> None:
        self._facts = facts
        self._cluster_id = cluster_id
        self._broker_id = broker_id

    def cluster_id(self) -> str:
        """See `BrokerFacts`."""
        return self._cluster_id if self._cluster_id is not None else self._facts.cluster_id()

    def broker_id(self) -> int:
        """See `BrokerFacts`."""
        return self._broker_id if self._broker_id is not None else self._facts.broker_id()

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        """See `BrokerFacts`."""
        return self._facts.partition(files)

    def confirm(self, files: PartitionFiles) -> PartitionFacts:
        """See `BrokerFacts`."""
        return self._facts.confirm(files)

    def policy(self, topic: str) -> TopicPolicy:
        """See `BrokerFacts`."""
        return self._facts.policy(topic)

    def topics(self) -> frozenset[str] | None:
        """See `BrokerFacts`."""
        return self._facts.topics()

    def state(self) -> FactsState:
        """See `BrokerFacts`."""
        return self._facts.state()

    def refresh(self) -> None:
        """See `BrokerFacts`."""
        self._facts.refresh()


@contextmanager
def open_facts(
    settings: Settings, clock: Clock, policies: Sequence[TopicPolicySettings] | None = None
) -> Iterator[BrokerFacts]:
    """Facts of the broker beside us. The broker itself is asked at the first `refresh`.

    Args:
        policies: a list of somebody who will change it. Default: `topics.policies`, for good.

    Raises SettingsError where cluster id or broker id are unknown, or the log dirs disagree.
    """
    broker = settings.broker
    overrides = settings.topics.policies if policies is None else policies
    files = FileBrokerFacts(broker.log_dirs, assume_leader=broker.assume_leader, policies=overrides, clock=clock)
    configured = ConfiguredFacts(files, broker.cluster_id, broker.broker_id)
    configured.cluster_id()
    broker_id = configured.broker_id()
    if not broker.connection.is_configured:
        yield configured
        return
    connection = BrokerConnection(broker.connection)
    configs = TopicConfigs(connection, overrides, broker.connection.config_max_age_s, clock)
    live = LiveBrokerFacts(files, connection, configs, broker_id, clock, settings.topics.accepts)
    try:
        yield ConfiguredFacts(live, broker.cluster_id, broker_id)
    finally:
        live.close()
