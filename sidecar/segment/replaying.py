"""What the next batches of a log do to producer state, and whether a cleaner has worked on them."""

import numpy as np

from producer_state.replay import CompletedTransaction, replay
from producer_state.table import ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.errors import PartitionError
from sidecar.logformat.batches import BatchColumns


def replayed(
    state: ProducerTable, columns: BatchColumns, name: str, advice: str = "a broker would refuse to load this log"
) -> tuple[ProducerTable, tuple[CompletedTransaction, ...]]:
    """As `replay`, of the next batches of a log; `name` and `advice` are for messages. Raises PartitionError."""
    try:
        return replay(state, columns.facts())
    except ProducerStateError as error:
        raise PartitionError(f"{name}: {error}; {advice}") from error


def shows_cleaning(columns: BatchColumns, expected_offset: int) -> bool:
    """Whether compaction has been here: offsets missing inside or between batches, or a delete horizon."""
    follows = np.concatenate([[expected_offset], columns.last_offset[:-1] + 1])
    current = columns.magic == 2
    missing_inside = current & (columns.record_count != columns.last_offset - columns.base_offset + 1)
    missing_between = current & (columns.base_offset != follows)
    return bool((missing_inside | missing_between | (columns.delete_horizon_ms >= 0)).any())
