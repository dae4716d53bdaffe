"""Names that Kafka gives to partition directories and to the files in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from sidecar.model import TopicPartition

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
STAGING_SUFFIX = ".restoring"
"""Of our own directories: a partition whose restore is not finished."""
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPIC_PREFIX = "__"

MAX_OFFSET = 2**63 - 1
MAX_PARTITION = 2**31 - 1
MAX_TOPIC_CHARACTERS = 249

_FILE = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)")
_SWAP = re.compile(r"[0-9]{20}\.(?:log|index|timeindex|txnindex)\.swap")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_RENAMED = re.compile(r"(.+)\.[0-9a-f]{32}-(delete|stray|future)")


class Suffix(StrEnum):
    """What a file of a partition directory holds. Source: LogFileUtils."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    SNAPSHOT = "snapshot"


_SUFFIXES: Final = {suffix.value: suffix for suffix in Suffix}
"""A start reads ten thousands of names, and finding a member by its value is two calls."""


class DirectoryState(StrEnum):
    """What a partition directory is for, by the end of its name."""

    LIVE = "live"
    DELETE = "delete"
    STRAY = "stray"
    FUTURE = "future"


class OffsetFileName(NamedTuple):
    """A name of 20 digits and a suffix. For a snapshot `offset` is the exclusive end of what it covers."""

    offset: int
    suffix: Suffix


@dataclass(frozen=True, slots=True)
class DirectoryName:
    """A directory name of a log dir. The topic of a deleted or stray one may have lost its end."""

    topic_partition: TopicPartition
    state: DirectoryState


def file_name(offset: int, suffix: Suffix) -> str:
    """The name of a file with 20 digits, `offset` in `[0, 2**63)`. Source: LogFileUtils.filenamePrefixFromOffset."""
    if not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"offset {offset} cannot be part of a file name")
    return f"{offset:020d}.{suffix.value}"


def parse_file_name(name: str) -> OffsetFileName | None:
    """Offset and suffix; None for every other name, including the renamed ones that a broker is about to remove."""
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    digits, suffix = found.groups()
    offset = int(digits)
    return None if offset > MAX_OFFSET else OffsetFileName(offset, _SUFFIXES[suffix])


def is_swap(name: str) -> bool:
    """Whether the file is about to replace segments, after a compaction or split.

    While it is written it is `.cleaned`: the segments are what they were. Source: LocalLog.replaceSegments.
    """
    return _SWAP.fullmatch(name) is not None


def directory_name(topic_partition: TopicPartition) -> str:
    """The name of a live partition directory. Source: UnifiedLog.logDirName."""
    return str(topic_partition)


def parse_directory_name(name: str) -> DirectoryName | None:
    """The partition that a directory of a log dir belongs to, None if it is no partition directory.

    The partition number follows the last '-', since topics may contain it. Source: LocalLog.parseTopicPartitionName.
    """
    renamed = _RENAMED.fullmatch(name)
    topic, dash, partition = (renamed[1] if renamed else name).rpartition("-")
    # A number with leading zeros would give one partition two names; no broker writes it.
    if not dash or _PARTITION.fullmatch(partition) is None or int(partition) > MAX_PARTITION:
        return None
    if _TOPIC.fullmatch(topic) is None or len(topic) > MAX_TOPIC_CHARACTERS or topic in {".", ".."}:
        return None
    state = DirectoryState(renamed[2]) if renamed else DirectoryState.LIVE
    return DirectoryName(TopicPartition(topic, int(partition)), state)


def live_partition(name: str) -> TopicPartition | None:
    """Whose live directory has this name, None for another name, and for one that is being moved or deleted."""
    found = parse_directory_name(name)
    return found.topic_partition if found and found.state is DirectoryState.LIVE else None


def is_internal_topic(topic: str) -> bool:
    """Whether the topic belongs to Kafka itself, by the convention of two leading underscores."""
    return topic.startswith(INTERNAL_TOPIC_PREFIX)
