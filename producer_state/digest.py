"""What the batches of a stretch of log do to each producer, whatever was before: a value that can be merged.

A digest of a whole segment is taken once, when it is rolled. Digests of adjacent stretches merge associatively, and
applying one to the state at its start gives the state at its end, so that the state at every segment boundary is a
fold. Both drivers (in process and Spark) use nothing but these functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from producer_state.facts import (
    FACTS,
    INVALID_TXN_STATE,
    NO_PROBLEM,
    BatchFacts,
    BatchProblem,
    Int64Column,
    problem_at,
)
from producer_state.kernel_library import LIBRARY, Block
from producer_state.snapshot import ENTRY_DTYPE, Rows
from producer_state.table import ProducerTable
from producer_state.wire import Int8, Int16, Int32, Int64, Layout

# Flags of ProducerDigest.
HAS_OPERATIONS = 1
UNIFORM_EPOCH = 2
HAS_MARKER = 4

# Signs of a cleaner's work, in Coverage.cleaned.
SHORT_BATCH = 1
SEEN_DELETE_HORIZON = 2
OFFSET_GAP = 4
END_GAP = 8
"""Offsets are missing at the very end: a cleaner took them, or a whole segment is gone."""


@dataclass(frozen=True, slots=True)
class ProducerDigest:
    """What happened to one producer. An operation is a data batch or a marker; an empty control batch is none.

    `last_sequence`, `last_offset`, `offset_delta`: the last data batch among the operations at the end that share
    `last_epoch` (-1, -1, 0: none). `last_timestamp_ms`: of the last operation. `coordinator_epoch`: of the last marker.
    `txn_first_offset`: of the transaction left open, as far as it was begun here. `first_plain_offset`: of the first
    batch outside of transactions before any marker; illegal if a transaction was open before.
    """

    producer_id: Int64
    last_offset: Int64
    last_timestamp_ms: Int64
    txn_first_offset: Int64
    first_plain_offset: Int64
    last_sequence: Int32
    offset_delta: Int32
    coordinator_epoch: Int32
    first_epoch: Int16
    last_epoch: Int16
    flags: Int8


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a digest covers: [start_offset, end_offset), and what all its batches together say.

    `max_timestamp_ms`: the largest of any batch, -1 where there is none.
    """

    start_offset: Int64
    end_offset: Int64
    batch_count: Int64
    max_timestamp_ms: Int64
    cleaned: Int8


DIGEST_DTYPE = Layout(ProducerDigest).dtype("=")
COVERAGE_DTYPE = Layout(Coverage).dtype("=")
_FIRST_CAPACITY = 64
_SLOTS_PER_ROW = 4
_ROWS, _ENTRIES, _SLOTS = Block.of(DIGEST_DTYPE), Block.of(ENTRY_DTYPE), Block.of(np.int32)
_digest = LIBRARY.kernel(
    "producer_state.kernels", "digest", [None, *FACTS, _SLOTS, _ROWS, None, Block.of(COVERAGE_DTYPE)], 3
)
_index_digests = LIBRARY.kernel("producer_state.kernels", "index_rows", [_SLOTS, _ROWS, None], 0, "_digests")
_merge = LIBRARY.kernel("producer_state.kernels", "merge", [_ROWS, _ROWS, _ROWS], 2)
_apply = LIBRARY.kernel("producer_state.kernels", "apply", [_ENTRIES, _ROWS, _ENTRIES], 2)


@dataclass(frozen=True, slots=True, eq=False)
class SegmentDigest:
    """Records of DIGEST_DTYPE in ascending producer id, and what they cover. Never changed."""

    coverage: Coverage
    rows: Rows

    @classmethod
    def empty(cls, start_offset: int, end_offset: int) -> SegmentDigest:
        return cls(Coverage(start_offset, end_offset, 0, -1, 0), np.empty(0, DIGEST_DTYPE))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SegmentDigest):
            return NotImplemented
        return self.coverage == other.coverage and bool(np.array_equal(self.rows, other.rows))

    __hash__ = None  # type: ignore[assignment]  # arrays inside: it can be compared, not hashed

    @property
    def exact(self) -> bool:
        """False if a cleaner has been here: what it removed cannot be replayed."""
        return self.coverage.cleaned == 0

    def only(self, producer_ids: Int64Column) -> SegmentDigest:
        return SegmentDigest(self.coverage, self.rows[np.isin(self.rows["producer_id"], producer_ids)])


class DigestBuilder:
    """Takes the batches of a stretch chunk by chunk; memory depends on the number of producers only."""

    def __init__(self, start_offset: int) -> None:
        self._coverage = np.array([(start_offset, start_offset, 0, -1, 0)], COVERAGE_DTYPE)
        self._rows = np.empty(_FIRST_CAPACITY, DIGEST_DTYPE)
        self._slots = np.full(_SLOTS_PER_ROW * _FIRST_CAPACITY, -1, np.int32)
        self._used = 0

    def add(self, facts: BatchFacts) -> None:
        """The next batches. Raises BatchProblem: the builder is then of no further use."""
        columns = facts.columns()
        done = 0
        while done < len(facts):
            done, self._used, problem = _digest(done, *columns, self._slots, self._rows, self._used, self._coverage)
            if problem != NO_PROBLEM:
                raise problem_at(facts, done, problem, int(self._coverage["end_offset"][0]))
            if self._used == len(self._rows):
                self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
                self._slots = np.full(_SLOTS_PER_ROW * len(self._rows), -1, np.int32)
                _index_digests(self._slots, self._rows, self._used)

    def finish(self, end_offset: int) -> SegmentDigest:
        """The digest of everything added, covering up to `end_offset`. Raises ValueError if a batch reaches it.

        For a segment, that is the next segment's base: a gap at the end counts as a sign of cleaning.
        """
        covered = Coverage(*self._coverage[0].tolist())
        if covered.end_offset > end_offset:
            raise ValueError(f"batches reach offset {covered.end_offset - 1}, beyond the end {end_offset}")
        cleaned = covered.cleaned | (END_GAP if covered.end_offset < end_offset else 0)
        rows = self._rows[: self._used]
        rows = rows[np.argsort(rows["producer_id"], kind="stable")]
        return SegmentDigest(replace(covered, end_offset=end_offset, cleaned=cleaned), rows)


def merge(first: SegmentDigest, second: SegmentDigest) -> SegmentDigest:
    """Digest of two adjacent stretches. Associative. Raises BatchProblem; ValueError if they are not adjacent."""
    a, b = first.coverage, second.coverage
    if a.end_offset != b.start_offset:
        raise ValueError(f"digests are not adjacent: one ends at {a.end_offset}, the next starts at {b.start_offset}")
    rows = np.empty(len(first.rows) + len(second.rows), DIGEST_DTYPE)
    count, offender = _merge(first.rows, second.rows, rows)
    _refuse_plain_batch(second, offender)
    # What was missing at the end of the first stretch lies inside the joined one, unless nothing follows.
    inside = a.cleaned & ~END_GAP | OFFSET_GAP if a.cleaned & END_GAP and b.batch_count else a.cleaned
    coverage = Coverage(
        start_offset=a.start_offset,
        end_offset=b.end_offset,
        batch_count=a.batch_count + b.batch_count,
        max_timestamp_ms=max(a.max_timestamp_ms, b.max_timestamp_ms),
        cleaned=inside | b.cleaned,
    )
    return SegmentDigest(coverage, rows[:count])


def apply(state: ProducerTable, digest: SegmentDigest) -> ProducerTable:
    """The state at the digest's end from the state at its start. Raises BatchProblem; ValueError if they do not meet."""
    if state.end_offset != digest.coverage.start_offset:
        raise ValueError(f"a state at {state.end_offset} cannot take a digest from {digest.coverage.start_offset} on")
    rows = np.empty(len(state.rows) + len(digest.rows), ENTRY_DTYPE)
    count, offender = _apply(state.rows, digest.rows, rows)
    _refuse_plain_batch(digest, offender)
    return ProducerTable(digest.coverage.end_offset, rows[:count])


def _refuse_plain_batch(digest: SegmentDigest, offender: int) -> None:
    if offender >= 0:
        row = digest.rows[offender]
        producer_id, offset = int(row["producer_id"]), int(row["first_plain_offset"])
        raise BatchProblem(INVALID_TXN_STATE, producer_id=producer_id, offset=offset)
