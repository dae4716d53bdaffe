"""Which batch a broker needs of each producer to recognise its retries."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from producer_state.facts import Int16Column, Int64Column
from producer_state.table import ProducerTable


@dataclass(frozen=True, slots=True, eq=False)
class LastBatches:
    """Producers in ascending id, columns of equal length: the end of its last data batch (-1: none known) and its epoch.

    Taken from the producer state at the end of the compacted range, or behind it. Source: Cleaner.cleanSegments.
    """

    producer_id: Int64Column = field(default_factory=lambda: np.empty(0, np.int64))
    last_offset: Int64Column = field(default_factory=lambda: np.empty(0, np.int64))
    producer_epoch: Int16Column = field(default_factory=lambda: np.empty(0, np.int16))

    @classmethod
    def of(cls, table: ProducerTable) -> LastBatches:
        """What a producer table says of its producers, unexpired or not: the caller has chosen them."""
        rows = table.rows
        return cls(*(np.ascontiguousarray(rows[name]) for name in ("producer_id", "last_offset", "producer_epoch")))

    def any_within(self, first_offset: int, last_offset: int) -> bool:
        """Whether the last data batch of some producer ends there."""
        return bool(((self.last_offset >= first_offset) & (self.last_offset <= last_offset)).any())
