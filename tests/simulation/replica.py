"""One broker's copy of a log: segments with symbolic batches, as Kafka appends to them, rolls, truncates and deletes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from producer_state.snapshot import ProducerEntry
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition
from tests.simulation.batches import BATCH_BYTES, Batch, apply, replayed

DELETE_DELAY_MS: Final = 60_000
"""`file.delete.delay.ms`: so long a deleted file keeps another name. Source: LocalLog.deleteSegmentFiles."""
NS_PER_MS: Final = 1_000_000


@dataclass(slots=True, eq=False)
class LogFile:
    """A `.log`. `removed_ms`: when it lost its name, None while it has it. `identity`: as it was listed last."""

    inode: int
    base_offset: int
    written_ms: int
    batches: list[Batch] = field(default_factory=list)
    removed_ms: int | None = None
    identity: FileIdentity | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        """It never gets another."""
        self.name = f"{self.base_offset:020d}.log"

    @property
    def has_gaps(self) -> bool:
        """Whether a cleaner has taken batches between others, or before the first."""
        expected = self.base_offset
        for batch in self.batches:
            if batch.base_offset != expected:
                return True
            expected = batch.end_offset
        return False

    @property
    def size_bytes(self) -> int:
        """As the file system says."""
        return len(self.batches) * BATCH_BYTES

    def is_unlinked(self, now_ms: int) -> bool:
        """Whether it has no name any more, not even the one of a deleted file."""
        return self.removed_ms is not None and now_ms >= self.removed_ms + DELETE_DELAY_MS


@dataclass(frozen=True, slots=True)
class Place:
    """Where a replica lies, and how it differs from other replicas: `roll_batches` fill a segment. `is_cleaned`: now and then."""

    topic_partition: TopicPartition
    log_dir: Path
    device: int
    roll_batches: int
    is_cleaned: bool = False

    @property
    def directory(self) -> Path:
        """The partition's directory."""
        return self.log_dir / str(self.topic_partition)


def identity_of(directory: Path, file: LogFile) -> FileIdentity:
    """A file of a directory as it is now."""
    known, size_bytes, mtime_ns = file.identity, len(file.batches) * BATCH_BYTES, file.written_ms * NS_PER_MS
    if known is None or (known.directory, known.size_bytes, known.mtime_ns) != (directory, size_bytes, mtime_ns):
        known = file.identity = FileIdentity(directory, file.name, file.inode, size_bytes, mtime_ns)
    return known


class Replica:
    """The last of `segments` is active.

    `history`: all batches of the log's line up to its end, also those that are deleted or cleaned. `known_from`: the first
    offset that this replica saw, below which it knows no producers. `inode`: of the directory. `birth`: distinguishes it from an
    earlier directory with the same inode. `first_dirty_offset`: of its broker's cleaner. `swap`: what the cleaner has left of
    segments that have lost their names already, while it has no name itself. `replaced`: by the inode of a file, that of what the
    cleaner left of it. `is_touched`: a file's time has changed, and the directory does not show that.
    """

    def __init__(
        self,
        place: Place,
        topic_id: str | None,
        next_inode: Callable[[], int],
        now_ms: Callable[[], int],
        *,
        inode: int | None = None,
        start_offset: int = 0,
        history: Iterable[Batch] = (),
    ) -> None:
        """Create the directory with an empty active segment."""
        self.place, self.topic_id = place, topic_id
        self.directory = place.directory
        self._next_inode, self._now_ms = next_inode, now_ms
        self.inode = next_inode() if inode is None else inode
        self.birth = next_inode()
        self.directory_id = (place.device, self.inode)
        self.segments = [LogFile(next_inode(), start_offset, now_ms())]
        self.history: list[Batch] = list(history)
        self.contents = {batch.content for batch in self.history}
        self.known_from = self.log_start_offset = self.end_offset = start_offset
        self.high_watermark = start_offset
        self.epochs = LeaderEpochs()
        self.replaced: dict[int, int] = {}
        self.producers: dict[int, ProducerEntry] = {}
        self.snapshots: dict[int, tuple[ProducerEntry, ...]] = {}
        self.first_dirty_offset: int | None = None
        self.swap: LogFile | None = None
        self.is_touched = False
        self._files: PartitionFiles | None = None

    # What a reader of the directory sees.

    def changed(self) -> None:
        """The next listing differs."""
        self._files, self.is_touched = None, False

    def files(self) -> PartitionFiles:
        """The directory as it is now."""
        if self._files is None:
            self._files = self._listed()
        return self._files

    def _listed(self) -> PartitionFiles:
        identities = [identity_of(self.directory, file) for file in self.segments]
        rolled = tuple(
            SegmentFiles(
                self.place.topic_partition,
                self.place.log_dir,
                file.base_offset,
                following.base_offset,
                identity,
                None,
                None,
                None,
                None,
            )
            for file, following, identity in zip(self.segments, self.segments[1:], identities, strict=False)
        )
        return PartitionFiles(
            topic_partition=self.place.topic_partition,
            log_dir=self.place.log_dir,
            directory=self.directory,
            topic_id=self.topic_id,
            segments=rolled,
            active_base_offset=self.segments[-1].base_offset,
            snapshot_offsets=tuple(sorted(self.snapshots)),
            unstable=self.swap is not None,
            directory_id=self.directory_id,
            active_log=identities[-1],
        )

    def file_at(self, base_offset: int) -> LogFile | None:
        """The `.log` of this name."""
        return next((file for file in self.segments if file.base_offset == base_offset), None)

    def batches(self) -> list[Batch]:
        """All that its files hold."""
        files = self.segments
        if self.swap is not None:
            files = sorted((*files, self.swap), key=lambda file: file.base_offset)
        return [batch for file in files for batch in file.batches]

    def gaps(self) -> list[int]:
        """Where batches are missing between its files, be the last one empty."""
        found = self.batches()
        bases = [*(batch.base_offset for batch in found[1:]), self.end_offset]
        return [one.end_offset for one, base_offset in zip(found, bases, strict=False) if one.end_offset < base_offset]

    def cleaned_offsets(self) -> set[int]:
        """Those that no batch has any more, though they are above the first one."""
        found = self.batches()
        offsets = {offset for batch in found for offset in range(batch.base_offset, batch.end_offset)}
        return set(range(found[0].base_offset if found else self.end_offset, self.end_offset)) - offsets

    # What its broker does.

    def append(self, batch: Batch) -> None:
        """At the end; a full active segment is rolled first. Source: UnifiedLog.maybeRoll.

        Also before a gap that no cleaner has left, which a broker would not do: symbolic segments have none inside.
        """
        newest = self.segments[-1].batches
        is_before_gap = newest and newest[-1].end_offset < batch.base_offset and not self.place.is_cleaned
        if len(newest) >= self.place.roll_batches or is_before_gap:
            self.roll(batch.base_offset)
        active = self.segments[-1]
        active.batches.append(batch)
        active.written_ms = self._now_ms()
        self.epochs = self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self.history.append(batch)
        self.contents.add(batch.content)
        apply(self.producers, batch)
        self.end_offset = batch.end_offset
        self.changed()

    def roll(self, base_offset: int | None = None) -> bool:
        """Close the active segment, unless it is empty; whether it was closed. Source: LocalLog.roll, UnifiedLog.roll."""
        if not self.segments[-1].batches:
            return False
        base_offset = self.end_offset if base_offset is None else base_offset
        self.segments.append(LogFile(self._next_inode(), base_offset, self._now_ms()))
        self.snapshots[base_offset] = tuple(entry for _, entry in sorted(self.producers.items()))
        self.changed()
        return True

    def truncate(self, end_offset: int) -> None:
        """Remove what lies at or above an offset, in place. Source: LocalLog.truncateTo, UnifiedLog.truncateTo."""
        if end_offset >= self.end_offset:
            # An epoch without a batch may be there, which this broker led under and the leader does not know.
            self.epochs = self.epochs.truncate_from_end(end_offset)
            return
        if end_offset < self.segments[0].base_offset:
            self.restart_at(end_offset)
            return
        while len(self.segments) > 1 and self.segments[-1].base_offset > end_offset:
            self._remove(self.segments.pop())
        active = self.segments[-1]
        active.batches = [batch for batch in active.batches if batch.end_offset <= end_offset]
        active.written_ms = self._now_ms()
        self._cut_history(end_offset)
        self.end_offset = end_offset
        self.epochs = self.epochs.truncate_from_end(end_offset)
        self.snapshots = {offset: found for offset, found in self.snapshots.items() if offset <= end_offset}
        self.producers = replayed(batch for batch in self.history if batch.base_offset >= self.known_from)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.changed()

    def restart_at(self, offset: int, history: Iterable[Batch] | None = None) -> None:
        """Remove everything and begin at an offset. Source: UnifiedLog.truncateFullyAndStartAt."""
        for file in self.segments:
            self._remove(file)
        self.segments = [LogFile(self._next_inode(), offset, self._now_ms())]
        if history is None:
            self._cut_history(offset)
        else:
            self.history = [batch for batch in history if batch.end_offset <= offset]
            self.contents = {batch.content for batch in self.history}
        self.known_from = self.log_start_offset = self.end_offset = self.high_watermark = offset
        self.epochs, self.producers, self.snapshots = LeaderEpochs(), {}, {}
        self.changed()

    def _cut_history(self, end_offset: int) -> None:
        while self.history and self.history[-1].end_offset > end_offset:
            self.contents.discard(self.history.pop().content)

    def delete_oldest(self, count: int) -> None:
        """Retention takes so many of the oldest segments; the active one is rolled first where it is the last of them.

        Only below the high watermark. Source: UnifiedLog.deletableSegments, UnifiedLog.deleteSegments.
        """
        for _ in range(count):
            first = self.segments[0]
            end_offset = self.end_offset if len(self.segments) == 1 else self.segments[1].base_offset
            if end_offset > self.high_watermark or (len(self.segments) == 1 and not self.roll()):
                break
            self._remove(first)
            del self.segments[0]
            self._start_at(max(self.log_start_offset, self.segments[0].base_offset))

    def begin_swap(self, files: Sequence[LogFile], batches: list[Batch]) -> None:
        """The cleaner replaces neighbouring segments by one with these batches. Source: LocalLog.replaceSegments."""
        self.swap = LogFile(self._next_inode(), files[0].base_offset, files[-1].written_ms, batches)
        self.first_dirty_offset = self.segments[self.segments.index(files[-1]) + 1].base_offset
        for file in files:
            self.replaced[file.inode] = self.swap.inode
            self._remove(file)
            self.segments.remove(file)
        for file in files[1:]:
            self.snapshots.pop(file.base_offset, None)
        self.changed()

    def end_swap(self) -> None:
        """What the cleaner has left gets its name."""
        if self.swap is not None:
            self.segments = sorted((*self.segments, self.swap), key=lambda file: file.base_offset)
            self.swap = None
            self.changed()

    def touch(self, number: int) -> None:
        """The time of a rolled segment's file changes, and none of its bytes."""
        if rolled := self.segments[:-1]:
            rolled[number % len(rolled)].written_ms = self._now_ms()
            self.is_touched = self._files is not None

    def lose_file(self, number: int) -> LogFile | None:
        """A `.log` between others is gone from the disk. Its broker goes on, and does not know. None where there is no such one."""
        between = self.segments[1:-1]
        if not between:
            return None
        self._remove(lost := between[number % len(between)])
        self.segments.remove(lost)
        self.changed()
        return lost

    def delete(self) -> None:
        """The directory goes, with all that is in it."""
        for file in self.segments:
            self._remove(file)

    def delete_below_start(self) -> None:
        """Segments that lie below the log start. Source: UnifiedLog.deleteLogStartOffsetBreachedSegments."""
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.log_start_offset:
            self._remove(self.segments.pop(0))
        self._start_at(self.log_start_offset)

    def raise_start(self, offset: int) -> None:
        """DeleteRecords, or what the leader says. Source: UnifiedLog.maybeIncrementLogStartOffset."""
        if offset > self.log_start_offset:
            self._start_at(offset)

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        first_offset = self.segments[0].base_offset
        self.epochs = self.epochs.truncate_from_start(offset)
        self.snapshots = {at: found for at, found in self.snapshots.items() if at >= first_offset}
        self.changed()

    def _remove(self, file: LogFile) -> None:
        if file.removed_ms is None:
            file.removed_ms = self._now_ms()
