"""What an archive holds, partition by partition."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

from sidecar.archive.coverage import Hole
from sidecar.archive.keys import Lineage
from sidecar.archive.state import PartitionState, empty_state
from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.lineages import find_all_lineages
from sidecar.commits.stored_commits import StoredCommits
from sidecar.errors import FROM_STORE, CorruptFile, PartitionError, SettingsError, SidecarError, StoreError
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore
from sidecar.reporting.advice import advised

UNANSWERED_MAX = 8
"""So many reads in a row without an answer, over all partitions, and the store counts as gone."""
WORKERS = 8


class Outage:
    """Counts what failed in a row: a store that is gone is another thing than objects that cannot be read. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unanswered = 0

    def answered(self) -> None:
        with self._lock:
            self._unanswered = 0

    def failed(self, error: StoreError | SettingsError) -> None:
        """Something could not. Raises the error if the store is gone; else only one partition cannot be read."""
        with self._lock:
            self._unanswered += error.retryable
            is_gone = self._unanswered > UNANSWERED_MAX
        if is_gone:
            raise error


@dataclass(frozen=True, slots=True)
class GenerationBytes:
    generation: int
    segments: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One lineage. Offsets are None while nothing is committed or nothing can be read; `problem` says why the latter.

    `end_offset` is exclusive. `segments` counts live segments, `bytes` those of all their objects. `leader_epoch` is the
    highest of a writer or of an archived batch, -1 if none is known.

    `generations`: bytes of live objects by generation, ascending: 0 is what the broker wrote (`raw_bytes`), each compaction
    counts one up (`compacted_bytes` is the sum of these). `clean_end_offset` (exclusive): below it everything was compacted
    with all that lies below, by `clean_strategy`; None where nothing was. `deleted_before_offset`: records below it were deleted
    on purpose on the broker, and a restore leaves them out; None where nothing is known of that. `undo_until_ms`: the newest
    compaction can be undone (`compact --undo`) until then, and after it as long as `gc` has not run; None where none can be,
    and in a report of `verify`. `store_failed`: the `problem` is that the store fails, not what it holds.
    """

    cluster_id: str
    topic: str
    partition: int
    incarnation: str
    topic_id: str | None
    start_offset: int | None
    end_offset: int | None
    segments: int
    bytes: int
    leader_epoch: int
    holes: tuple[Hole, ...]
    generations: tuple[GenerationBytes, ...] = ()
    clean_end_offset: int | None = None
    clean_strategy: str | None = None
    deleted_before_offset: int | None = None
    undo_until_ms: int | None = None
    problem: str | None = None
    store_failed: bool = False

    @property
    def raw_bytes(self) -> int:
        return sum(found.bytes for found in self.generations if not found.generation)

    @property
    def compacted_bytes(self) -> int:
        return sum(found.bytes for found in self.generations if found.generation)

    @property
    def remark(self) -> str:
        """What a person who restores it should know besides, "" for nothing."""
        if self.deleted_before_offset is None or self.deleted_before_offset <= (self.start_offset or 0):
            return ""
        return (
            f"records below offset {self.deleted_before_offset} were deleted on purpose on the "
            f"broker; restore leaves them out, unless --deleted-records restore is given"
        )

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "raw_bytes": self.raw_bytes, "compacted_bytes": self.compacted_bytes}


def row_of(state: PartitionState, undo_until_ms: int | None = None) -> PartitionRow:
    """The row of a lineage that could be read. `undo_until_ms`: see the function of this name."""
    partition = state.lineage.topic_partition
    return PartitionRow(
        cluster_id=state.lineage.cluster_id,
        topic=partition.topic,
        partition=partition.partition,
        incarnation=state.lineage.incarnation,
        topic_id=state.topic_id,
        start_offset=state.start_offset,
        end_offset=state.end_offset,
        segments=len(state.segments),
        bytes=state.size_bytes,
        leader_epoch=state.leader_epoch,
        holes=state.holes,
        generations=_generations(state),
        clean_end_offset=None if state.clean is None else state.clean_end_offset,
        clean_strategy=None if state.clean is None else state.clean.strategy,
        deleted_before_offset=state.deleted_before_offset or None,
        undo_until_ms=undo_until_ms,
    )


def undo_until_ms(store: ObjectStore, state: PartitionState, grace_period_ms: int) -> int | None:
    """When `gc`, with that grace period, may begin to delete what the newest compaction replaced. Raises StoreError.

    None where an undo would find nothing, or would be refused by what the commits say. Reads one commit at most.
    """
    from sidecar.archive.replacement import newest_replacement, obstacle_in_commit

    found = newest_replacement(state)
    if found is None:
        return None
    try:
        stored = StoredCommits(store, ObjectKey(state.lineage.root)).commit(found.number)
    except CorruptFile:
        return None  # An undo reads all commits, and would be refused.
    if stored is None or obstacle_in_commit(found, stored[0], state) is not None:
        return None
    return found.until_ms(grace_period_ms)


def _generations(state: PartitionState) -> tuple[GenerationBytes, ...]:
    segments, size_bytes = Counter[int](), Counter[int]()
    for segment in state.segments:
        segments[segment.generation] += 1
        size_bytes[segment.generation] += segment.size_bytes
    return tuple(GenerationBytes(number, segments[number], size_bytes[number]) for number in sorted(segments))


def unreadable_row(lineage: Lineage, problem: str, error: SidecarError) -> PartitionRow:
    """The row of a lineage whose commit log could not be read. `problem`: the error as people see it."""
    return replace(row_of(empty_state(lineage)), problem=problem, store_failed=isinstance(error, FROM_STORE))


def archive_status(
    store: ObjectStore,
    clock: Clock,
    *,
    include: Callable[[str], bool] = lambda _: True,
    grace_period_ms: int | None = None,
) -> list[PartitionRow]:
    """One row per lineage with commits, ascending by cluster, topic, partition and incarnation.

    A commit log that is damaged or cannot be read gives a row with a `problem`. Raises StoreError where the store itself
    fails.

    Args:
        include: whether a topic is wanted.
        grace_period_ms: that of `gc`, None for rows without `undo_until_ms`.
    """

    outage = Outage()

    def read(lineage: Lineage) -> PartitionRow | None:
        try:
            state = CommitLog(store, lineage.root, clock).read()
            until_ms = None if grace_period_ms is None else undo_until_ms(store, state, grace_period_ms)
        except PartitionError as error:
            return unreadable_row(lineage, advised(error), error)
        except FROM_STORE as error:
            outage.failed(error)
            return unreadable_row(lineage, str(error), error)
        outage.answered()
        return row_of(state, until_ms) if state.next_number else None

    lineages = find_all_lineages(store, include)
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="status") as pool:
        return [row for row in pool.map(read, lineages) if row is not None]
