"""What the target demands: which topic id, whose leader epochs, whose producer state. Never a guess.

Also what is noted of a finished directory until the whole command is through: whose wish it is, and its files. A later run that
finds it trusts nothing less: its name would also fit another wish, and a broker may have been at it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sidecar.archive.keys import is_id
from sidecar.errors import LineageUnknown, SettingsError
from sidecar.host.log_dir_lock import LogDirRefused
from sidecar.logformat.names import STAGING_SUFFIX, directory_name
from sidecar.plurals import plural
from sidecar.restore.plan import PartitionPlan
from sidecar.restore.request import (
    NO_TOPIC_ID_WANTED,
    LeaderEpochMode,
    ProducerStateMode,
    RestoreRequest,
    TargetCluster,
    shown_range,
)
from sidecar.restore.staging import NOTE_SUFFIX
from sidecar.restore.target import Place, Restored, Target


@dataclass(frozen=True, slots=True)
class Decisions:
    """How one partition is restored. `topic_id` None: no `partition.metadata` is written. `reason` is for people.

    `keeps_foreign_producers`: the topic is another one than the archived one, or of another cluster, and that was asked for.
    `is_archived_topic`: as far as anything shows, a sidecar next to the target takes this archive for that of the restored log.
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
    # Of a topic with another id even the cluster may be another one: formatted again with the old cluster id.
    created_again = len({topic_id, plan.state.topic_id} - {None}) > 1
    producers = _producer_state(plan, target, request, epochs, created_again=created_again)
    is_other = target.cluster_id not in {None, plan.state.lineage.cluster_id}
    return Decisions(
        topic_id,
        epochs,
        producers,
        danger,
        keeps_foreign_producers=(is_other or created_again) and producers is ProducerStateMode.KEEP,
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
    if 0 <= (led_under := _led_under(plan, cluster)) < highest:
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
    led_under = max(_led_under(plan, request.cluster), place.leader_epoch)
    if plan.highest_leader_epoch > 0 > led_under and not knows_ids:
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
    plan: PartitionPlan, target: Target, request: RestoreRequest, epochs: LeaderEpochMode, *, created_again: bool
) -> ProducerStateMode:
    if request.producer_state is not None:
        return request.producer_state
    kept = epochs is LeaderEpochMode.KEEP  # Nothing else shows that it is the same cluster.
    same = kept if target.cluster_id is None else target.cluster_id == plan.state.lineage.cluster_id
    return ProducerStateMode.KEEP if same and not created_again else ProducerStateMode.DROP


def asked_for(request: RestoreRequest) -> dict[str, Any]:
    """What of the wish decides the bytes, besides segments and modes."""
    return {
        "offset_range": None if request.offset_range is None else list(request.offset_range),
        "until_timestamp_ms": request.until_timestamp_ms,
        "open_transactions": str(request.open_transactions),
        "deleted_records": str(request.deleted_records),
    }


def seal_of(decisions: Decisions, request: RestoreRequest, plan: PartitionPlan, files: Mapping[str, int]) -> Restored:
    """For the note. `files`: sizes in bytes by name."""
    return Restored(
        topic_id=decisions.topic_id,
        leader_epochs=decisions.leader_epochs,
        producer_state=decisions.producer_state,
        asked=asked_for(request),
        identities=tuple(found.identity for found in plan.segments),
        end_offset=plan.end_offset,
        files=dict(files),
    )


def decided_before(
    plan: PartitionPlan, target: Target, earlier: Restored, request: RestoreRequest
) -> tuple[PartitionPlan, Decisions]:
    """The plan and the decisions of the run that finished this directory, if it was of the same wish and nothing has changed.

    What has been archived since is not in it: the plan is cut to what it was.

    Raises LogDirRefused if they differ, and as `decide` does.
    """
    directory = target.log_dir / directory_name(plan.topic_partition)
    if problem := _changed(directory, earlier) or _unlike(plan, request, earlier):
        raise _refused(directory, problem)
    # The empty log that was asked for its epochs is gone: what it led to stays decided, and is refused where it is dangerous.
    modes = replace(request, leader_epochs=earlier.leader_epochs, producer_state=earlier.producer_state)
    decisions = decide(plan, target, Place(), modes)
    if decisions.topic_id != earlier.topic_id:
        raise _refused(directory, f"was restored with the topic id {earlier.topic_id or NO_TOPIC_ID_WANTED}")
    kept = plan.segments[: len(earlier.identities)]
    lost = tuple(hole for hole in plan.lost if hole.base_offset < earlier.end_offset)
    return replace(plan, segments=kept, lost=lost, lost_to_offset=earlier.end_offset), decisions


def _refused(directory: Path, problem: str) -> LogDirRefused:
    return LogDirRefused(
        f"{directory}: is not empty: an earlier restore completed it, and it {problem}. Nothing is ever overwritten. "
        f"If you want that log, nothing is left to do. Otherwise move this directory out of the log dir, or name the others "
        f"with --partition"
    )


def _changed(directory: Path, earlier: Restored) -> str:
    files = {path.name: path.stat().st_size for path in directory.iterdir() if path.suffix != NOTE_SUFFIX}
    for name in sorted(files.keys() | earlier.files.keys()):
        before, now = earlier.files.get(name), files.get(name)
        if before != now:
            return f"was changed since, by a broker or a person ({name}: {_size(now)}, when restored {_size(before)})"
    return ""


def _size(size_bytes: int | None) -> str:
    return "no such file" if size_bytes is None else f"{size_bytes} bytes"


def _unlike(plan: PartitionPlan, request: RestoreRequest, earlier: Restored) -> str:
    asked = asked_for(request)
    for name, wanted in asked.items():
        if earlier.asked.get(name) != wanted:
            flag = "until-timestamp" if name == "until_timestamp_ms" else name.replace("_", "-")
            return f"was restored with another --{flag} ({_shown(earlier.asked.get(name))}, now {_shown(wanted)})"
    if request.leader_epochs not in {None, earlier.leader_epochs}:
        return f"was restored with --leader-epochs {earlier.leader_epochs}"
    if request.producer_state not in {None, earlier.producer_state}:
        return f"was restored with --producer-state {earlier.producer_state}"
    # What was archived since may follow.
    found = tuple(found.identity for found in plan.segments[: len(earlier.identities)])
    if not found or found != earlier.identities:
        return (
            "was restored from other archived segments: from another archive, or before a compaction or a new segment"
        )
    return ""


def _shown(value: object) -> str:
    match value:
        case [int() as first_offset, int() as end_offset]:
            return shown_range(first_offset, end_offset)
        case None:
            return "none"
    return str(value)
