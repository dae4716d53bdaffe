"""What compaction counts and logs by topic: invalid records that it met, and segments that were archived without it."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final, Self

from sidecar.config import CompactionPolicy, CompactionWhen
from sidecar.event_log import EVENTS
from sidecar.model import SegmentFiles, TopicPartition

OF_ARCHIVE: Final = "the replaced segments still have these records, until gc deletes them after the grace period"
OF_COPIES: Final = (
    "the archive never had these records, so no undo brings them back; the broker has them until it deletes them"
)
MALFORMED: Final = "A record with a malformed version loses to each record of its key that has a valid one"
REMEDY: Final = (
    "correct the producer; compaction.on_unkeyed: refuse and compaction.strict: true refuse to compact such partitions"
)


@dataclass(slots=True)
class _TopicCounts:
    """Counts by topic since this process began. Thread-safe. `show`: takes what `/status` is to show under the name `part`."""

    part: ClassVar[str]
    show: Callable[[Mapping[str, Any]], None] = lambda _: None
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _by_topic: dict[str, Counter[str]] = field(default_factory=dict, init=False)

    def _add(self, topic: str, counts: Mapping[str, int]) -> None:
        with self._lock:
            self._by_topic.setdefault(topic, Counter()).update(counts)
        self.show({self.part: self.status()})

    def status(self) -> dict[str, dict[str, int]]:
        with self._lock:
            return {topic: dict(sorted(counts.items())) for topic, counts in sorted(self._by_topic.items())}


@dataclass(slots=True)
class InvalidRecords(_TopicCounts):
    """Counts and logs each commit with such records.

    `count`: called after each, with the records without a key, which are dropped, and those with a malformed version.
    """

    part: ClassVar[str] = "invalid_records"
    count: Callable[[int, int], None] = lambda _unkeyed, _malformed_versions: None

    def note(self, partition: TopicPartition, unkeyed: int, malformed_versions: int, effect: str) -> None:
        """A commit has replaced records of a partition, or archived copies of them. `effect`: what that means for dropped ones."""
        if not (unkeyed or malformed_versions):
            return
        self.count(unkeyed, malformed_versions)
        self._add(partition.topic, {"unkeyed": unkeyed, "malformed_versions": malformed_versions})
        EVENTS.warning(
            "compaction_unkeyed_or_malformed",
            partition=str(partition),
            unkeyed_dropped=unkeyed,
            malformed_versions=malformed_versions,
            effect=f"records without a key are dropped: {effect}. {MALFORMED}",
            remedy=REMEDY,
        )


EFFECT: Final = (
    "nothing is lost; the archive holds the records as the broker wrote them, until a compaction of the archive"
)


class RawReason(StrEnum):
    """Why a segment is archived as it is, as in the metric's label and in `/status`; `what` that means, and its remedy."""

    what: str
    remedy: str

    def __new__(cls, value: str, what: str, remedy: str) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.what, member.remedy = value, what, remedy
        return member

    DELAY_OVER = (
        "delay_over",
        "it waited for max_upload_delay_ms and was not compacted",
        "raise compaction.max_upload_delay_ms, give the sidecar more CPU, or use when: after_upload",
    )
    RETENTION_NEAR = (
        "retention_near",
        "the broker deletes it soon: half of the time from its last write to its deletion is over",
        "find out why it was archived so late, or raise the topic's retention.ms or retention.bytes",
    )
    TOO_LARGE = ("too_large", "it is larger than max_job_bytes", "raise compaction.max_job_bytes")
    TOO_YOUNG = (
        "min_compaction_lag",
        "it has records that are younger than min_compaction_lag_ms",
        "use when: after_upload for topics with a min_compaction_lag_ms",
    )
    OPEN_TRANSACTION = (
        "open_transaction",
        "the end of one of its transactions is not known yet",
        "none; if it stays so, check for hanging transactions",
    )
    RECORDS_DELETED = ("records_deleted", "records of it were deleted on the broker (DeleteRecords)", "nothing")
    PARTLY_ARCHIVED = ("partly_archived", "the archive already has a part of it", "nothing")
    COMPACTION_FAILED = ("compaction_failed", "it could not be compacted", "see the error")
    GROUP_CHANGED = (
        "group_changed",
        "the segments that it was compacted with have changed in the meantime",
        "none; if it stays so, see the detail",
    )
    GROUP_REFUSED = ("group_refused", "the compacted copies could not be committed together", "see the detail")
    RULE_CHANGED = (
        "rule_changed",
        "the topic's compaction rule changed after its segments were compacted",
        "none; segments that roll later follow the new rule",
    )
    RULE_UNKNOWN = (
        "rule_unknown",
        "the sidecar does not know the topic's configs, so it does not know whether and how to compact it",
        "see the detail; give the sidecar DescribeConfigs on the topic, and check that it reaches the broker",
    )
    STRATEGY_DIFFERS = (
        "strategy_differs",
        "the archive was compacted by another strategy, and neither the settings nor the topic's config give the strategy",
        "set strategy (for header also header) in the topic's entry of compaction.topics",
    )


BEFORE_UPLOAD_ADVICE: Final = "use when: after_upload for these topics, or change these values"


def before_upload_risk(policy: CompactionPolicy, max_upload_delay_ms: int) -> str:
    """Why `before_upload` cannot compact with these values, "" if it can. Pure."""
    if policy.when is not CompactionWhen.BEFORE_UPLOAD:
        return ""
    if not max_upload_delay_ms:
        return (
            "when: before_upload with max_upload_delay_ms 0: no segment waits, so all are archived without compaction"
        )
    if policy.min_compaction_lag_ms:
        return (
            f"when: before_upload with min_compaction_lag_ms {policy.min_compaction_lag_ms}: segments with younger records are "
            "archived without compaction"
        )
    return ""


@dataclass(slots=True)
class RawUploads(_TopicCounts):
    """Counts and logs each segment that goes as it is. `count`: called after each case, with its reason and its segments."""

    part: ClassVar[str] = "archived_without_compaction"
    count: Callable[[RawReason, int], None] = lambda _reason, _segments: None

    def note(self, segments: Sequence[SegmentFiles], reason: RawReason, detail: str = "") -> None:
        """These segments of one partition, ascending, go as they are."""
        if not segments:
            return
        topic_partition = segments[0].topic_partition
        self.count(reason, len(segments))
        self._add(topic_partition.topic, {str(reason): len(segments)})
        tell = EVENTS.error if reason is RawReason.COMPACTION_FAILED else EVENTS.warning
        tell(
            "archived_without_compaction",
            partition=str(topic_partition),
            base_offset=segments[0].base_offset,
            segments=len(segments),
            reason=str(reason),
            detail=f"{reason.what}: {detail}" if detail else reason.what,
            effect=EFFECT,
            remedy=reason.remedy,
        )
