"""What this package needs to know of record batches: a table of columns, one row per batch in log order."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

TRANSACTIONAL = 0x10
CONTROL = 0x20

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

    Legacy batches (magic 0 and 1) have producer_id -1. Absent values are -1, as on the wire.
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
        return BatchFacts(*(getattr(self, field.name)[rows] for field in fields(self)))
