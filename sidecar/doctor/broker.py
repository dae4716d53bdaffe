"""The local broker: whether it responds, whether these are its log dirs, and which permissions it grants."""

import socket
from dataclasses import dataclass, field

from sidecar.broker.cluster_view import (
    BROKER_RESOURCE,
    ClusterView,
    ask_configs,
    ask_producers,
    describe_topics,
    list_offsets,
    missing_right,
    replicas_by_log_dir,
    require_broker,
)
from sidecar.broker.connection import BrokerConnection
from sidecar.broker.files import FileBrokerFacts
from sidecar.broker.topic_configs import ask_topics
from sidecar.broker.unseen_replicas import ADVICE, unseen_replicas
from sidecar.clock import Clock
from sidecar.config import Settings
from sidecar.doctor.findings import Check, Outcome, fine, not_checked, problem, warning
from sidecar.errors import BrokerUnavailable, SettingsError
from sidecar.logformat.files import topics_of
from sidecar.model import TopicPartition
from sidecar.plurals import plural
from sidecar.runner.configured_facts import unformatted_explained

_CONNECT_S_MAX = 5.0
_SHOWN_MAX = 3


@dataclass(slots=True)
class _Look:
    settings: Settings
    clock: Clock
    connection: BrokerConnection
    topics: list[str] = field(default_factory=list)
    broker_id: int = -1
    cluster: ClusterView = field(init=False)
    led: dict[TopicPartition, int] = field(default_factory=dict)

    def reach(self) -> Outcome:
        limit_s = min(self.settings.broker.connection.request_timeout_s, _CONNECT_S_MAX)
        servers = self.settings.broker.connection.bootstrap_servers
        refused = []
        for server in servers:
            host, _, port = server.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), limit_s).close()
            except OSError as error:
                refused.append(f"{server}: {error.strerror or error}")
        if len(refused) == len(servers):
            advice = "start the broker, or check broker.connection.bootstrap_servers and the network"
            return problem("; ".join(refused), advice, BrokerUnavailable.exit_code)
        if refused:
            return warning(
                "; ".join(refused), "the other servers are used; correct broker.connection.bootstrap_servers"
            )
        return fine(f"{', '.join(servers)} {'take' if len(servers) > 1 else 'takes'} connections")

    def identity(self) -> Outcome:
        broker = self.settings.broker
        files = FileBrokerFacts(broker.log_dirs, clock=self.clock, given_broker_id=broker.broker_id)
        with unformatted_explained(self.settings):
            self.broker_id = files.broker_id()
        on_disk = files.cluster_id_on_disk()
        self.topics = sorted(name for name in topics_of(broker.log_dirs) if self.settings.topics.filter.accepts(name))
        self.cluster = describe_topics(self.connection, self.topics)
        if on_disk is not None and self.cluster.cluster_id not in {None, on_disk}:
            return problem(
                f"the servers belong to cluster {self.cluster.cluster_id}, the log dirs to cluster {on_disk}",
                "correct broker.connection.bootstrap_servers or broker.log_dirs",
                SettingsError.exit_code,
            )
        require_broker(self.cluster, self.broker_id)
        return fine(
            f"broker {self.broker_id} of cluster {self.cluster.cluster_id}, {len(self.cluster.broker_ids)} live"
        )

    def replicas(self) -> Outcome:
        reported = replicas_by_log_dir(self.connection, self.broker_id)
        if not reported:
            return not_checked("the broker reports its log dirs only with Describe on the cluster")
        broker = self.settings.broker
        if unseen := unseen_replicas(
            self.connection, self.broker_id, broker.log_dirs, self.settings.topics.filter.accepts
        ):
            return problem(unseen, ADVICE, SettingsError.exit_code)
        return fine(
            f"{plural(sum(map(len, reported.values())), 'replica')} in {', '.join(sorted(reported))} of the broker"
        )

    def leaders(self) -> Outcome:
        cluster = self.cluster
        if denied := missing_right(cluster.problems.values(), "they are not archived"):
            return problem(denied[0], exit_code=BrokerUnavailable.exit_code)
        if cluster.problems:
            named = [f"{topic}: {words}" for topic, words in sorted(cluster.problems.items())[:_SHOWN_MAX]]
            what = f"{len(cluster.problems)} of {plural(len(self.topics), 'topic')} not described, such as {'; '.join(named)}"
            return warning(what, "directories of deleted topics are not archived")
        leaders = cluster.leaders.items()
        self.led = {tp: leader.leader_epoch for tp, leader in leaders if leader.leader_id == self.broker_id}
        detail = (
            f"leader of {len(self.led)} of {plural(len(cluster.leaders), 'partition')} of "
            f"{plural(len(self.topics), 'topic')} here"
        )
        if self.topics and not self.led:
            return warning(
                detail, "nothing is archived here while other brokers are the leaders: their sidecars archive"
            )
        return fine(detail)

    def offsets(self) -> Outcome:
        answered = list_offsets(self.connection, self.broker_id, self.led)
        refused = {tp: found.problem for tp, found in answered.items() if found.problem}
        if refused:
            tp, words = next(iter(refused.items()))
            what = f"the broker did not return {len(refused)} of {len(answered)} last stable offsets, such as {tp}: {words}"
            return warning(what, "leadership may be moving: run doctor again")
        return fine(f"the broker returned the last stable offsets of {plural(len(answered), 'partition')}")

    def configs(self) -> Outcome:
        name = str(self.broker_id)
        of_broker = ask_configs(self.connection, self.broker_id, BROKER_RESOURCE, [name], ["log.retention.ms"])
        of_topics = ask_topics(self.connection, self.topics, self.broker_id)
        problems = [*of_topics.problems.values(), *of_broker.problems.values()]
        effect = "data at risk is not reported, nor a stalled log cleaner"
        asked = (of_topics.problems.values(), of_broker.problems.values())
        if denied := [words for answered in asked for words in missing_right(answered, effect)]:
            return warning("; ".join(denied), "or set the values in topics.policies")
        if problems:
            return warning(str(problems[0]), "ask again")
        return fine(f"read for the broker and {plural(len(of_topics.values), 'topic')}")

    def producers(self) -> Outcome:
        if not self.led:
            return not_checked("this broker is leader of no partition")
        first = next(iter(self.led))
        found = ask_producers(self.connection, self.broker_id, [first])
        if found is None:
            return fine("brokers before 2.8 do not report it; nothing depends on it")
        if first in found.problems:
            return fine("not returned without READ on the topic; only the command `broker` shows them")
        return fine(f"{len(found.values.get(first, ()))} of {first}")


def broker_checks(settings: Settings, clock: Clock) -> list[Check]:
    """What can be queried from the broker; one line where no broker is configured."""
    connection = settings.broker.connection
    if not connection.is_configured:
        why = "broker.assume_leader" if settings.broker.assume_leader else "no broker.connection.bootstrap_servers"
        return [Check("answers", lambda: not_checked(f"{why}: no broker is queried"))]
    look = _Look(settings, clock, BrokerConnection(connection))
    return [
        Check("takes connections", look.reach),
        Check("responds as the local broker", look.identity, ("takes connections",)),
        Check("has no replica that is not seen here", look.replicas, ("responds as the local broker",)),
        Check("reports leaders", look.leaders, ("responds as the local broker",)),
        Check("reports stable offsets", look.offsets, ("reports leaders",)),
        Check("reports topic configs", look.configs, ("responds as the local broker",)),
        Check("live producers", look.producers, ("reports leaders",)),
    ]
