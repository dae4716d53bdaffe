"""Compaction in the background of `run`: finds partitions that are due, and has them compacted, many in one job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitConflict
from sidecar.commits.stored_commits import proves_not_committed
from sidecar.compactor.candidate_queue import Candidate, CandidateQueue, DeletionUnnoted, LedPartition
from sidecar.compactor.policy import Assessment
from sidecar.compactor.topic_counts import OF_ARCHIVE, InvalidRecords
from sidecar.compactor.topic_rule import RuleChanged
from sidecar.config import CompactionPolicy, CompactionSettings
from sidecar.errors import (
    CompactionCrashed,
    CompactionCutOff,
    Fenced,
    PartitionError,
    SidecarError,
    StagingFull,
    StoreError,
)
from sidecar.event_log import EVENTS
from sidecar.metrics import Metrics
from sidecar.model import TopicPartition
from sidecar.reporting.advice import advised

if TYPE_CHECKING:
    from sidecar.compactor.archive.plan import PartitionCompaction  # loads numba, 70 MB

TOGETHER_MAX = 4096
"""So many partitions at most in one job."""
LOOKERS = 8
LONE_FAILURES_MAX = 3
"""So many jobs of one partition may fail in a row; then the fault is not theirs, and all rest."""


@dataclass(slots=True)
class CompactionWorker:
    """Everything but the thread: `offer` is called by the uploading one, `cycle` by one of its own.

    A partition that fails alone is quarantined. A job that fails as a whole is tried again with half as many partitions, so
    that the one at fault ends up alone; jobs grow again with each success.

    `look`: weighs one partition; called by several threads. `compact`: never raises for one partition; may raise SidecarError
    for the whole. `is_stopping`: whether nothing is to be begun any more. `show`: takes what `/status` is to show. `policy_of`:
    what holds for a topic, None if it is not compacted.
    """

    settings: CompactionSettings
    look: Callable[[LedPartition, CompactionPolicy], Assessment]
    compact: Callable[[Sequence[Candidate]], Iterable[PartitionCompaction]]
    clock: Clock
    metrics: Metrics
    is_stopping: Callable[[], bool]
    show: Callable[[Mapping[str, Any]], None]
    policy_of: Callable[[str], CompactionPolicy | None]
    invalid: InvalidRecords
    _list: CandidateQueue = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _offered: Sequence[LedPartition] | None = None
    _together: int = TOGETHER_MAX
    _lone_failures: int = 0
    _resting_until_s: float = 0.0
    _blocked: Mapping[TopicPartition, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wait_s, wait_max_s = self.settings.retry_wait_s, self.settings.retry_wait_max_s
        self._list = CandidateQueue(self.clock, wait_s=wait_s, wait_max_s=wait_max_s)

    def offer(self, partitions: Sequence[LedPartition]) -> None:
        """These are led here, as of now. Returns at once."""
        with self._lock:
            self._offered = tuple(partitions)

    def cycle(self) -> bool:
        """Check, and run one job if there is work; whether there may be more at once."""
        self._take_offer()
        self._log_blocked()
        awake = self._list.to_look_at()
        with ThreadPoolExecutor(LOOKERS, thread_name_prefix="compaction-look") as pool:
            for entry, found in zip(awake, pool.map(self._looked, awake), strict=True):
                self._take(entry, found)
        chosen = self._choose()
        self._tell(chosen)
        if not chosen or self.is_stopping():
            return False
        self._run(chosen)
        if self.is_stopping():
            return False
        self._tell(())
        return True

    def _take_offer(self) -> None:
        with self._lock:
            offered, self._offered = self._offered, None
        if offered is not None:
            found = ((led, self.policy_of(led.topic_partition.topic)) for led in offered)
            self._list.replace((led, policy) for led, policy in found if policy is not None)

    def _log_blocked(self) -> None:
        known, self._blocked = self._blocked, self._list.blocked()
        for partition in self._blocked.keys() - known.keys():
            EVENTS.info("compaction_waits", partition=str(partition), reason=self._blocked[partition])

    def _looked(self, entry: Candidate) -> Assessment | SidecarError | None:
        if self.is_stopping():
            return None
        try:
            return self.look(entry.led, entry.policy)
        except SidecarError as error:
            return error

    def _take(self, entry: Candidate, found: Assessment | SidecarError | None) -> None:
        if isinstance(found, SidecarError):
            self._failed(entry, found)
        elif found is not None:
            try:
                entry.assessed(found, self.clock.now_ms())
            except PartitionError as error:
                self._failed(entry, error)
            else:
                if found.trigger is None:
                    entry.quarantined = None

    def _choose(self) -> list[Candidate]:
        if self.clock.monotonic_s() < self._resting_until_s:
            return []
        awake = [entry for entry in self._list.due() if not self._list.is_resting(entry)]
        together = awake[: self._together]
        sizes = accumulate(entry.size_bytes for entry in together)
        # At least one, whatever its size.
        return together[: max(1, sum(size_bytes <= self.settings.max_job_bytes for size_bytes in sizes))]

    def _run(self, chosen: Sequence[Candidate]) -> None:
        EVENTS.info("compaction_started", partitions=len(chosen), size_bytes=sum(entry.size_bytes for entry in chosen))
        begun_s = self.clock.monotonic_s()
        self.metrics.compaction.running.set(1)
        try:
            by_root = {entry.led.root: entry for entry in chosen}
            for result in self.compact(chosen):
                self._settle(by_root[result.request.root], result)
        except SidecarError as error:
            self._job_failed(chosen, error)
        except Exception as error:  # noqa: BLE001 - odd data may meet a fault of ours: uploads and other partitions go on
            if not self.is_stopping():
                EVENTS.critical("compaction_crashed", error=repr(error), exc_info=error)
            crashed = CompactionCrashed(f"a fault of this program: {error!r}")
            crashed.__cause__ = error
            self._job_failed(chosen, crashed)
        else:
            self._together = min(2 * self._together, TOGETHER_MAX)
            self._lone_failures = 0
        finally:
            self.metrics.compaction.running.set(0)
            self.metrics.compaction.duration.observe(self.clock.monotonic_s() - begun_s)

    def _settle(self, entry: Candidate, result: PartitionCompaction) -> None:
        partition, error = entry.led.topic_partition, result.error
        if error is None:
            entry.succeeded()
            figures = {
                "bytes_before": result.bytes_before,
                "bytes_after": result.bytes_after,
                "records_before": result.records_before,
                "records_after": result.records_after,
            }
            self.metrics.compaction.compacted(**figures)
            EVENTS.info("partition_compacted", partition=str(partition), **figures)
            self.invalid.note(partition, result.unkeyed, result.new_malformed_versions, OF_ARCHIVE)
        elif isinstance(error, Fenced):
            # Another broker leads: its sidecar compacts. Ours may again when a later check says so.
            EVENTS.warning("compaction_fenced", partition=str(partition), error=str(error))
            self._list.remove(entry)
        elif isinstance(error, CompactionCutOff):
            EVENTS.info("compaction_abandoned", partitions=1, reason=str(error))
        elif isinstance(error, RuleChanged):
            # The next offer brings the partition back, with the rule that holds then.
            EVENTS.warning("compaction_superseded", partition=str(partition), reason=str(error))
            self._list.remove(entry)
        elif isinstance(error, CommitConflict):
            EVENTS.info("compaction_superseded", partition=str(partition), reason=str(error))
            entry.assessment = None
            if isinstance(error, DeletionUnnoted):
                entry.block(error.before_offset)
                with self._lock:
                    self._offered = None  # It may be older than what was seen now. The next scan offers again.
        else:
            if not proves_not_committed(error):
                entry.assessment = None
            self._failed(entry, error)

    def _failed(self, entry: Candidate, error: SidecarError) -> None:
        self.metrics.failed(type(error).__name__)
        self.metrics.compaction.failed()
        quarantined = self._list.failed(entry, error)
        EVENTS.error(
            "partition_not_compacted",
            partition=str(entry.led.topic_partition),
            error=advised(error),
            failures=quarantined.failures,
            next_try_s=round(quarantined.until_s - self.clock.monotonic_s()),
        )

    def _job_failed(self, chosen: Sequence[Candidate], error: SidecarError) -> None:
        if self.is_stopping():
            EVENTS.info("compaction_abandoned", partitions=len(chosen), reason=str(CompactionCutOff()))
            return
        if isinstance(error, StoreError | StagingFull):
            # None of them is at fault.
            self._rest(error)
        elif len(chosen) > 1:
            self._together = len(chosen) // 2
            EVENTS.error("compaction_job_failed", partitions=len(chosen), error=advised(error), next_try=self._together)
            self.metrics.failed(type(error).__name__)
        else:
            self._failed(chosen[0], error)
            self._lone_failures += 1
            if self._lone_failures >= LONE_FAILURES_MAX:
                self._rest(error)

    def _rest(self, error: SidecarError) -> None:
        self.metrics.failed(type(error).__name__)
        self._resting_until_s = self.clock.monotonic_s() + self.settings.retry_wait_s
        EVENTS.error("compaction_backoff", error=advised(error), next_try_s=self.settings.retry_wait_s)

    def _tell(self, running: Sequence[Candidate]) -> None:
        self.metrics.compaction.weighed(self._list.weighed())
        names = {entry.led.topic_partition for entry in running}
        rows = [_row(name, entry, is_running=name in names) for name, entry in sorted(self._list.entries.items())]
        self.show({"reported_ms": self.clock.now_ms(), "partitions": rows, "invalid_records": self.invalid.status()})


def _row(name: TopicPartition, entry: Candidate, *, is_running: bool) -> dict[str, Any]:
    assessment, quarantined = entry.assessment, entry.quarantined
    row: dict[str, Any] = {"topic": name.topic, "partition": name.partition, "running": is_running}
    if assessment is not None:
        row |= {
            "clean_end_offset": assessment.first_dirty_offset,
            "cleanable_bytes": assessment.cleanable_bytes,
            "dirty_ratio": round(assessment.dirty_ratio, 4),
            "due": assessment.trigger,
            "due_since_ms": entry.due_since_ms,
        }
    if entry.led.waits_because:
        row["waiting"] = entry.led.waits_because
    if quarantined is not None:
        row["quarantined"] = {
            "error": quarantined.error,
            "reason": quarantined.reason,
            "failures": quarantined.failures,
            "failed_at_ms": quarantined.failed_at_ms,
        }
    return row
