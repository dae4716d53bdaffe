"""The digest of one segment: the task that every engine runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from producer_state.digest import DigestBuilder, SegmentDigest
from producer_state.facts import BatchFacts
from producer_state.wire import ProducerStateError
from sidecar.errors import CorruptFile, SegmentChanged, SidecarError
from sidecar.logformat.files import PositionalFile, open_regular, reading
from sidecar.logformat.window import ReadAt
from sidecar.reporting.advice import advised

if TYPE_CHECKING:
    from sidecar.snapshots.archived_partition import ArchivedLog

_WINDOW_BYTES: Final = 2 * 1024 * 1024
_CHUNK_BATCHES: Final = 16_384
"""So that the bytes are still in the processor's cache when they are used: larger ones are a tenth slower."""

FETCH_AGAIN: Final = "stop the broker and move the partition's directory away: the broker fetches it when it starts"


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A `.log` file; goes to other processes by pickle. `growing`: the active segment, which may have become longer since it was
    listed.
    """

    name: str
    size_bytes: int
    growing: bool = False

    @property
    def remedy(self) -> str:
        """For people: what to do about damage in it."""
        return f"if another replica is whole, {FETCH_AGAIN}"

    @contextmanager
    def opened(self) -> Iterator[ReadAt]:
        """A positional reader, as long as the block lasts. Raises SegmentChanged, PartitionError."""
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

    source: LocalSegment | ArchivedLog
    base_offset: int
    end_offset: int | None
    cuts: tuple[int, ...] = ()


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
