"""The headers of an archived segment, read by the task that then scans it: where it is split, and which records are aborted.

Each segment is replayed from the archived state at its base, so that no task waits for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from producer_state.replay import CompletedTransaction, replay
from producer_state.table import ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.compaction.verdicts import judge_splits
from sidecar.compactor.archive.archived_log import ArchivedLog
from sidecar.errors import CorruptFile, PartitionError
from sidecar.host import process_store
from sidecar.logformat.batches import BatchColumns, SegmentScanner
from sidecar.logformat.window import ReadAt
from sidecar.model import ArchivedSegment
from sidecar.rewriting.job import Cutter, SurveyedSegment, input_of, padded
from sidecar.segment.archived_objects import table_at_end

_WINDOW_BYTES: Final = 4 * 1024 * 1024
_AHEAD_BYTES: Final = 256 * 1024
"""Of the next segment, at once: transactions that are open at a segment's end mostly end in the first batches behind it."""
_AHEAD_BATCHES: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class ArchivedSurvey:
    """A `SegmentSurvey` of `log`, number `number` of the partition's `live` segments."""

    log: ArchivedLog
    number: int
    live: tuple[ArchivedSegment, ...]
    split_bytes: int
    spares_deletes: bool = False

    @contextmanager
    def __call__(self) -> Iterator[SurveyedSegment]:
        """See `SegmentSurvey`."""
        log, cutter, completed = self.log, Cutter(self.split_bytes), list[CompletedTransaction]()
        with log.fetched() as read_at:
            # The scan that follows checks the checksums.
            for columns, ended in self._replayed(self.number, read_at):
                cutter.add(columns)
                completed += ended
            pieces = padded(cutter.finish(), log.size_bytes, self.split_bytes)
            if any(len(piece.events) for piece in pieces):
                completed += self._ended_later()
            verdicts = judge_splits(
                [piece.events for piece in pieces],
                [piece.batch_count for piece in pieces],
                [transaction for transaction in completed if transaction.aborted],
                log.base_offset,
                log.end_offset,
                spares_deletes=self.spares_deletes,
            )
            yield SurveyedSegment(input_of(log, read_at), pieces, tuple(completed), tuple(verdicts))

    def _ended_later(self) -> Iterator[CompletedTransaction]:
        """What ends above this segment, up to where the transactions have ended that are open at its end."""
        store = process_store.store_of(self.log.store)
        rows = table_at_end(store, self.log.root, self.live[self.number]).rows
        rows = rows[rows["current_txn_first_offset"] >= 0]
        pending = set(zip(rows["producer_id"].tolist(), rows["current_txn_first_offset"].tolist(), strict=True))
        for number in range(self.number + 1, len(self.live)):
            if not pending:
                return
            following = replace(self.log, segment=self.live[number])
            with following.opened() as segment:
                for _, ended in self._replayed(number, segment.read_at, _AHEAD_BYTES, _AHEAD_BATCHES):
                    yield from ended
                    pending -= {(transaction.producer_id, transaction.first_offset) for transaction in ended}
                    if not pending:
                        return

    def _replayed(
        self, number: int, read_at: ReadAt, window_bytes: int = _WINDOW_BYTES, max_batches: int = 65_536
    ) -> Iterator[tuple[BatchColumns, tuple[CompletedTransaction, ...]]]:
        """The headers of a live segment, and the transactions that end there."""
        log = replace(self.log, segment=self.live[number])
        table, before = ProducerTable.blank(log.base_offset), self.live[number - 1] if number else None
        if before is not None and before.end_offset == log.base_offset:
            table = table_at_end(process_store.store_of(log.store), log.root, before)
        scanner = SegmentScanner(
            read_at,
            log.size_bytes,
            base_offset=log.base_offset,
            check_crc=False,
            file=log.key,
            window_bytes=window_bytes,
            max_batches=max_batches,
        )
        last_offset = -1
        for columns in scanner:
            try:
                table, ended = replay(table, columns.facts())
            except ProducerStateError as error:
                raise PartitionError(
                    f"{log.key}: {error}; run verify --deep to see whether the object is damaged"
                ) from error
            last_offset = int(columns.last_offset[-1])
            yield columns, tuple(ended)
        scanner.require_exact()
        if last_offset >= log.end_offset:
            raise CorruptFile(f"holds offset {last_offset}, but the segment ends at {log.end_offset}", file=log.key)
