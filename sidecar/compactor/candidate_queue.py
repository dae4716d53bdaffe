"""The partitions that `run` may compact: what is known of each, when to assess it again, and whether it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from typing import Any

from producer_state.wire import Layout
from sidecar.archive.bundle import log_size_bytes
from sidecar.archive.keys import below
from sidecar.archive.replacement import undone_by_commit
from sidecar.archive.state import CommitId, PartitionState
from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.compactor.policy import Assessment, assess, dirty_segments, needs_first_batches
from sidecar.config import CompactionPolicy
from sidecar.errors import CorruptFile, PartitionError, SidecarError
from sidecar.logformat.headers import (
    BATCH_HEADER,
    CURRENT_MAGIC,
    MAGIC_POSITION,
    MESSAGE_HEADER,
    NO_TIMESTAMP,
    TIMESTAMPED_MESSAGE_HEADER,
)
from sidecar.metrics.compaction import Weighed
from sidecar.model import ObjectKey, PartitionFiles, TopicPartition
from sidecar.partition.facts import PartitionFacts
from sidecar.ports import ObjectStore
from sidecar.reporting.advice import advised
from sidecar.segment.archived_objects import first_undecided, read_committed
from sidecar.topic_policy import TopicPolicy

UnnotedAt = Callable[[PartitionState, PartitionFiles, PartitionFacts, TopicPolicy], int | None]
"""By an archive's state, files of an earlier scan, and current facts: up to which offset records were probably deleted
on purpose, though no commit says so yet; None where none do.
"""


@dataclass(frozen=True, slots=True)
class LedPartition:
    """A partition that this broker leads under `leader_epoch`, and whose archive below `root` ends at `end_offset`.

    `files`: its directory as it was listed, by which leadership is queried again; None where it is not queried.
    `unnoted_at`: by all that is seen of its log start, also after this; None with `files`. `unnoted_before_offset`: records below
    it were probably deleted on purpose, and no commit says so yet; None where all is noted. `is_deletion_unknown`: the
    archive could not be read to tell whether they were. `newest_commit`: the newest one that this process knows, also after
    this. `doubt`: to be called where the archive could not be read, so that the next check reads it, too.
    """

    topic_partition: TopicPartition
    root: ObjectKey
    leader_epoch: int
    end_offset: int
    files: PartitionFiles | None = None
    unnoted_at: UnnotedAt | None = None
    unnoted_before_offset: int | None = None
    is_deletion_unknown: bool = False
    newest_commit: Callable[[], CommitId | None] = field(default=lambda: None, compare=False)
    doubt: Callable[[], None] = field(default=lambda: None, compare=False)

    @property
    def waits_because(self) -> str:
        """Why it must not be compacted now, "" if it may be."""
        if self.unnoted_before_offset is None:
            return ""
        known = (
            f"the sidecar could not read whether records below offset {self.unnoted_before_offset} were deleted on the broker "
            f"(DeleteRecords); the log has the error as deleted_records_unknown"
            if self.is_deletion_unknown
            else f"records below offset {self.unnoted_before_offset} were probably deleted on the broker "
            "(DeleteRecords), and the archive does not note that yet"
        )
        return (
            f"{known}. Compaction waits, because a deleted record could win over a live one. The sidecar decides when it archives "
            f"the partition's next segment"
        )


@dataclass(frozen=True, slots=True)
class Quarantined:
    """`failures` in a row, the last at `failed_at_ms` with `error` (class name) for `reason`; not tried before `until_s`."""

    failures: int
    failed_at_ms: int
    error: str
    reason: str
    until_s: float


@dataclass(slots=True)
class Candidate:
    """`assessment`: None until it was assessed. `due_since_ms`: None while it is not due.

    `compacted`: how it was assessed when it was last compacted. The next first dirty offset must be higher, unless somebody
    undid that compaction. `quarantined`: since its last compaction failed; it stays while it is tried again.
    """

    led: LedPartition
    policy: CompactionPolicy
    assessment: Assessment | None = None
    due_since_ms: int | None = None
    compacted: Assessment | None = None
    quarantined: Quarantined | None = None

    @property
    def size_bytes(self) -> int:
        """What a compaction of it has to read, 0 until it was assessed."""
        return 0 if self.assessment is None else self.assessment.size_bytes

    def block(self, unnoted_before_offset: int) -> None:
        """A deletion was seen that no commit notes yet. It waits until it is offered again without one."""
        self.led = replace(self.led, unnoted_before_offset=unnoted_before_offset)
        self.assessment, self.due_since_ms = None, None

    def assessed(self, assessment: Assessment, now_ms: int) -> None:
        """The assessment has ended. Raises PartitionError if the last compaction changed nothing: nor would the next."""
        self.assessment = assessment
        if assessment.trigger is None:
            self.due_since_ms = None
            return
        if self.due_since_ms is None:
            self.due_since_ms = now_ms
        last, self.compacted = self.compacted, None
        if last is None or assessment.undone_by_commit > last.undone_by_commit:
            return
        if assessment.first_dirty_offset <= last.first_dirty_offset:
            raise PartitionError(
                f"{self.led.topic_partition}: was compacted, but its first dirty offset is still "
                f"{assessment.first_dirty_offset}: an open transaction, or a fault"
            )

    def succeeded(self) -> None:
        """It was compacted, as it was assessed."""
        self.compacted, self.assessment = self.assessment, None
        self.due_since_ms, self.quarantined = None, None


@dataclass(slots=True)
class CandidateQueue:
    """All partitions whose topics are compacted. An archive that has not changed is not assessed twice.

    A partition whose compaction failed backs off: for `wait_s`, on the monotonic clock, and for longer after each failure, up to
    `wait_max_s`. A success, or the loss of leadership, ends that.
    """

    clock: Clock
    _: KW_ONLY
    wait_s: float
    wait_max_s: float
    entries: dict[TopicPartition, Candidate] = field(default_factory=dict)

    def replace(self, partitions: Iterable[tuple[LedPartition, CompactionPolicy]]) -> None:
        """These are led here now, and no others. What is known of them stays unless their archive or policy is another."""
        before = self.entries
        self.entries = {}
        for led, policy in partitions:
            known = before.get(led.topic_partition)
            entry = Candidate(led, policy, quarantined=None if known is None else known.quarantined)
            if known is not None and known.led.root == led.root:
                entry.compacted = known.compacted
                entry.due_since_ms = None if led.waits_because else known.due_since_ms
                is_noted = known.led.unnoted_before_offset == led.unnoted_before_offset
                if known.led.end_offset == led.end_offset and known.policy == policy and is_noted:
                    entry.assessment = known.assessment
            self.entries[led.topic_partition] = entry

    def to_look_at(self) -> list[Candidate]:
        """Those whose assessment is not there, or may have changed with time, and that may be compacted now."""
        now_ms = self.clock.now_ms()
        return [
            entry
            for entry in self.entries.values()
            if not entry.led.waits_because
            and not self.is_resting(entry)
            and (
                (found := entry.assessment) is None
                or (found.recheck_at_ms is not None and found.recheck_at_ms <= now_ms)
            )
        ]

    def blocked(self) -> dict[TopicPartition, str]:
        """Those that must not be compacted now, and why."""
        return {name: entry.led.waits_because for name, entry in self.entries.items() if entry.led.waits_because}

    def remove(self, entry: Candidate) -> None:
        """Not ours any more, until a later check says so again."""
        del self.entries[entry.led.topic_partition]

    def failed(self, entry: Candidate, error: SidecarError) -> Quarantined:
        failures = 1 if entry.quarantined is None else entry.quarantined.failures + 1
        # The exponent is bounded before the wait is: 2 to the power of a long outage fits no float.
        wait_s = min(self.wait_s * 2.0 ** min(failures - 1, 64), self.wait_max_s)
        until_s = self.clock.monotonic_s() + wait_s
        found = Quarantined(failures, self.clock.now_ms(), type(error).__name__, advised(error), until_s)
        entry.quarantined = found
        return found

    def is_resting(self, entry: Candidate) -> bool:
        """Whether it is not to be tried now, because it failed."""
        return entry.quarantined is not None and self.clock.monotonic_s() < entry.quarantined.until_s

    def due(self) -> list[Candidate]:
        """Those that are due, by falling dirty ratio. Source: LogCleanerManager.grabFilthiestCompactedLog."""
        due = [(found.dirty_ratio, entry) for entry, found in self._assessed() if found.trigger is not None]
        return [entry for _, entry in sorted(due, key=lambda found: -found[0])]

    def _assessed(self) -> list[tuple[Candidate, Assessment]]:
        return [(entry, entry.assessment) for entry in self.entries.values() if entry.assessment is not None]

    def weighed(self) -> Weighed:
        known = self._assessed()
        since_ms = [entry.due_since_ms for entry in self.entries.values() if entry.due_since_ms is not None]
        return Weighed(
            due=len(self.due()),
            oldest_due_ms=min(since_ms, default=None),
            cleanable_bytes=sum(found.cleanable_bytes for _, found in known),
            max_dirty_ratio=max((found.dirty_ratio for _, found in known), default=0.0),
            quarantined=sum(entry.quarantined is not None for entry in self.entries.values()),
            quarantined_bytes=sum(found.cleanable_bytes for entry, found in known if entry.quarantined is not None),
        )


class DeletionUnnoted(CommitConflict):
    """Records below `before_offset` were probably deleted on the broker since the job began; nothing was committed."""

    def __init__(self, message: str, state: PartitionState, before_offset: int) -> None:
        super().__init__(message, state)
        self.before_offset = before_offset


REMEMBERED_MAX = 65_536
"""First batches of so many segments."""
_HEADERS: dict[int, Layout[Any]] = {0: MESSAGE_HEADER, 1: TIMESTAMPED_MESSAGE_HEADER, CURRENT_MAGIC: BATCH_HEADER}


class CandidateAssessor:
    """Weighs partitions of an archive. Thread-safe; keeps nothing that grows with the archive."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._timestamp_of = lru_cache(REMEMBERED_MAX)(self._first_batch_timestamp_ms)

    def __call__(self, led: LedPartition, policy: CompactionPolicy) -> Assessment:
        """Weigh one partition. Raises CorruptFile, StoreError."""
        state = CommitLog(self._store, led.root, self._clock, known=led.newest_commit).read()
        clean_end_offset, undecided = state.clean_end_offset, first_undecided(self._store, state)
        dirty = dirty_segments(state.segments, clean_end_offset) if needs_first_batches(policy) else ()
        timestamps_ms = {
            segment.base_offset: self._timestamp_of(below(led.root, segment.log_key), size_bytes)
            for segment in dirty
            if (size_bytes := log_size_bytes(segment))
        }
        assessment = assess(
            state.segments,
            clean_end_offset,
            policy,
            now_ms=self._clock.now_ms(),
            first_batch_timestamps_ms=timestamps_ms,
            stable_end_offset=2**63 - 1 if undecided is None else undecided,
        )
        return replace(assessment, undone_by_commit=undone_by_commit(state))

    def _first_batch_timestamp_ms(self, key: ObjectKey, size_bytes: int) -> int:
        """Of an object that never changes; -1 for none. Source: RecordBatch.maxTimestamp."""
        head = read_committed(self._store, key, size_bytes, 0, BATCH_HEADER.size_bytes)
        magic = head[MAGIC_POSITION] if len(head) > MAGIC_POSITION else None
        header = _HEADERS.get(magic) if magic is not None else None
        if header is None or len(head) < header.size_bytes:
            raise CorruptFile(f"expected a batch, found {len(head)} bytes with magic {magic}", file=key, position=0)
        if magic == CURRENT_MAGIC:
            return BATCH_HEADER.read(head).max_timestamp
        return TIMESTAMPED_MESSAGE_HEADER.read(head).timestamp if magic == 1 else NO_TIMESTAMP
