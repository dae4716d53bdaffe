"""Names of everything in the archive: a partition's lineage, and the objects below it.

::

    <cluster id>/<topic>/<partition>/<incarnation>/
        segments/<20d base offset>-<segment id>.log
        segments/<20d base offset>-<segment id>.indexes
        commits/<20d number>.json
        checkpoints/<20d number>.json
"""

import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field

from sidecar.errors import SettingsError
from sidecar.model import ObjectKey, TopicPartition
from sidecar.randomness import Randomness

NO_TOPIC_ID = "0"
"""Incarnation of a partition whose topic id was unknown when it was first archived."""

SEGMENTS = "segments/"
COMMITS = "commits/"
CHECKPOINTS = "checkpoints/"
LOG_SUFFIX = ".log"
INDEXES_SUFFIX = ".indexes"
JSON_SUFFIX = ".json"

ID_BYTES = 16
OFFSET_MAX = 2**63 - 1
RESERVED_IDS = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ"})

RESERVED_FOLDERS = frozenset({"_probe", "staging"})
"""They lie next to those of the clusters: of probes, and of compactions on a cluster. What is old there is deleted."""
_NAME_RULE = "use letters, digits, '.', '_' and '-'"
CLUSTER_ID_RULE = f"{_NAME_RULE}, but not {' or '.join(sorted(RESERVED_FOLDERS))} alone"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]", re.ASCII)
_SEGMENT = re.compile(rf"segments/([0-9]{{20}})-({_ID.pattern})\.(log|indexes)", re.ASCII)
_NUMBERED = re.compile(r"(commits|checkpoints)/([0-9]{20})\.json", re.ASCII)


def is_name(text: str) -> bool:
    """Whether this can be a topic or a cluster id. Source: Topic.validate, Apache Kafka."""
    return _NAME.fullmatch(text) is not None and text not in {".", ".."}


def is_cluster_id(text: str) -> bool:
    """Whether this can be a cluster id: not the name of a folder that lies next to those of the clusters."""
    return is_name(text) and text not in RESERVED_FOLDERS


def is_id(text: str) -> bool:
    """Whether this is a 22-character id: URL-safe base64 of 16 bytes without padding, as Kafka's Uuid prints it."""
    return _ID.fullmatch(text) is not None


def id_of(sixteen_bytes: bytes) -> str:
    """As Kafka prints a UUID. Source: Uuid.toString, Apache Kafka."""
    return urlsafe_b64encode(sixteen_bytes).decode("ascii").rstrip("=")


def fresh_id(randomness: Randomness) -> str:
    """A random id that does not begin with '-' and is not reserved. Source: Uuid.randomUuid, Apache Kafka."""
    while True:
        text = id_of(randomness.random_bytes(ID_BYTES))
        if not text.startswith("-") and text not in RESERVED_IDS:
            return text


@dataclass(frozen=True, slots=True, order=True)
class Lineage:
    """One continuous history of one partition. `incarnation` is the topic id, or `0` where that was unknown at first.

    `root`: key prefix of the lineage, without '/' at the end.
    """

    cluster_id: str
    topic_partition: TopicPartition
    incarnation: str
    root: ObjectKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not is_cluster_id(self.cluster_id):
            raise SettingsError(f"cluster id {self.cluster_id!r} is not allowed in an object key: {CLUSTER_ID_RULE}")
        if not is_name(self.topic_partition.topic):
            raise SettingsError(f"topic {self.topic_partition.topic!r} is not allowed in an object key: {_NAME_RULE}")
        if self.incarnation != NO_TOPIC_ID and not is_id(self.incarnation):
            raise SettingsError(f"incarnation {self.incarnation!r} is neither a 22-character topic id nor '0'")
        if not 0 <= self.topic_partition.partition < 2**31:
            raise SettingsError(f"{self.topic_partition}: partition number out of range")
        partition = self.topic_partition
        root = ObjectKey(f"{self.cluster_id}/{partition.topic}/{partition.partition}/{self.incarnation}")
        object.__setattr__(self, "root", root)  # It is asked for all the time.

    def __str__(self) -> str:
        return self.root


def parse_root(root: str) -> Lineage:
    """The lineage whose root this is. Raises SettingsError for anything else."""
    elements = root.strip("/").split("/")
    if len(elements) != 4 or not _PARTITION.fullmatch(elements[2]):
        raise SettingsError(f"{root!r} is not a lineage: expected <cluster id>/<topic>/<partition>/<incarnation>")
    cluster_id, topic, partition, incarnation = elements
    return Lineage(cluster_id, TopicPartition(topic, int(partition)), incarnation)


def partition_prefix(cluster_id: str, topic_partition: TopicPartition) -> str:
    """Prefix below which a partition's lineages lie, with '/' at the end."""
    return f"{cluster_id}/{topic_partition.topic}/{topic_partition.partition}/"


def is_partition_folder(name: str) -> bool:
    """Whether a folder name is a partition number in canonical decimal form."""
    return _PARTITION.fullmatch(name) is not None and int(name) < 2**31


def is_incarnation_folder(name: str) -> bool:
    return name == NO_TOPIC_ID or is_id(name)


def below(root: str, relative: str) -> ObjectKey:
    """The full key of something below a lineage."""
    return ObjectKey(f"{root}/{relative}")


def log_key(base_offset: int, segment_id: str) -> ObjectKey:
    """Key of a segment's `.log` object, relative to its lineage."""
    return ObjectKey(f"{SEGMENTS}{base_offset:020d}-{segment_id}{LOG_SUFFIX}")


def indexes_key(base_offset: int, segment_id: str) -> ObjectKey:
    """Key of a segment's `.indexes` object, relative to its lineage."""
    return ObjectKey(f"{SEGMENTS}{base_offset:020d}-{segment_id}{INDEXES_SUFFIX}")


def commit_key(number: int) -> ObjectKey:
    """Key of commit `number`, relative to its lineage."""
    return ObjectKey(f"{COMMITS}{number:020d}{JSON_SUFFIX}")


def checkpoint_key(number: int) -> ObjectKey:
    """Key of the checkpoint that holds the state after commit `number`, relative to its lineage."""
    return ObjectKey(f"{CHECKPOINTS}{number:020d}{JSON_SUFFIX}")


@dataclass(frozen=True, slots=True)
class SegmentObject:
    base_offset: int
    segment_id: str
    suffix: str


def parse_segment_key(relative: str) -> SegmentObject | None:
    """Read a key relative to its lineage; None if it is not one of ours."""
    match = _SEGMENT.fullmatch(relative)
    if match is None or int(match[1]) > OFFSET_MAX:
        return None
    return SegmentObject(int(match[1]), match[2], f".{match[3]}")


def parse_number(relative: str) -> int | None:
    """The number of a commit or checkpoint, from its key relative to its lineage; None if it is not one of ours."""
    match = _NUMBERED.fullmatch(relative)
    return int(match[2]) if match and int(match[2]) <= OFFSET_MAX else None
