"""What a replay that starts in the middle of a log cannot know of a producer, and where older segments tell it.

- After the start it wrote in a transaction, and no marker has followed: did the transaction begin before? Of which
  coordinator was the last marker?
- Only markers have followed, all of one epoch: what was its last batch?
- Nothing has followed, but a later marker shows that it may have a transaction open: everything.

A marker answers the first and the last: what was open before it is finished. Producers that only ever write outside of
transactions raise no question, as they never have markers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from producer_state.digest import HAS_MARKER, HAS_OPERATIONS, UNIFORM_EPOCH, SegmentDigest, apply, merge
from producer_state.facts import Int64Column
from producer_state.snapshot import Rows
from producer_state.table import ProducerTable


@dataclass(frozen=True, slots=True)
class Questions:
    """Producers of whom the last marker before the start must be known, and those of whom the last batch must be.

    The latter with the epoch of their first marker after it: a batch of another epoch is of no interest.
    """

    last_marker: Int64Column
    last_batch: Int64Column
    last_batch_epochs: Int64Column

    @property
    def producer_ids(self) -> Int64Column:
        return np.union1d(self.last_marker, self.last_batch)

    def but(self, settled: Int64Column) -> Questions:
        """Without asking for the last marker of these producers."""
        return replace(self, last_marker=np.setdiff1d(self.last_marker, settled))

    def answered_by(self, digest: SegmentDigest) -> bool:
        """Whether these operations, which end at the start of the replay, settle everything."""
        rows = digest.rows
        marked = rows["producer_id"][rows["flags"] & HAS_MARKER != 0]
        if not np.isin(self.last_marker, marked).all():
            return False
        at = np.searchsorted(rows["producer_id"], self.last_batch)
        known = at < len(rows)
        known[known] = rows["producer_id"][at[known]] == self.last_batch[known]
        if not known.all():
            return False
        asked = rows[at]
        with_batch = (asked["last_offset"] >= 0) | (asked["flags"] & UNIFORM_EPOCH == 0)
        operated = asked["flags"] & HAS_OPERATIONS != 0
        return bool((operated & (with_batch | (asked["last_epoch"] != self.last_batch_epochs))).all())


def questions_of(
    digests: Sequence[SegmentDigest], start_offset: int, boundaries: Sequence[int], later_markers: Collection[int]
) -> Questions:
    """What a replay of adjacent digests from `start_offset` on leaves open at any of the boundaries (ascending).

    `later_markers`: producers of markers above the last digest. Raises BatchProblem.
    """
    last_marker = np.empty(0, np.int64)
    last_batch: dict[int, int] = {}
    seen = SegmentDigest.empty(start_offset, start_offset)
    for following in range(len(digests) + 1):
        if seen.coverage.end_offset in boundaries:
            rows = seen.rows
            undecided = (rows["txn_first_offset"] >= 0) & (rows["flags"] & HAS_MARKER == 0)
            last_marker = np.union1d(last_marker, rows["producer_id"][undecided])
            unseen = (rows["flags"] & UNIFORM_EPOCH != 0) & (rows["last_offset"] < 0)
            last_batch |= dict(
                zip(*(rows[unseen][name].tolist() for name in ("producer_id", "first_epoch")), strict=True)
            )
        # What is silent at a later boundary and has a marker above it, is and has so at the first one too.
        if seen.coverage.end_offset == boundaries[0]:
            marked = [_marked(digest.rows) for digest in digests[following:]]
            marked.append(np.array(sorted(later_markers), np.int64))
            operating = seen.rows["producer_id"][seen.rows["flags"] & HAS_OPERATIONS != 0]
            last_marker = np.union1d(last_marker, np.setdiff1d(np.concatenate(marked), operating))
        if following < len(digests):
            seen = merge(seen, digests[following])
    asked = sorted(last_batch)
    epochs = [last_batch[producer_id] for producer_id in asked]
    return Questions(last_marker, np.array(asked, np.int64), np.array(epochs, np.int64))


def markers_of(digests: Sequence[SegmentDigest]) -> frozenset[int]:
    return frozenset(producer_id for digest in digests for producer_id in _marked(digest.rows).tolist())


def _marked(rows: Rows) -> Int64Column:
    marked: Int64Column = rows["producer_id"][rows["flags"] & HAS_MARKER != 0]
    return marked


class SegmentUnreadable(Exception):
    """A segment cannot be digested, and nothing below it is to be read: what it would have shown stays unknown."""


class LogBelow(Protocol):
    """The log below the start of a replay, read backwards, and the snapshots there."""

    def table(self, offset: int) -> ProducerTable | None:
        """The state by the snapshot at an offset, None if there is none that can be built on."""

    def next_digest(self) -> SegmentDigest | None:
        """The digest of the next segment below, the topmost one first; None where the log begins. Raises SegmentUnreadable."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known at a start of the producers asked for. `uncleaned`: no cleaner has been where that was read.

    `unreadable_below`: None, or what was read above a segment that cannot be; see `Questions.answered_by` for what that settles.
    """

    table: ProducerTable
    uncleaned: bool
    unreadable_below: SegmentDigest | None = None


def answer(log: LogBelow, questions: Questions, start_offset: int, known: ProducerTable | None = None) -> Answer:
    """What is known at `start_offset` of the producers asked for.

    Reads segments backwards until everything is answered, a snapshot has the rest, or the log begins.
    An empty snapshot proves nothing here: producers with a transaction open never expire, so one of a broker
    that knew them would not be empty.
    `known`: the state at an older segment's base, from an earlier replay; nothing below it is read.
    """
    found, exact = SegmentDigest.empty(start_offset, start_offset), True
    producer_ids = questions.producer_ids
    while not questions.answered_by(found):
        offset = found.coverage.start_offset
        if known is not None and offset == known.end_offset:
            return Answer(apply(known.only(producer_ids), found), exact)
        table = log.table(offset)
        if table is not None and len(table):
            return Answer(apply(table.only(producer_ids), found), exact)
        try:
            digest = log.next_digest()
        except SegmentUnreadable:
            return Answer(apply(ProducerTable.blank(offset), found), exact, found)
        if digest is None:
            break
        exact = exact and digest.exact
        found = merge(digest.only(producer_ids), found)
    return Answer(apply(ProducerTable.blank(found.coverage.start_offset), found), exact)
