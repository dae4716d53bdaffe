"""What becomes of one partition, and what the cluster's retention will delete of it soon."""

from dataclasses import asdict, dataclass, field
from itertools import accumulate, takewhile

from sidecar.archive.bundle import log_size_bytes
from sidecar.model import TopicPartition
from sidecar.restore.decisions import Decisions
from sidecar.restore.finishing import FinishedLog
from sidecar.restore.plan import PartitionPlan, SegmentPlan
from sidecar.topic_policy import TopicPolicy


@dataclass(frozen=True, slots=True)
class Foretold:
    """What retention does to a restored log: at a broker's start it deletes the first `segments`, all below `end_offset`.

    `end_offset`: None where it deletes nothing then. `next_ms`: when, by age alone, the first segment goes that is left; None for
    never, or for none left.
    """

    segments: int = 0
    end_offset: int | None = None
    next_ms: int | None = None


def foretold(plan: PartitionPlan, policy: TopicPolicy, now_ms: int) -> Foretold:
    """What a broker with this policy does that starts at `now_ms`. Pure."""
    count = deleted_at_start(plan, policy, now_ms)
    end_offset = plan.segments[count - 1].end_offset if count else None
    left, limit_ms = plan.segments[count:], _limit(policy, policy.retention_ms)
    if not left or limit_ms is None:
        return Foretold(count, end_offset)
    largest_ms = _largest_ms(left[0])
    return Foretold(count, end_offset, (now_ms if largest_ms < 0 else largest_ms) + limit_ms + 1)


def deleted_at_start(plan: PartitionPlan, policy: TopicPolicy, now_ms: int) -> int:
    """How many segments, from the first on, a broker with this policy deletes at `now_ms`. Pure.

    By size from the start, as long as what is left fills the limit; then by time from there, as long as the segments' largest
    timestamps are too old. A segment without timestamps has the age of its file, which is new. Local limits of tiered topics do
    not count: what is deleted by them has been copied before. How much stays of a cut segment is not known, and counts for nothing.
    For one that is cut at its start that makes no difference. Below a cut end at least this is deleted.
    Source: UnifiedLog.deleteOldSegments, deleteRetentionSizeBreachedSegments, deleteRetentionMsBreachedSegments.
    """
    count, limit_bytes, limit_ms = 0, _limit(policy, policy.retention_bytes), _limit(policy, policy.retention_ms)
    if limit_bytes is not None:
        sizes_bytes = [0 if found.is_cut else log_size_bytes(found.segment) for found in plan.segments]
        over_bytes = sum(sizes_bytes) - limit_bytes
        count = sum(end_bytes <= over_bytes for end_bytes in accumulate(sizes_bytes))
    if limit_ms is not None:
        too_old = takewhile(lambda found: 0 <= _largest_ms(found) < now_ms - limit_ms, plan.segments[count:])
        count += sum(1 for _ in too_old)
    return count


def _limit(policy: TopicPolicy, limit: int | None) -> int | None:
    """One of the policy's limits; None where nothing is deleted by it."""
    deletes = policy.cleanup_policy is None or "delete" in policy.cleanup_policy
    return limit if deletes and limit is not None and limit >= 0 else None


def _largest_ms(found: SegmentPlan) -> int:
    """-1 where its records have no timestamps."""
    largest_ms = found.segment.max_timestamp_ms
    return largest_ms if found.until_timestamp_ms is None else min(largest_ms, found.until_timestamp_ms)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A partition without a plan: its history cannot be read from the archive, or it is not clear which of several is meant.

    `lineage`: its root, "" where it is not clear.
    """

    topic_partition: TopicPartition
    lineage: str
    problem: str

    def to_json(self) -> dict[str, object]:
        """As of an outcome; what only a plan has is null."""
        unknown = dict.fromkeys(
            (
                "start_offset",
                "end_offset",
                "archive_end_offset",
                "empty_before_timestamp_ms",
                "topic_id",
                "leader_epochs",
                "producer_state",
                "deleted_before_offset",
                "producers_blank_below",
                "compacted",
                "retention_deletes_before_offset",
                "retention_deletes_next_ms",
            )
        )
        return {
            **asdict(self.topic_partition),
            "lineage": self.lineage or None,
            "state": "stopped",
            "segments": 0,
            "segments_resumed": 0,
            "bytes": 0,
            **unknown,
            "end_offset_is_upper_bound": False,
            "reason": "",
            "lost": [],
            "open_transactions": [],
            "open_transactions_aborted": False,
            "unsettled_transactions": [],
            "problem": self.problem,
        }


@dataclass(slots=True)
class PartitionOutcome:
    """What was planned, decided, and what came of it. `problem`: why the partition was not restored, "" if it was.

    `is_done`: an earlier run of the command restored it. `segments_resumed`: those that an earlier run had fetched.
    `log` is None until it is restored. `empty_before_ms`: nothing archived of it is as old as the time that was asked for; the
    first batch reaches up to this one. `retention`: what the topic's makes a broker delete of it, nothing where it is not known.
    """

    plan: PartitionPlan
    decisions: Decisions
    is_done: bool = False
    segments_resumed: int = 0
    log: FinishedLog | None = None
    problem: str = ""
    empty_before_ms: int | None = None
    retention: Foretold = field(default_factory=Foretold)

    @property
    def end_is_bound(self) -> bool:
        """Whether the end is only the highest that it can be: a time's place in its segment shows when that is fetched."""
        return self.log is None and self.plan.segments[-1].until_timestamp_ms is not None

    @property
    def archive_goes_on_from(self) -> int | None:
        """Where the log ends, or at most, if its own archive has offsets above it; None where it has not."""
        if not self.decisions.is_archived_topic:
            return None
        end_offset = self.log.added_from_offset if self.log else self.plan.end_offset
        is_part = end_offset < (self.plan.state.end_offset or 0) or self.end_is_bound
        return end_offset if is_part else None

    @property
    def segments(self) -> tuple[SegmentPlan, ...]:
        """Those with records in the log. An empty log has only the producers and leader epochs of one."""
        log, plan = self.log, self.plan
        start, end = (log.start_offset, log.added_from_offset) if log else (plan.start_offset, plan.end_offset)
        is_empty = start >= end or self.empty_before_ms is not None
        return () if is_empty else plan.segments

    @property
    def size_bytes(self) -> int:
        return sum(plan.size_bytes for plan in self.segments)

    def to_json(self) -> dict[str, object]:
        """The stable JSON form."""
        plan, decisions, log = self.plan, self.decisions, self.log
        partition = plan.topic_partition
        return {
            **asdict(partition),
            "lineage": plan.state.lineage.root,
            "state": self.state,
            "segments": len(self.segments),
            "segments_resumed": min(self.segments_resumed, len(self.segments)),
            "bytes": self.size_bytes,
            "start_offset": log.start_offset if log else plan.start_offset,
            "end_offset": log.end_offset if log else plan.end_offset,
            "end_offset_is_upper_bound": self.end_is_bound,
            "archive_end_offset": plan.state.end_offset,
            "empty_before_timestamp_ms": self.empty_before_ms,
            "topic_id": decisions.topic_id,
            "leader_epochs": str(decisions.leader_epochs),
            "producer_state": str(decisions.producer_state),
            "reason": decisions.reason,
            "deleted_before_offset": plan.deleted_before_offset or None,
            "producers_blank_below": plan.blank_below,
            "retention_deletes_before_offset": self.retention.end_offset,
            "retention_deletes_next_ms": self.retention.next_ms,
            "lost": [[hole.base_offset, hole.end_offset, hole.reason] for hole in plan.lost],
            "compacted": log.compacted if log else None,
            "open_transactions": list(log.open_transactions) if log else [],
            "open_transactions_aborted": log.aborted if log else False,
            "unsettled_transactions": [asdict(found) for found in log.unsettled_transactions] if log else [],
            "problem": self.problem or None,
        }

    @property
    def state(self) -> str:
        if self.problem:
            return "stopped"
        if self.is_done:
            return "done before"
        return "restored" if self.log else "planned"
