"""Compaction beside the uploads of `run`: looks for partitions that are due, and has them compacted, many in one job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import structlog

from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitConflict
from sidecar.commits.stored_commits import proves_not_committed
from sidecar.compactor.candidate_queue import (
    CandidateQueue,
    Compacted,
    Compacting,
    DeletionUnnoted,
    LedPartition,
    Waiting,
)
from sidecar.compactor.policy import Assessment, one_job
from sidecar.compactor.topic_counts import OF_ARCHIVE, OddRecords
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
from sidecar.metrics import Metrics
from sidecar.metrics.compaction import Weighed
from sidecar.model import TopicPartition

_log = structlog.get_logger(__name__)

TOGETHER_MAX = 4096
"""So many partitions at most in one job."""
LOOKERS = 8
LONE_FAILURES_MAX = 3
"""So many jobs of one partition may fail in a row; then the fault is not theirs, and all rest."""


class CompactionWorker:
    """Everything but the thread: `offer` is called by the uploading one, `turn` by one of its own.

    A partition that fails alone is quarantined. A job that fails as a whole is tried again with half as many partitions, so
    that the one at fault ends up alone; jobs grow again with each success.
    """

    def __init__(
        self,
        settings: CompactionSettings,
        look: Callable[[LedPartition, CompactionPolicy], Assessment],
        compact: Callable[[Sequence[Compacting]], Iterable[Compacted]],
        clock: Clock,
        metrics: Metrics,
        is_stopping: Callable[[], bool],
        tell: Callable[[Mapping[str, Any]], None] = lambda _: None,
        policy_of: Callable[[str], CompactionPolicy | None] | None = None,
        odd: OddRecords | None = None,
    ) -> None:
        """Build it.

        Args:
            look: weighs one partition; called by several threads.
            compact: never raises for one partition; may raise SidecarError for the whole.
            is_stopping: whether nothing is to be begun any more.
            tell: takes what `/status` is to show.
            policy_of: what holds for a topic, None if it is not compacted. Default: as the settings say.
            odd: is told of records without a key and of malformed versions.
        """
        self._settings = settings
        self._look = look
        self._compact = compact
        self._clock = clock
        self._metrics = metrics
        self._is_stopping = is_stopping
        self._tell_others = tell
        self._policy_of = policy_of or settings.of_topic
        self._odd = odd or OddRecords(metrics.compaction.odd_records)
        self._lock = threading.Lock()
        self._offered: Sequence[LedPartition] | None = None
        self._list = CandidateQueue(clock)
        self._quarantine = Quarantine(clock, wait_s=settings.retry_wait_s, wait_max_s=settings.retry_wait_max_s)
        self._together = TOGETHER_MAX
        self._lone_failures = 0
        self._resting_until_s = 0.0
        self._held_back: Mapping[TopicPartition, str] = {}

    def offer(self, partitions: Sequence[LedPartition]) -> None:
        """These are led here, as of now. Returns at once."""
        with self._lock:
            self._offered = tuple(partitions)

    def turn(self) -> bool:
        """Look, and run one job if there is work; whether there may be more at once."""
        self._take_offer()
        self._log_held_back()
        awake = [e for e in self._list.to_look_at() if not self._quarantine.is_resting(e.led.topic_partition)]
        with ThreadPoolExecutor(LOOKERS, thread_name_prefix="compaction-look") as pool:
            for entry, found in zip(awake, pool.map(self._looked, awake), strict=True):
                self._take(entry, found)
        chosen = self._choose()
        self._tell(chosen)
        if not chosen or self._is_stopping():
            return False
        self._run(chosen)
        if self._is_stopping():
            return False
        self._tell(())
        return True

    def _take_offer(self) -> None:
        with self._lock:
            offered, self._offered = self._offered, None
        if offered is not None:
            found = ((led, self._policy_of(led.topic_partition.topic)) for led in offered)
            self._list.replace((led, policy) for led, policy in found if policy is not None)
            self._quarantine.keep_only(self._list.partitions())

    def _log_held_back(self) -> None:
        known, self._held_back = self._held_back, self._list.held_back()
        for partition in self._held_back.keys() - known.keys():
            _log.info("compaction_waits", partition=str(partition), reason=self._held_back[partition])

    def _looked(self, entry: Waiting) -> Assessment | SidecarError | None:
        if self._is_stopping():
            return None
        try:
            return self._look(entry.led, entry.policy)
        except SidecarError as error:
            return error

    def _take(self, entry: Waiting, found: Assessment | SidecarError | None) -> None:
        name = entry.led.topic_partition
        if isinstance(found, SidecarError):
            self._failed(name, found)
        elif found is not None:
            try:
                self._list.assessed(entry, found)
            except PartitionError as error:
                self._failed(name, error)
            else:
                if found.trigger is None:
                    self._quarantine.succeeded(name)

    def _choose(self) -> list[Compacting]:
        due = self._list.due()
        awake = [name for name in due if not self._quarantine.is_resting(name)]
        if self._clock.monotonic_s() < self._resting_until_s:
            return []
        names = one_job(awake, due, max_bytes=self._settings.max_job_bytes, max_count=self._together)
        entries = [entry for name in names if (entry := self._list.of(name)) is not None]
        return [Compacting(entry.led, entry.policy, due[entry.led.topic_partition]) for entry in entries]

    def _run(self, chosen: Sequence[Compacting]) -> None:
        _log.info("compaction_begins", partitions=len(chosen), size_bytes=sum(c.assessment.size_bytes for c in chosen))
        begun_s = self._clock.monotonic_s()
        self._metrics.compaction.job_begins()
        try:
            for result in self._compact(chosen):
                self._settle(result)
        except SidecarError as error:
            self._job_failed(chosen, error)
        except Exception as error:  # noqa: BLE001 - odd data may meet a fault of ours: uploads and other partitions go on
            if not self._is_stopping():
                _log.critical("compaction_crashed", error=repr(error), exc_info=error)
            crashed = CompactionCrashed(f"a fault of our own: {error!r}")
            crashed.__cause__ = error
            self._job_failed(chosen, crashed)
        else:
            self._together = min(2 * self._together, TOGETHER_MAX)
            self._lone_failures = 0
        finally:
            self._metrics.compaction.job_ends(self._clock.monotonic_s() - begun_s)

    def _settle(self, result: Compacted) -> None:
        partition = result.topic_partition
        if isinstance(result.error, Fenced):
            # Another broker leads: its sidecar compacts. Ours may again when a later check says so.
            _log.warning("compaction_fenced", partition=str(partition), error=str(result.error))
            self._list.remove(partition)
        elif isinstance(result.error, CompactionCutOff):
            _log.info("compaction_given_up", partitions=1, reason=str(result.error))
        elif isinstance(result.error, RuleChanged):
            # The next offer brings the partition back, with the rule that holds then.
            _log.warning("compaction_overtaken", partition=str(partition), reason=str(result.error))
            self._list.remove(partition)
        elif isinstance(result.error, DeletionUnnoted):
            _log.info("compaction_overtaken", partition=str(partition), reason=str(result.error))
            self._list.hold_back(partition, result.error.before_offset)
            with self._lock:
                self._offered = None  # It may be older than what was seen now. The next scan offers again.
        elif isinstance(result.error, CommitConflict):
            _log.info("compaction_overtaken", partition=str(partition), reason=str(result.error))
            self._list.changed(partition)
        elif result.error is not None:
            if not proves_not_committed(result.error):
                self._list.changed(partition)
            self._failed(partition, result.error)
        else:
            self._list.compacted(partition)
            self._quarantine.succeeded(partition)
            figures = (result.bytes_before, result.bytes_after, result.records_before, result.records_after)
            self._metrics.compaction.compacted(*figures)
            _log.info(
                "partition_compacted",
                partition=str(partition),
                bytes_before=result.bytes_before,
                bytes_after=result.bytes_after,
                records_before=result.records_before,
                records_after=result.records_after,
            )
            self._odd.note(partition, result.unkeyed, result.malformed_versions, OF_ARCHIVE)

    def _failed(self, partition: TopicPartition, error: SidecarError) -> None:
        self._metrics.failed(type(error).__name__)
        self._metrics.compaction.failed()
        held = self._quarantine.failed(partition, error)
        _log.error(
            "partition_not_compacted",
            partition=str(partition),
            error=str(error),
            failures=held.failures,
            next_try_s=round(held.until_s - self._clock.monotonic_s()),
        )

    def _job_failed(self, chosen: Sequence[Compacting], error: SidecarError) -> None:
        if self._is_stopping():
            _log.info("compaction_given_up", partitions=len(chosen), reason=str(CompactionCutOff()))
            return
        if isinstance(error, StoreError | StagingFull):
            # Nobody's fault among them.
            self._rest(error)
        elif len(chosen) > 1:
            self._together = len(chosen) // 2
            _log.error("compaction_job_failed", partitions=len(chosen), error=str(error), next_try=self._together)
            self._metrics.failed(type(error).__name__)
        else:
            self._failed(chosen[0].led.topic_partition, error)
            self._lone_failures += 1
            if self._lone_failures >= LONE_FAILURES_MAX:
                self._rest(error)

    def _rest(self, error: SidecarError) -> None:
        self._metrics.failed(type(error).__name__)
        self._resting_until_s = self._clock.monotonic_s() + self._settings.retry_wait_s
        _log.error("compaction_rests", error=str(error), next_try_s=self._settings.retry_wait_s)

    def _tell(self, running: Sequence[Compacting]) -> None:
        self._metrics.compaction.weighed(
            Weighed(
                due=len(self._list.due()),
                oldest_due_ms=self._list.oldest_due_ms(),
                cleanable_bytes=self._list.cleanable_bytes(),
                max_dirty_ratio=self._list.max_dirty_ratio(),
                quarantined=len(self._quarantine),
                quarantined_bytes=self._list.cleanable_bytes(self._quarantine.partitions()),
            )
        )
        names = {compacting.led.topic_partition for compacting in running}
        rows = [
            _row(name, self._list.of(name), self._quarantine.of(name), running=name in names)
            for name in sorted(self._list.partitions())
        ]
        self._tell_others({"told_ms": self._clock.now_ms(), "partitions": rows, "odd_records": self._odd.status()})


def _row(name: TopicPartition, entry: Waiting | None, held: Quarantined | None, *, running: bool) -> dict[str, Any]:
    assessment = entry.assessment if entry is not None else None
    row: dict[str, Any] = {"topic": name.topic, "partition": name.partition, "running": running}
    if entry is not None and assessment is not None:
        row |= {
            "clean_end_offset": assessment.first_dirty_offset,
            "cleanable_bytes": assessment.cleanable_bytes,
            "dirty_ratio": round(assessment.dirty_ratio, 4),
            "due": assessment.trigger,
            "due_since_ms": entry.due_since_ms,
        }
    if entry is not None and entry.led.waits_because:
        row["waiting"] = entry.led.waits_because
    if held is not None:
        row["quarantined"] = {
            "error": held.error,
            "reason": held.reason,
            "failures": held.failures,
            "failed_at_ms": held.failed_at_ms,
        }
    return row


@dataclass(frozen=True, slots=True)
class Quarantined:
    """`failures` in a row, the last at `failed_at_ms` with `error` (class name) for `reason`; not tried before `until_s`."""

    failures: int
    failed_at_ms: int
    error: str
    reason: str
    until_s: float


class Quarantine:
    """Partitions that compaction leaves alone, and why. A success, or the loss of leadership, ends it."""

    def __init__(self, clock: Clock, *, wait_s: float, wait_max_s: float) -> None:
        """Args: wait_s: after the first failure, on the monotonic clock; wait_max_s: after many."""
        self._clock = clock
        self._wait_s = wait_s
        self._wait_max_s = wait_max_s
        self._held: dict[TopicPartition, Quarantined] = {}

    def __len__(self) -> int:
        return len(self._held)

    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._held)

    def failed(self, partition: TopicPartition, error: Exception) -> Quarantined:
        failures = self._held[partition].failures + 1 if partition in self._held else 1
        # The exponent is bounded before the wait is: 2 to the power of a long outage fits no float.
        wait_s = min(self._wait_s * 2.0 ** min(failures - 1, 64), self._wait_max_s)
        until_s = self._clock.monotonic_s() + wait_s
        found = Quarantined(failures, self._clock.now_ms(), type(error).__name__, str(error), until_s)
        self._held[partition] = found
        return found

    def succeeded(self, partition: TopicPartition) -> None:
        self._held.pop(partition, None)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """The others are not ours any more."""
        self._held = {name: held for name, held in self._held.items() if name in partitions}

    def is_resting(self, partition: TopicPartition) -> bool:
        """Whether it is to be left alone now."""
        held = self._held.get(partition)
        return held is not None and self._clock.monotonic_s() < held.until_s

    def of(self, partition: TopicPartition) -> Quarantined | None:
        """Why it is here, None if it is not. It stays while it is tried again."""
        return self._held.get(partition)
