"""Why a partition waits: values to decide on. `render` turns one into text, where a person reads it.

Two reasons are equal if they are the same wait. What may change while it lasts is not compared: figures, the text of an error, and
which of several transactions holds a segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias, assert_never

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
        "a compaction or split is in progress (.cleaned or .swap files). If the broker's cleaner is idle, one that failed "
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


@dataclass(frozen=True, slots=True)
class NotLeader:
    """Another broker leads the partition; None where its id is not known."""

    leader_id: int | None = None


@dataclass(frozen=True, slots=True)
class LeaderUnknown:
    """The cluster does not name a leader. `problem`: its answer."""

    problem: str


@dataclass(frozen=True, slots=True)
class StrayDirectory:
    """The directory belongs to a deleted topic of the same name."""

    directory_topic_id: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class BrokerAway:
    """The broker does not answer."""

    problem: str = field(compare=False)
    trouble: BrokerTrouble = BrokerTrouble.NO_ANSWER


@dataclass(frozen=True, slots=True)
class WrongCluster:
    """The broker that answers belongs to another cluster."""

    problem: str


@dataclass(frozen=True, slots=True)
class NoStableOffset:
    """This broker leads, and does not return its last stable offset under that leader epoch."""

    leader_epoch: int = field(compare=False)
    problem: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class OutsideLogDirs:
    """The partition lies in a directory that the settings do not name."""

    log_dir: str


@dataclass(frozen=True, slots=True)
class NotCheckpointed:
    """The broker's checkpoint files do not have the partition yet."""

    problem: str


@dataclass(frozen=True, slots=True)
class LineageUndecided:
    """The local log does not continue the archived one, and no segment has rolled: the next one may show that it does."""

    problem: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class BehindArchive:
    """The archive ends above the stable offsets of this broker: it has to catch up."""

    archived_end_offset: int
    stable_end_offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class NotContiguous:
    """A segment does not begin where the segment before it ends."""

    base_offset: int
    expected_offset: int


@dataclass(frozen=True, slots=True)
class AboveLastStableOffset:
    """The segment reaches above the last stable offset, where an open transaction begins."""

    base_offset: int
    last_stable_offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class AboveHighWatermark:
    """The segment reaches above the high watermark: in-sync replicas do not have all of it."""

    base_offset: int
    high_watermark: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class AboveCheckpoints:
    """The segment reaches above the high watermark and the recovery point that the broker wrote to its checkpoint files."""

    base_offset: int
    stable_end_offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class RecentlyChanged:
    """Files of the segment changed a moment ago."""

    base_offset: int
    settle_ms: int
    changed_ago_ms: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class SnapshotGrace:
    """The segment rolled a moment ago, and the broker writes its producer snapshot after the roll."""

    base_offset: int
    rolled_ago_ms: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The segment holds a transaction of which no end was found below the stable offsets."""

    base_offset: int
    producer_id: int = field(compare=False)
    first_offset: int = field(compare=False)
    stable_end_offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class AwaitingCompaction:
    """The settings want the segment compacted first. `is_next`: False while segments below it are to be archived before.

    `rule_unknown`: why it is not known by which rule, "" where it is.
    """

    base_offset: int
    is_next: bool
    rule_unknown: str = ""


Away: TypeAlias = BrokerAway | WrongCluster | Literal[Wait.BROKER_NOT_ASKED]
"""Why the broker cannot be asked."""

WaitReason: TypeAlias = (
    Wait
    | BrokerAway
    | WrongCluster
    | NotLeader
    | LeaderUnknown
    | StrayDirectory
    | NoStableOffset
    | OutsideLogDirs
    | NotCheckpointed
    | LineageUndecided
    | BehindArchive
    | NotContiguous
    | AboveLastStableOffset
    | AboveHighWatermark
    | AboveCheckpoints
    | RecentlyChanged
    | SnapshotGrace
    | OpenTransaction
    | AwaitingCompaction
)


def render(reason: WaitReason | None) -> str:
    """The reason in plain words; "" for None: nothing waits."""
    match reason:
        case None:
            return ""
        case Wait():
            return reason.value
        case NotLeader(None):
            return "this broker does not lead the partition"
        case NotLeader(leader_id):
            return f"this broker does not lead the partition: broker {leader_id} leads it"
        case LeaderUnknown(problem):
            return f"the cluster does not name the partition's leader: {problem}"
        case StrayDirectory(directory_topic_id, topic_id):
            return f"a stray directory of a deleted topic: its topic id is {directory_topic_id}, the cluster's topic has {topic_id}"
        case BrokerAway(problem):
            return f"the broker does not respond: {problem}"
        case WrongCluster(problem):
            return problem
        case NoStableOffset(leader_epoch, problem):
            return f"the leader does not return its last stable offset under leader epoch {leader_epoch}: {problem}"
        case OutsideLogDirs(log_dir):
            return f"{log_dir} is not one of the configured log directories"
        case NotCheckpointed(problem):
            return (
                f"the offset up to which the log is stable is unknown: {problem}. A running broker writes it within "
                "a minute. To archive a copy of a log dir, copy its checkpoint files, too"
            )
        case LineageUndecided(problem):
            return f"{problem}. No segment has rolled yet: the next one decides"
        case BehindArchive(archived_end_offset, stable_end_offset):
            return (
                f"the archive ends at offset {archived_end_offset}; on this broker only offsets below "
                f"{stable_end_offset} are stable. Archiving continues when this broker has caught up"
            )
        case NotContiguous(base_offset, expected_offset):
            return f"segment {base_offset} does not begin at offset {expected_offset}, where the segment before it ends"
        case AboveLastStableOffset(base_offset, last_stable_offset):
            return (
                f"segment {base_offset} reaches above the last stable offset {last_stable_offset}: a transaction that began "
                f"there is open"
            )
        case AboveHighWatermark(base_offset, high_watermark):
            return f"segment {base_offset} reaches above the high watermark {high_watermark}: in-sync replicas lack the rest"
        case AboveCheckpoints(base_offset, stable_end_offset):
            return (
                f"segment {base_offset} reaches above offset {stable_end_offset}, up to which the broker's "
                "checkpoint files call the log stable"
            )
        case RecentlyChanged(base_offset, settle_ms, changed_ago_ms):
            return (
                f"segment {base_offset} changed {changed_ago_ms // 1000} s ago; archiving waits until its files have not "
                f"changed for {settle_ms / 1000:g} s"
            )
        case SnapshotGrace(base_offset, rolled_ago_ms):
            return (
                f"segment {base_offset} rolled at least {rolled_ago_ms} ms ago, and the broker may still write its "
                "producer snapshot"
            )
        case OpenTransaction(base_offset, producer_id, first_offset, stable_end_offset):
            return (
                f"segment {base_offset} waits for a transaction of producer {producer_id}: open since offset {first_offset}, "
                f"no end found below offset {stable_end_offset}"
            )
        case AwaitingCompaction(base_offset, is_next=True, rule_unknown=unknown):
            why = f"; the topic's rule is not known: {unknown}" if unknown else ""
            return f"segment {base_offset} waits to be compacted before its upload{why}"
        case AwaitingCompaction(base_offset):
            return f"segment {base_offset} is compacted before its upload, once the segments below it are archived"
        case _:
            assert_never(reason)
