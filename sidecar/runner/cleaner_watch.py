"""The broker's own cleaner, watched from files: nothing else shows a thread that died, or a partition that it gave up.

Progress is the first dirty offset of `cleaner-offset-checkpoint`. A partition that is due and whose offset does not move stalls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TypeAlias

from sidecar.broker.log_dir_state import CleanerCheckpoint, compaction_candidates, read_cleaner_checkpoint
from sidecar.clock import Clock
from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.errors import PartitionError
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.ports import BrokerFacts
from sidecar.reporting.health_reporter import CleanerReport, StalledPartition
from sidecar.topic_policy import TopicPolicy

LOOK_EVERY_S_MAX = 60.0
DEFAULT_RATIO = 0.5
"""`min.cleanable.dirty.ratio` where it is not known."""

_Standing: TypeAlias = dict[TopicPartition, tuple[int | None, int, Path]]
"""By partition: the checkpointed offset, since when it has stood there, and the log dir."""


@dataclass(frozen=True, slots=True)
class CleanerBacklog:
    """What the broker's cleaner has left to do in one partition.

    `dirty_bytes`: whole rolled segments from the first dirty offset on. `due_since_ms`: since when the cleaner should have
    begun, None if it need not yet. `is_beyond_max_lag`: something dirty is older than `max.compaction.lag.ms`.
    """

    first_dirty_offset: int
    dirty_bytes: int
    clean_bytes: int
    due_since_ms: int | None
    is_beyond_max_lag: bool

    @property
    def dirty_ratio(self) -> float:
        """As the cleaner reckons it; 0.0 where there is nothing."""
        whole = self.dirty_bytes + self.clean_bytes
        return self.dirty_bytes / whole if whole else 0.0


@dataclass(eq=False)
class CleanerWatch:
    """Remembers since when each checkpointed offset has not moved.

    Time counts from the first check on, and while the broker responds: its files do not show since when it runs.
    `stalled_after_s`: may be changed; what was seen so far counts on. `counts_from_files`: the first check takes the broker to have
    run since its checkpoint was written. For one check.
    """

    log_dirs: Sequence[Path]
    facts: BrokerFacts
    clock: Clock
    stalled_after_s: float
    counts_from_files: bool = field(default=False, kw_only=True)
    _seen: _Standing = field(default_factory=dict, init=False)
    _looked_s: float | None = field(default=None, init=False)

    def is_due(self) -> bool:
        every_s = min(LOOK_EVERY_S_MAX, self.stalled_after_s / 3)
        return self._looked_s is None or self.clock.monotonic_s() - self._looked_s >= every_s

    def look(self) -> CleanerReport:
        """Read checkpoints and listings again. The report has what cannot be read."""
        self._looked_s = self.clock.monotonic_s()
        problems: list[str] = []
        backlogs: list[CleanerBacklog] = []
        stalled: list[StalledPartition] = []
        seen: _Standing = {}
        for log_dir in self.log_dirs:
            try:
                checkpoint = read_cleaner_checkpoint(log_dir)
                candidates = compaction_candidates(log_dir, checkpoint, self.facts.policy)
            except PartitionError as error:
                problems.append(str(error))
                seen |= {name: standing for name, standing in self._seen.items() if standing[2] == log_dir}
                continue
            for topic_partition in candidates:
                try:
                    files = read_partition_directory(topic_partition, log_dir, log_dir / str(topic_partition))
                except PartitionError as error:
                    problems.append(str(error))
                    if topic_partition in self._seen:
                        seen[topic_partition] = self._seen[topic_partition]
                    continue
                backlog, standing_ms = self._weigh(files, checkpoint, seen)
                backlogs.append(backlog)
                if standing_ms > self.stalled_after_s * 1000:
                    stalled.append(
                        StalledPartition(
                            topic_partition.topic,
                            topic_partition.partition,
                            backlog.first_dirty_offset,
                            backlog.dirty_bytes,
                            round(backlog.dirty_ratio, 3),
                            int(standing_ms / 1000),
                        )
                    )
        self._seen = seen
        return CleanerReport(
            partitions=len(backlogs),
            dirty_bytes=sum(backlog.dirty_bytes for backlog in backlogs),
            max_dirty_ratio=max((backlog.dirty_ratio for backlog in backlogs), default=0.0),
            beyond_max_lag=sum(backlog.is_beyond_max_lag for backlog in backlogs),
            stalled=tuple(sorted(stalled, key=lambda found: -found.stalled_s)),
            problems=tuple(problems),
        )

    def _weigh(
        self, files: PartitionFiles, checkpoint: CleanerCheckpoint, seen: _Standing
    ) -> tuple[CleanerBacklog, float]:
        """The backlog, and for how many milliseconds it has been due without progress (0 if it is not due)."""
        now_ms = self.clock.now_ms()
        topic_partition = files.topic_partition
        offset = checkpoint.offsets.get(topic_partition)
        before = self._seen.get(topic_partition)
        first_seen_ms = now_ms
        if before is not None:
            first_seen_ms = before[1] if before[0] == offset else now_ms
        elif self.counts_from_files and checkpoint.written_ms is not None and offset is not None:
            first_seen_ms = min(now_ms, checkpoint.written_ms)
        policy = self.facts.policy(topic_partition.topic)
        backlog = backlog_of(files, offset, policy, now_ms, self._stable_end_offset(files))
        if backlog.due_since_ms is None or self.facts.state().away:
            # What need not be cleaned yet, as above an open transaction, begins to stand when it must; and no cleaner runs in a
            # broker that is down, or still recovers its logs.
            seen[topic_partition] = offset, now_ms, files.log_dir
            return backlog, 0.0
        seen[topic_partition] = offset, first_seen_ms, files.log_dir
        return backlog, float(max(0, now_ms - max(backlog.due_since_ms, first_seen_ms)))

    def _stable_end_offset(self, files: PartitionFiles) -> int | None:
        """As the leader reported it last; only for partitions that this broker leads. An open transaction is not the
        cleaner's fault."""
        try:
            facts = self.facts.partition(files)
        except PartitionError:
            return None  # Checkpoints that cannot be read are reported where partitions are archived.
        return facts.stable_end_offset if facts.leads and facts.transactions_decided else None


def backlog_of(
    files: PartitionFiles,
    first_dirty_offset: int | None,
    policy: TopicPolicy,
    now_ms: int,
    stable_end_offset: int | None,
) -> CleanerBacklog:
    """What is left to do, from the sizes and times of the files. Pure.

    `first_dirty_offset`: as checkpointed, None where the cleaner never came. `stable_end_offset`: the last stable offset, None
    where it is unknown: the cleaner leaves a segment alone that reaches above it.

    Source: LogCleanerManager.cleanableOffsets, LogToClean; times are those of the last writes.
    """
    start_offset = files.segments[0].base_offset if files.segments else 0
    end_offset = files.active_base_offset or start_offset
    first = start_offset if first_dirty_offset is None else first_dirty_offset
    first = first if start_offset <= first <= end_offset else start_offset
    min_lag_ms = policy.min_compaction_lag_ms or 0
    cleanable_end = end_offset if stable_end_offset is None else min(end_offset, stable_end_offset)
    above = (segment for segment in files.segments if segment.end_offset > first)
    dirty = list(
        takewhile(lambda one: one.end_offset <= cleanable_end and one.log.mtime_ms <= now_ms - min_lag_ms, above)
    )
    clean_bytes = sum(segment.size_bytes for segment in files.segments if segment.base_offset < first)
    least_ratio = DEFAULT_RATIO if policy.min_cleanable_dirty_ratio is None else policy.min_cleanable_dirty_ratio
    since: list[int] = []
    dirty_bytes = 0
    for number, segment in enumerate(dirty):
        dirty_bytes += segment.size_bytes
        if not since and dirty_bytes > least_ratio * (clean_bytes + dirty_bytes):
            since.append(max(older.log.mtime_ms for older in dirty[: number + 1]) + min_lag_ms)
    is_beyond = False
    if policy.max_compaction_lag_ms is not None and dirty_bytes:
        overdue_ms = min(segment.log.mtime_ms for segment in dirty) + policy.max_compaction_lag_ms
        is_beyond = overdue_ms < now_ms
        since += [overdue_ms] if is_beyond else []
    return CleanerBacklog(first, dirty_bytes, clean_bytes, min(since, default=None), is_beyond)
