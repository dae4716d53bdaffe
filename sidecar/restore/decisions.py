"""What the target demands: which topic id, whose leader epochs, whose producer state. Never a guess."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.archive.keys import is_id
from sidecar.errors import LineageUnknown, SettingsError
from sidecar.plurals import plural
from sidecar.restore.plan import PartitionPlan
from sidecar.restore.request import (
    NO_TOPIC_ID_WANTED,
    LeaderEpochMode,
    ProducerStateMode,
    RestoreRequest,
    TargetCluster,
)
from sidecar.restore.staging import STAGING_SUFFIX
from sidecar.restore.target import Place, Target


@dataclass(frozen=True, slots=True)
class Decisions:
    """How one partition is restored. `topic_id` None: no `partition.metadata` is written. `reason` is for people.

    `keeps_foreign_producers`: of another cluster than the target's, because that was asked for. `is_archived_topic`: as far as
    anything shows, a sidecar next to the target takes this archive for that of the restored log.
    """

    topic_id: str | None
    leader_epochs: LeaderEpochMode
    producer_state: ProducerStateMode
    reason: str = ""
    keeps_foreign_producers: bool = False
    is_archived_topic: bool = False


def decide(plan: PartitionPlan, target: Target, place: Place, request: RestoreRequest) -> Decisions:
    """Settle what the request leaves open. Raises SettingsError, LineageUnknown where it may not be guessed."""
    topic_id = _topic_id(plan, target, request)
    _require_cluster_agrees(plan, request)
    danger = _epoch_danger(plan, target, place, topic_id, request.cluster)
    epochs = _leader_epochs(plan, target, place, request, topic_id, danger)
    producers = _producer_state(plan, target, request, epochs)
    is_other = target.cluster_id not in {None, plan.state.lineage.cluster_id}
    return Decisions(
        topic_id,
        epochs,
        producers,
        danger,
        keeps_foreign_producers=is_other and producers is ProducerStateMode.KEEP,
        is_archived_topic=not is_other and topic_id == plan.state.topic_id,
    )


def _topic_id(plan: PartitionPlan, target: Target, request: RestoreRequest) -> str | None:
    given = request.wanted_topic_id
    settled = {name: found for name, found in target.topic_ids.items() if not name.endswith(STAGING_SUFFIX)}
    if given is not None:
        if given == NO_TOPIC_ID_WANTED:
            if target.is_kraft and request.topic_id is not None:
                raise SettingsError(
                    f"--topic-id none: {target.log_dir} is a KRaft broker's, where every topic has an id"
                )
            return None
        if not is_id(given):
            raise SettingsError(
                f"--topic-id {given}: expected the 22 characters that `kafka-topics.sh --describe` shows"
            )
        source, cure = "the cluster", "The directory is of a topic that was deleted: move it out of the log dir"
        if request.topic_id is not None:
            source, cure = "--topic-id", "Leave --topic-id out, or correct it"
        for name, found in settled.items():
            if found != given:
                raise LineageUnknown(
                    f"{target.log_dir / name}: partition.metadata says topic id {found}, {source} says {given}: a "
                    f"broker would rename one of them as stray. {cure}"
                )
        return given
    found_ids = set(settled.values()) or set(target.topic_ids.values())
    if len(found_ids) == 1:
        return found_ids.pop()
    if len(found_ids) > 1:
        raise LineageUnknown(
            f"{target.log_dir}: the directories of topic {request.topic} have different topic ids "
            f"({', '.join(sorted(found_ids))}). Give the one that the cluster has now: --topic-id ID"
        )
    if target.is_kraft is False:
        return None  # A ZooKeeper broker that knows ids writes the file itself.
    archived = plan.state.topic_id
    own = f"The archived topic's own id is {archived}: right if the cluster still has that topic. " if archived else ""
    raise SettingsError(
        f"{plan.topic_partition}: the topic id is unknown, and a KRaft broker renames a directory with another id "
        f"as stray. {own}Create the topic, read its TopicId with `kafka-topics.sh --describe`, stop the broker, and "
        "give --topic-id ID (--topic-id none for a broker before 2.8). Or name a running broker of the cluster: "
        "--bootstrap-server HOST:PORT"
    )


def _require_cluster_agrees(plan: PartitionPlan, request: RestoreRequest) -> None:
    """Raise SettingsError if the cluster has another topic id than was given, or fewer partitions than are restored."""
    cluster, number = request.cluster, plan.topic_partition.partition
    if cluster is None:
        return
    if request.topic_id not in {None, cluster.topic_id or NO_TOPIC_ID_WANTED}:
        raise SettingsError(
            f"--topic-id {request.topic_id}: in the cluster of {cluster.servers} the topic has id {cluster.topic_id}; leave "
            f"--topic-id out, or correct it"
        )
    if number not in cluster.leader_epochs:
        raise SettingsError(
            f"{plan.topic_partition}: in the cluster of {cluster.servers} the topic has only "
            f"{plural(len(cluster.leader_epochs), 'partition')}: add the others first, or give --partition"
        )


def _epoch_danger(
    plan: PartitionPlan, target: Target, place: Place, topic_id: str | None, cluster: TargetCluster | None
) -> str:
    """Why the target's leader epoch is, or may be, lower than what is archived; "" where nothing says so."""
    highest = plan.highest_leader_epoch
    archived = plan.state.lineage.cluster_id
    if highest <= 0:
        return ""
    if target.cluster_id is not None and target.cluster_id != archived:
        return (
            f"{target.log_dir} belongs to cluster {target.cluster_id}, the archive to {archived}: "
            f"its leader epochs start again at 0"
        )
    if topic_id is not None and plan.state.topic_id is not None and topic_id != plan.state.topic_id:
        return (
            f"the target's topic has id {topic_id}, the archived one {plan.state.topic_id}: it was re-created, and "
            "its leader epochs began again at 0"
        )
    led_under = _led_under(plan, cluster)
    if 0 <= led_under < highest:
        return f"the partition's leader epoch in the cluster is {led_under}, in the archive {highest}"
    if 0 <= place.leader_epoch < highest:
        return f"the empty log there has seen leader epoch {place.leader_epoch}, the archive {highest}"
    return ""


def _leader_epochs(
    plan: PartitionPlan, target: Target, place: Place, request: RestoreRequest, topic_id: str | None, danger: str
) -> LeaderEpochMode:
    if request.leader_epochs is LeaderEpochMode.KEEP and danger:
        raise SettingsError(
            f"{plan.topic_partition}: --leader-epochs keep is refused: {danger}. A leader with a lower epoch than "
            "the batches truncates the epoch history. Java consumers that commit such an epoch wait for ever after "
            "their next start. Use --leader-epochs flatten"
        )
    if request.leader_epochs is not None:
        return request.leader_epochs
    if danger:
        return LeaderEpochMode.FLATTEN
    if target.cluster_id is None:
        raise SettingsError(
            f"{plan.topic_partition}: {target.log_dir} does not say which cluster it is for (no meta.properties): "
            f"give --leader-epochs keep if it is for {plan.state.lineage.cluster_id}, the archive's cluster, "
            "otherwise --leader-epochs flatten"
        )
    knows_ids = topic_id is not None and plan.state.topic_id is not None
    leads_under = max(_led_under(plan, request.cluster), place.leader_epoch)
    if plan.highest_leader_epoch > 0 and not knows_ids and leads_under < 0:
        raise SettingsError(
            f"{plan.topic_partition}: without topic ids it is unknown whether the topic was re-created, whose "
            f"leader epochs begin at 0 (the archive has {plan.highest_leader_epoch}). Give --leader-epochs keep if "
            "it is still the archived topic, otherwise --leader-epochs flatten. Or name a running broker: "
            "--bootstrap-server HOST:PORT"
        )
    return LeaderEpochMode.KEEP


def _led_under(plan: PartitionPlan, cluster: TargetCluster | None) -> int:
    return -1 if cluster is None else cluster.leader_epochs[plan.topic_partition.partition]


def _producer_state(
    plan: PartitionPlan, target: Target, request: RestoreRequest, epochs: LeaderEpochMode
) -> ProducerStateMode:
    if request.producer_state is not None:
        return request.producer_state
    kept = epochs is LeaderEpochMode.KEEP  # Nothing else shows that it is the same cluster.
    same = kept if target.cluster_id is None else target.cluster_id == plan.state.lineage.cluster_id
    return ProducerStateMode.KEEP if same else ProducerStateMode.DROP
