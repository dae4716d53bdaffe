"""The compaction of one partition as a value: what goes in, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic

from producer_state.replay import CompletedTransaction
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rewrite_counts import RewriteCounts
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.segments import Split
from sidecar.compaction.verdicts import SplitVerdicts, judge_splits
from sidecar.rewriting.pieces import Piece
from sidecar.rewriting.sources import SourceT

HASH_KEY_BYTES: Final = 16
"""Of SipHash, by which keys are compared: nobody outside may choose keys that collide."""


@dataclass(frozen=True, slots=True, eq=False)
class CompactionJob(Generic[SourceT]):
    """Segments, ascending and without a hole, all of them decided, and what is known of them before they are read.

    `pieces`: by file, what each may be split into. `completed`: the transactions that ended in the range or overlap it; more
    do no harm. `last_batches`: of the producers known at the end of the range. `hash_key`: `HASH_KEY_BYTES` random ones.
    `start_offset`: of the log; records below it are deleted, they neither compete nor stay. `first_dirty_offset`: what lies
    below has been compacted before, which decides on tombstones of formats 0 and 1 (None: nothing has).
    """

    files: tuple[SourceT, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    completed: tuple[CompletedTransaction, ...]
    rules: CompactionRules
    last_batches: LastBatches
    hash_key: bytes
    start_offset: int = 0
    first_dirty_offset: int | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes to be compacted."""
        return sum(file.size_bytes for file in self.files)

    def splits(self) -> tuple[Split, ...]:
        """The pieces of all segments, numbered within this job."""
        found: list[Split] = []
        for index, pieces in enumerate(self.pieces):
            found += [Split(len(found) + at, index, piece.begin, piece.end) for at, piece in enumerate(pieces)]
        return tuple(found)

    def verdicts(self) -> tuple[SplitVerdicts, ...]:
        """By split."""
        pieces = [piece for held in self.pieces for piece in held]
        return tuple(
            judge_splits(
                [piece.events for piece in pieces],
                [piece.batch_count for piece in pieces],
                tuple(found for found in self.completed if found.aborted),
                self.files[0].base_offset,
                self.files[-1].end_offset,
                spares_deletes=self.rules.spares_deletes,
            )
        )


@dataclass(frozen=True, slots=True)
class RewrittenPiece:
    """The first `size_bytes` bytes of a part. Behind them the part may hold an ending that this output does not need."""

    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CompactedOutput(Generic[SourceT]):
    """One output segment `[base_offset, end_offset)`, made of `sources`.

    `pieces`: its bytes, in order: pieces of parts, and sources of which nothing is lost. `unchanged`: it is its one source,
    byte by byte. `transactions`: the aborted ones whose marker it still holds.
    """

    sources: tuple[SourceT, ...]
    pieces: tuple[RewrittenPiece | SourceT, ...]
    unchanged: bool
    size_bytes: int
    counts: RewriteCounts
    transactions: tuple[CompletedTransaction, ...]

    @property
    def base_offset(self) -> int:
        """Of its first source."""
        return self.sources[0].base_offset

    @property
    def end_offset(self) -> int:
        """Of its last source."""
        return self.sources[-1].end_offset

    def to_json(self) -> dict[str, Any]:
        """Names are stable."""
        return {
            "base_offset": self.base_offset,
            "end_offset": self.end_offset,
            "sources": [source.base_offset for source in self.sources],
            "size_bytes": self.size_bytes,
            "unchanged": self.unchanged,
        }
