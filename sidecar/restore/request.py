"""What is to be restored, how, and what the cluster that will get the log says of the topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from sidecar.errors import SettingsError
from sidecar.topic_policy import TopicPolicy

if TYPE_CHECKING:
    from sidecar.broker.connection import BrokerConnection


@dataclass(frozen=True, slots=True)
class TargetCluster:
    """One topic in one cluster. `cluster_id`, `topic_id`: None where the brokers know none. `leader_epochs`: by partition.

    `policy`: the topic's configs, as far as they are known.
    """

    servers: str
    cluster_id: str | None
    topic_id: str | None
    leader_epochs: Mapping[int, int]
    policy: TopicPolicy = field(default_factory=TopicPolicy)


def ask_cluster(connection: BrokerConnection, topic: str) -> TargetCluster:
    """Raises SettingsError if the cluster has no such topic, BrokerUnavailable if no broker responds."""
    from sidecar.broker.cluster_view import describe_topics
    from sidecar.broker.topic_configs import ask_topics, resolve_policy

    view = describe_topics(connection, [topic])
    if topic in view.problems:
        raise SettingsError(
            f"--bootstrap-server {connection.servers}: the cluster cannot describe topic "
            f"{topic} ({view.problems[topic]}): create it there first, with as many partitions as the archive has"
        )
    epochs = {found.partition: leader.leader_epoch for found, leader in view.leaders.items()}
    reported = ask_topics(connection, [topic])
    unanswered = str(reported.problems.get(topic, ""))
    policy = resolve_policy(topic, reported.values.get(topic, {}), {}, (), unanswered=unanswered)
    return TargetCluster(connection.servers, view.cluster_id, view.topic_ids.get(topic), epochs, policy)


NO_TOPIC_ID_WANTED = "none"
"""A broker before 2.8: its directories have no `partition.metadata`."""

OPEN_END = 2**63 - 1
"""The end of a range that was given none."""


def shown_range(first_offset: int, end_offset: int) -> str:
    """As --offset-range has it."""
    return f"{first_offset}:{'' if end_offset == OPEN_END else end_offset}"


class LeaderEpochMode(StrEnum):
    """`KEEP`: batches and checkpoint as archived. `FLATTEN`: epoch 0 everywhere, for a target whose epochs are lower."""

    KEEP = "keep"
    FLATTEN = "flatten"


class ProducerStateMode(StrEnum):
    """`KEEP`: retries of old batches are recognised. `DROP`: for a cluster that assigns the same producer ids again."""

    KEEP = "keep"
    DROP = "drop"


class OpenTransactionMode(StrEnum):
    """`KEEP`: they stay open, and read_committed readers wait there. `ABORT`: markers are appended that end them."""

    KEEP = "keep"
    ABORT = "abort"


class DeletedRecordsMode(StrEnum):
    """Of records that DeleteRecords had removed on the broker. `LEAVE_OUT`: the log begins above them. `RESTORE`: with them."""

    LEAVE_OUT = "leave-out"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """One call of `restore`.

    `partitions`: empty for all that are archived. `offset_range`: first offset, and exclusive end. `until_timestamp_ms`: the
    log ends before the first batch with a record later than that. `topic_id`: NO_TOPIC_ID_WANTED for none; None: to be
    found. The modes are None where the target is to decide. `cluster_id`, `incarnation`: which of several archived
    histories. `cluster`: facts of the target's cluster, None if it was not queried. `other_log_dirs`: of the same broker, as far
    as they are known.
    """

    topic: str
    log_dir: Path
    partitions: tuple[int, ...] = ()
    offset_range: tuple[int, int] | None = None
    until_timestamp_ms: int | None = None
    topic_id: str | None = None
    leader_epochs: LeaderEpochMode | None = None
    producer_state: ProducerStateMode | None = None
    open_transactions: OpenTransactionMode = OpenTransactionMode.KEEP
    deleted_records: DeletedRecordsMode = DeletedRecordsMode.LEAVE_OUT
    cluster_id: str | None = None
    incarnation: str | None = None
    cluster: TargetCluster | None = None
    other_log_dirs: tuple[Path, ...] = ()

    @property
    def wanted_topic_id(self) -> str | None:
        """The given one, else the cluster's; NO_TOPIC_ID_WANTED where that has none; None if it is unknown."""
        if self.topic_id is not None or self.cluster is None:
            return self.topic_id
        return self.cluster.topic_id or NO_TOPIC_ID_WANTED


def shown_time(timestamp_ms: int) -> str:
    """In milliseconds and, where a calendar has it, in UTC."""
    try:
        iso = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{timestamp_ms} ({iso.removesuffix('+00:00')}Z)"
