"""Why a partition waits: values to decide on. `render` turns one into text, where a person reads it.

Two reasons are equal if they are the same wait. What may change while it lasts is not compared: figures, the text of an error, and
which of several transactions holds a segment.
"""

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import ClassVar, Literal, TypeAlias

from sidecar.errors import BrokerTrouble


class Wait(Enum):
    """Reasons without parameters, and their texts."""

    NO_LEADER = "the partition has no leader now"
    LEADERSHIP_NOT_ON_DISK = (
        "it is unknown whether this broker leads the partition: files do not say. Give --bootstrap-server to query "
        "brokers, or --assume-leader if it leads or no other sidecar archives its replicas"
    )
    BROKER_NOT_ASKED = "the broker has not responded yet"
    CLEANER_RUNNING = (
        "a compaction or split is replacing segments (.swap files). If the broker's cleaner is idle, one that failed "
        "left these files, and a restart of the broker removes or completes them"
    )
    NOT_ADMITTED = "the upload queue is full; it continues when the queue has room"
    TASK_OVER = "the copy task used its time slice; the next task continues"
    DRAINING = "the process is stopping"
    ACTIVE_SEGMENT_IDLE = (
        "the active segment is idle, and retention deletes it soon. A new record delays that by retention.ms. A record "
        "written segment.ms after the first one makes the segment roll, and it is archived"
    )
    ACTIVE_SEGMENT_PINNED = (
        "the active segment is idle, and retention deletes it soon. The sidecar pinned the file and archives it then"
    )

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Because:
    """A reason with parameters. `text`: its words, with the names of the fields."""

    text: ClassVar[str]

    def __str__(self) -> str:
        return self.text.format(**asdict(self))


@dataclass(frozen=True, slots=True)
class NotLeader(Because):
    """Another broker leads the partition; None where its id is not known."""

    text: ClassVar = "this broker does not lead the partition: broker {leader_id} leads it"
    leader_id: int | None = None

    def __str__(self) -> str:
        return Because.__str__(self) if self.leader_id is not None else "this broker does not lead the partition"


@dataclass(frozen=True, slots=True)
class LeaderUnknown(Because):
    """`problem`: the cluster's answer."""

    text: ClassVar = "the cluster does not name the partition's leader: {problem}"
    problem: str


@dataclass(frozen=True, slots=True)
class StrayDirectory(Because):
    text: ClassVar = (
        "a stray directory of a deleted topic: its topic id is {directory_topic_id}, the cluster's topic has {topic_id}"
    )
    directory_topic_id: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class BrokerAway(Because):
    text: ClassVar = "the broker does not respond: {problem}"
    problem: str = field(compare=False)
    trouble: BrokerTrouble = BrokerTrouble.NO_ANSWER


@dataclass(frozen=True, slots=True)
class WrongCluster(Because):
    """The broker that answers belongs to another cluster."""

    text: ClassVar = "{problem}"
    problem: str


@dataclass(frozen=True, slots=True)
class NoStableOffset(Because):
    """This broker leads, and does not return its last stable offset under that leader epoch."""

    text: ClassVar = "the leader does not return its last stable offset under leader epoch {leader_epoch}: {problem}"
    leader_epoch: int = field(compare=False)
    problem: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class OutsideLogDirs(Because):
    text: ClassVar = "{log_dir} is not one of the configured log directories"
    log_dir: str


@dataclass(frozen=True, slots=True)
class NotCheckpointed(Because):
    """The broker's checkpoint files do not have the partition yet."""

    text: ClassVar = (
        "the offset up to which the log is stable is unknown: {problem}. A running broker writes it within "
        "a minute. To archive a copy of a log dir, copy its checkpoint files, too"
    )
    problem: str


@dataclass(frozen=True, slots=True)
class LineageUndecided(Because):
    """The local log does not continue the archived one, and no segment has rolled: the next one may show that it does."""

    text: ClassVar = "{problem}. No segment has rolled yet: the next one decides"
    problem: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class BehindArchive(Because):
    text: ClassVar = (
        "the archive ends at offset {archived_end_offset}; on this broker only offsets below "
        "{stable_end_offset} are stable. Archiving continues when this broker has caught up"
    )
    archived_end_offset: int
    stable_end_offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class NotContiguous(Because):
    text: ClassVar = (
        "segment {base_offset} does not begin at offset {expected_offset}, where the segment before it ends"
    )
    base_offset: int
    expected_offset: int


@dataclass(frozen=True, slots=True)
class AboveLastStableOffset(Because):
    text: ClassVar = (
        "segment {base_offset} reaches above the last stable offset {last_stable_offset}: a transaction that began "
        "there is open"
    )
    base_offset: int
    last_stable_offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class DeletedBelowLogStart(Because):
    """A leader raises its last stable offset to its log start, also while a transaction is open that began below."""

    text: ClassVar = (
        "segment {base_offset} was deleted, and the last stable offset is the log start {log_start_offset}: the next "
        "record of the partition shows whether a transaction is open. Write one if the partition is idle"
    )
    base_offset: int
    log_start_offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class AboveHighWatermark(Because):
    text: ClassVar = (
        "segment {base_offset} reaches above the high watermark {high_watermark}: in-sync replicas lack the rest"
    )
    base_offset: int
    high_watermark: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class AboveCheckpoints(Because):
    """`stable_end_offset`: the high watermark or the recovery point, as the broker wrote it to its files."""

    text: ClassVar = (
        "segment {base_offset} reaches above offset {stable_end_offset}, up to which the broker's "
        "checkpoint files call the log stable"
    )
    base_offset: int
    stable_end_offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class RecentlyChanged(Because):
    base_offset: int
    settle_ms: int
    changed_ago_ms: int = field(compare=False)

    def __str__(self) -> str:
        return (
            f"segment {self.base_offset} changed {self.changed_ago_ms // 1000} s ago; archiving waits until its files have "
            f"not changed for {self.settle_ms / 1000:g} s"
        )


@dataclass(frozen=True, slots=True)
class SnapshotGrace(Because):
    text: ClassVar = (
        "segment {base_offset} rolled at least {rolled_ago_ms} ms ago, and the broker may still write its "
        "producer snapshot"
    )
    base_offset: int
    rolled_ago_ms: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class OpenTransaction(Because):
    text: ClassVar = (
        "segment {base_offset} waits for a transaction of producer {producer_id}: open since offset {first_offset}, "
        "no end found below offset {stable_end_offset}"
    )
    base_offset: int
    producer_id: int = field(compare=False)
    first_offset: int = field(compare=False)
    stable_end_offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class AwaitingCompaction(Because):
    """The settings want the segment compacted first. `is_next`: False while segments below it are to be archived before.

    `rule_unknown`: why it is not known by which rule, "" where it is.
    """

    base_offset: int
    is_next: bool
    rule_unknown: str = ""

    def __str__(self) -> str:
        if not self.is_next:
            return f"segment {self.base_offset} is compacted before its upload, once the segments below it are archived"
        why = f"; the topic's rule is not known: {self.rule_unknown}" if self.rule_unknown else ""
        return f"segment {self.base_offset} waits to be compacted before its upload{why}"


NotStable: TypeAlias = AboveLastStableOffset | DeletedBelowLogStart | AboveHighWatermark | AboveCheckpoints
"""The segment reaches above the offsets that are known to be stable."""

Away: TypeAlias = BrokerAway | WrongCluster | Literal[Wait.BROKER_NOT_ASKED]
"""Why the broker cannot be asked."""

WaitReason: TypeAlias = Wait | Because


def render(reason: WaitReason | None) -> str:
    """The reason in plain words; "" for None: nothing waits."""
    return "" if reason is None else str(reason)
