"""Broker facts as the settings want them: from files alone, or from the broker, and with the ids that the operator gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from sidecar.broker.connection import BrokerConnection
from sidecar.broker.files import FileBrokerFacts
from sidecar.broker.live_facts import LiveBrokerFacts
from sidecar.broker.topic_configs import TopicConfigs
from sidecar.clock import Clock
from sidecar.config import Settings
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.ports import BrokerFacts


@contextmanager
def open_facts(
    settings: Settings, clock: Clock, policies: Sequence[TopicPolicySettings] | None = None
) -> Iterator[BrokerFacts]:
    """Facts of the local broker. The broker itself is queried at the first `refresh`.

    `policies`: a list of somebody who will change it. Default: `topics.policies`, for good.

    Raises SettingsError where cluster id or broker id are unknown, or the log dirs disagree.
    """
    broker = settings.broker
    overrides = settings.topics.policies if policies is None else policies
    files = FileBrokerFacts(
        broker.log_dirs,
        assume_leader=broker.assume_leader,
        policies=overrides,
        clock=clock,
        cluster_id=broker.cluster_id,
        broker_id=broker.broker_id,
    )
    files.cluster_id()
    broker_id = files.broker_id()
    if not broker.connection.is_configured:
        yield files
        return
    connection = BrokerConnection(broker.connection)
    configs = TopicConfigs(connection, overrides, broker.connection.config_max_age_s, clock)
    live = LiveBrokerFacts(files, connection, configs, broker_id, clock, settings.topics.accepts)
    with closing(live):
        yield live
