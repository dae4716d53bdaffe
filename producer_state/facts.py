"""What this package needs to know of record batches: a table of columns, one row per batch in log order."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from producer_state.kernel_library import Block
from producer_state.wire import ProducerStateError

TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

# Why a kernel stopped.
NO_PROBLEM = 0
INVALID_TXN_STATE = 1
MALFORMED = 2
NOT_ASCENDING = 3

MARKER_ABORT = 0
MARKER_COMMIT = 1
NO_MARKER = -1
"""`marker_type` of a batch that is no control batch, or of a control batch without records."""
MALFORMED_MARKER = -2
"""`marker_type` of a control batch whose first record could not be parsed."""

Int64Column = npt.NDArray[np.int64]
Int32Column = npt.NDArray[np.int32]
Int16Column = npt.NDArray[np.int16]
Int8Column = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """Columns of equal length n, in ascending offset order.

    Legacy batches (magic 0 and 1) have producer_id -1; where they are compressed, record_count is -1 and base_offset
    equals last_offset, because only the wrapper was read. Absent values are -1, as on the wire.
    Source: the header fields of DefaultRecordBatch and the records of ControlRecordType / EndTransactionMarker.
    """

    base_offset: Int64Column
    last_offset: Int64Column
    producer_id: Int64Column
    producer_epoch: Int16Column
    last_sequence: Int32Column
    max_timestamp_ms: Int64Column
    attributes: Int16Column
    record_count: Int32Column
    marker_type: Int8Column
    coordinator_epoch: Int32Column
    marker_timestamp_ms: Int64Column

    def __len__(self) -> int:
        return int(self.base_offset.shape[0])

    def __getitem__(self, rows: slice) -> BatchFacts:
        return BatchFacts(*(column[rows] for column in self.columns()))

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


_WIDE, _WORD, _HALF, _BYTE = Block.of(np.int64), Block.of(np.int32), Block.of(np.int16), Block.of(np.int8)
FACTS = (_WIDE, _WIDE, _WIDE, _HALF, _WORD, _WIDE, _HALF, _WORD, _BYTE, _WORD, _WIDE)
"""`BatchFacts.columns` as parameters of a kernel."""

_WHAT = {
    # A broker refuses to load such a log. Source: ProducerAppendInfo.appendDataBatch.
    INVALID_TXN_STATE: "a batch outside of transactions while the producer's transaction is open (expected its commit or abort "
    "marker first); keep the log and repair the partition before it is used",
    # Source: EndTransactionMarker.deserialize.
    MALFORMED: "its control record is not an end-transaction marker (expected type 0 or 1 and a value of 6 bytes or more)",
    NOT_ASCENDING: "batches are not in log order (expected offset {expected_offset} or above)",
}


class BatchProblem(ProducerStateError):
    """A batch that no broker could apply either; `producer_id` and the batch's base `offset` say which, `problem` why."""

    def __init__(self, problem: int, *, producer_id: int, offset: int, expected_offset: int = 0) -> None:
        """Args: expected_offset: where the batch may begin at the lowest, for NOT_ASCENDING."""
        what = _WHAT[problem].format(expected_offset=expected_offset)
        super().__init__(f"offset {offset}, producer {producer_id}: {what}")
        self.problem = problem
        self.producer_id = producer_id
        self.offset = offset


def problem_at(facts: BatchFacts, row: int, problem: int, expected_offset: int) -> BatchProblem:
    producer_id, offset = int(facts.producer_id[row]), int(facts.base_offset[row])
    return BatchProblem(problem, producer_id=producer_id, offset=offset, expected_offset=expected_offset)
