"""The digest of one segment: the task that every engine runs; and the partitions that have them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from producer_state.digest import DigestBuilder, SegmentDigest
from producer_state.facts import BatchFacts
from producer_state.table import ProducerTable
from producer_state.window import Segment
from producer_state.wire import ProducerStateError
from sidecar.errors import CorruptFile, SegmentChanged, SidecarError
from sidecar.logformat.files import PositionalFile, open_regular, reading
from sidecar.logformat.window import ReadAt
from sidecar.model import TopicPartition
from sidecar.reporting.advice import advised

_WINDOW_BYTES: Final = 2 * 1024 * 1024
_CHUNK_BATCHES: Final = 16_384
"""So that the bytes are still in the processor's cache when they are used: larger ones are a tenth slower."""

FETCH_AGAIN: Final = "stop the broker and move the partition's directory away: the broker fetches it when it starts"


class SegmentSource(Protocol):
    """Where a segment's bytes are; goes to other processes by pickle."""

    @property
    def name(self) -> str:
        """For messages: a path or a key."""

    @property
    def size_bytes(self) -> int:
        """As listed or committed."""

    @property
    def remedy(self) -> str:
        """For people: what to do about damage in it."""

    def opened(self) -> AbstractContextManager[ReadAt]:
        """A positional reader, as long as the block lasts."""


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A `.log` file. `growing`: the active segment, which may have become longer since it was listed."""

    name: str
    size_bytes: int
    growing: bool = False

    @property
    def remedy(self) -> str:
        return f"if another replica is whole, {FETCH_AGAIN}"

    @contextmanager
    def opened(self) -> Iterator[ReadAt]:
        """See `SegmentSource`. Raises SegmentChanged, PartitionError."""
        with reading(self.name), os.fdopen(open_regular(Path(self.name)), "rb", buffering=0) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if size_bytes != self.size_bytes and not self.growing:
                raise SegmentChanged(
                    f"{self.name}: {size_bytes} bytes, {self.size_bytes} when it was listed; run again"
                )
            yield PositionalFile(file.fileno())


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Digest the batches of a segment.

    `end_offset` None: the active segment, of which only what lies below the last cut is read.
    `cuts`: offsets inside the segment, ascending, at which a piece ends.
    """

    source: SegmentSource
    base_offset: int
    end_offset: int | None
    cuts: tuple[int, ...] = ()


class PartitionLog(Protocol):
    """A partition's segments and snapshots, wherever they lie."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def place(self) -> str:
        """For people: a directory, or a place in an archive."""

    @property
    def first_offset(self) -> int:
        """Base of the first segment. Raises PartitionError where there is none."""

    @property
    def log_start_offset(self) -> int:
        """What a broker replays from; DeleteRecords may have moved it above `first_offset`. Raises PartitionError."""

    @property
    def compacted(self) -> bool:
        """Whether a log cleaner is said to have cleaned it, or this is unknown: offsets may be missing then."""

    @property
    def bases(self) -> tuple[int, ...]:
        """Bases of all segments above the first, and the end of the last rolled one: where tiering asks for a snapshot."""

    @property
    def snapshot_offsets(self) -> Collection[int]: ...

    @property
    def strays(self) -> frozenset[int]:
        """Offsets of snapshots that a broker deletes unread when it starts. Raises as `first_offset`."""

    @property
    def dropped_below(self) -> int:
        """Up to which offset producers were left out by a restore; 0 where none were. See `dropped_producers`."""

    @property
    def keeps_undecided(self) -> bool:
        """Whether those were kept who were in the middle of a transaction."""

    @property
    def begins_anew(self) -> frozenset[int]:
        """Ends of segments above which no producer from below is known, though snapshots there name them; but for those
        undecided."""

    def snapshot(self, offset: int) -> tuple[bytes, int]:
        """A snapshot's bytes, and a time (ms) not before it was written and not later than now.

        Raises SegmentChanged if it is gone, PartitionError if it cannot be read.
        """

    def without_decided(self, table: ProducerTable) -> ProducerTable:
        """A state without the transactions that have ended, and of which no batch is in the log below it: nothing depends on them.

        A cleaner may have taken their markers, and a broker would wait for these for ever. Raises SegmentChanged, PartitionError.
        """

    def recorded_exact(self, offset: int) -> bool | None:
        """Whether a snapshot is exact by the record of whoever stored it, None where nothing records it."""

    def spans(self) -> Sequence[Segment]:
        """All segments with their newest timestamps, ascending; the active one last, if there is one, and its is not known."""

    def tasks(self, last_offset: int, cuts: Sequence[int]) -> tuple[SegmentTask, ...]:
        """One per segment that begins below an offset, adjacent, with the cuts inside of it.

        Raises SegmentChanged if segments have vanished.
        """


@dataclass(frozen=True, slots=True)
class DigestedSegment:
    """Digests of the pieces of a segment in offset order, adjacent to one another.

    `misplaced`: cuts at which no batch ends, each with the reason. `problem`: why the digests end early, "" if they do not.
    """

    pieces: tuple[SegmentDigest, ...]
    misplaced: tuple[tuple[int, str], ...] = ()
    problem: str = ""


def digest_group(tasks: Sequence[SegmentTask]) -> list[DigestedSegment]:
    """What an engine runs: small segments are handed out many at a time."""
    return [digest_segment(task) for task in tasks]


def digest_segment(task: SegmentTask) -> DigestedSegment:
    """Read a segment once, every batch checked, memory independent of its size. Raises nothing that lies in its bytes."""
    from sidecar.logformat.batches import SegmentScanner  # loads numba

    pieces = _Pieces(task)
    try:
        with task.source.opened() as read_at:
            scanner = SegmentScanner(
                read_at,
                task.source.size_bytes,
                base_offset=task.base_offset,
                file=task.source.name,
                window_bytes=_WINDOW_BYTES,
                max_batches=_CHUNK_BATCHES,
            )
            for columns in scanner:
                pieces.add(columns.facts())
                if pieces.done:
                    return pieces.result()
            scanner.require_exact()
            pieces.finish(task.end_offset)
    except CorruptFile as error:
        found = error if error.file else error.within(task.source.name)
        return pieces.result(str(found) if found.advice else f"{found}; {task.source.remedy}")
    except ProducerStateError as error:
        return pieces.result(f"{task.source.name}: {error}; {task.source.remedy}")
    except SidecarError as error:
        return pieces.result(advised(error))
    return pieces.result()


class _Pieces:
    """Cuts the batches of a segment into digests."""

    def __init__(self, task: SegmentTask) -> None:
        self._task = task
        self._cuts = list(task.cuts)
        self._builder = DigestBuilder(task.base_offset)
        self._next_offset = task.base_offset
        self._digests: list[SegmentDigest] = []
        self._misplaced: list[tuple[int, str]] = []

    @property
    def done(self) -> bool:
        """Whether nothing above the last cut is wanted."""
        return self._task.end_offset is None and not self._cuts

    def add(self, facts: BatchFacts) -> None:
        while self._cuts and len(facts) and int(facts.last_offset[-1]) >= self._cuts[0]:
            cut = self._cuts.pop(0)
            below = int(np.searchsorted(facts.last_offset, cut))
            self._take(facts[:below])
            facts = facts[below:]
            if int(facts.base_offset[0]) < cut:
                batch = f"[{int(facts.base_offset[0])}, {int(facts.last_offset[0])}]"
                self._misplaced.append((cut, f"it is inside the batch {batch}"))
            else:
                self._cut_at(cut)
        if self.done:
            return
        self._take(facts)
        if self._task.end_offset is None and self._cuts == [self._next_offset]:
            self._cut_at(self._cuts.pop(0))

    def _take(self, facts: BatchFacts) -> None:
        self._builder.add(facts)
        if len(facts):
            self._next_offset = int(facts.last_offset[-1]) + 1

    def _cut_at(self, offset: int) -> None:
        self._digests.append(self._builder.finish(offset))
        self._builder = DigestBuilder(offset)

    def finish(self, end_offset: int | None) -> None:
        if end_offset is None:
            what = f"the log ends at {self._next_offset}"
            for cut in self._cuts:
                if cut == self._next_offset:
                    self._cut_at(cut)
                else:
                    self._misplaced.append((cut, what))
            return
        if self._next_offset > end_offset:
            what = f"has offset {self._next_offset - 1}, but the next segment begins at {end_offset}"
            raise CorruptFile(what, file=self._task.source.name)
        for offset in (*self._cuts, end_offset):
            self._cut_at(offset)

    def result(self, problem: str = "") -> DigestedSegment:
        return DigestedSegment(tuple(self._digests), tuple(self._misplaced), problem)
