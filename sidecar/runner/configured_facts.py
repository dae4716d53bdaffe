"""Broker facts as the settings want them: from files alone, or from the broker, and with the ids that the operator gave."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from sidecar.broker.client import FIRST_SERVER
from sidecar.broker.connection import BrokerConnection
from sidecar.broker.files import FileBrokerFacts
from sidecar.broker.live_facts import LiveBrokerFacts
from sidecar.broker.topic_configs import TopicConfigs
from sidecar.broker.unseen_replicas import ADVICE, unseen_replicas
from sidecar.clock import Clock
from sidecar.config import Settings
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.errors import BrokerUnavailable, LogDirsUnformatted
from sidecar.event_log import EVENTS
from sidecar.ports import BrokerFacts
from sidecar.reporting.advice import META_PROPERTIES_ADVICE


@contextmanager
def open_facts(
    settings: Settings, clock: Clock, policies: Sequence[TopicPolicySettings] | None = None
) -> Iterator[BrokerFacts]:
    """Facts of the local broker. The broker itself is queried at the first `refresh`.

    `policies`: a list of somebody who will change it. Default: `topics.policies`, for good.

    Raises SettingsError where the log dirs disagree, LogDirsUnformatted where cluster id or broker id are unknown; it says so if
    the broker has replicas all the same.
    """
    broker = settings.broker
    overrides = settings.topics.policies if policies is None else policies
    files = FileBrokerFacts(
        broker.log_dirs,
        assume_leader=broker.assume_leader,
        policies=overrides,
        clock=clock,
        given_cluster_id=broker.cluster_id,
        given_broker_id=broker.broker_id,
    )
    with unformatted_explained(settings):
        files.cluster_id()
        broker_id = files.broker_id()
    for file in files.files_without_ids():
        EVENTS.warning("meta_properties_without_ids", file=file, action=META_PROPERTIES_ADVICE)
    if not broker.connection.is_configured:
        yield files
        return
    connection = BrokerConnection(broker.connection)
    configs = TopicConfigs(connection, overrides, broker.connection.config_max_age_s, clock)
    live = LiveBrokerFacts(files, connection, configs, broker_id, clock, settings.topics.filter.accepts)
    with closing(live):
        yield live


@contextmanager
def unformatted_explained(settings: Settings) -> Iterator[None]:
    """LogDirsUnformatted says so if the first server, the local broker, has replicas: then its volume is not mounted here."""
    try:
        yield
    except LogDirsUnformatted as error:
        raise LogDirsUnformatted(f"{error}{_on_the_first_server(settings)}") from error


def _on_the_first_server(settings: Settings) -> str:
    broker = settings.broker
    if not broker.connection.is_configured:
        return ""
    with closing(BrokerConnection(broker.connection)) as connection:
        try:
            unseen = unseen_replicas(connection, FIRST_SERVER, broker.log_dirs, settings.topics.filter.accepts)
        except BrokerUnavailable:
            return ""
    return (
        f"; {broker.connection.bootstrap_servers[0]}: {unseen}. If that is the local broker, {ADVICE}" if unseen else ""
    )
