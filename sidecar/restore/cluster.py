"""What the cluster that will get the restored log says of the topic: a broker of it is asked, another than the stopped one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecar.errors import SettingsError
from sidecar.topic_policy import TopicPolicy, Unanswered

if TYPE_CHECKING:
    from sidecar.broker.connection import BrokerConnection


@dataclass(frozen=True, slots=True)
class TargetCluster:
    """One topic in one cluster. `cluster_id`, `topic_id`: None where the brokers know none. `leader_epochs`: by partition.

    `policy`: the topic's configuration, as far as it was told.
    """

    servers: str
    cluster_id: str | None
    topic_id: str | None
    leader_epochs: Mapping[int, int]
    policy: TopicPolicy = field(default_factory=TopicPolicy)


def ask_cluster(connection: BrokerConnection, topic: str) -> TargetCluster:
    """Raises SettingsError if the cluster has no such topic, BrokerUnavailable if nobody answers."""
    from sidecar.broker.cluster_view import describe_topics
    from sidecar.broker.topic_configs import ask_topics, resolve_policy

    view = describe_topics(connection, [topic])
    if topic in view.problems:
        raise SettingsError(
            f"--bootstrap-server {connection.servers}: the cluster cannot describe topic {topic} ({view.problems[topic]}): create "
            f"it there first, with as many partitions as are archived"
        )
    epochs = {found.partition: leader.leader_epoch for found, leader in view.leaders.items()}
    told = ask_topics(connection, [topic])
    unanswered = Unanswered(str(problem)) if (problem := told.problems.get(topic)) else None
    policy = resolve_policy(topic, told.values.get(topic, {}), {}, (), unanswered=unanswered)
    return TargetCluster(connection.servers, view.cluster_id, view.topic_ids.get(topic), epochs, policy)
