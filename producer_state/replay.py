"""Applies batches to a producer table as a broker does under replication, and reports which transactions end.

Source: UnifiedLog.updateProducers, ProducerAppendInfo.append, ProducerStateManager.lastStableOffset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from producer_state.facts import CONTROL, FACTS, NO_PROBLEM, BatchFacts, problem_at
from producer_state.kernel_library import LIBRARY, Block
from producer_state.snapshot import ENTRY_DTYPE
from producer_state.table import ProducerTable
from producer_state.wire import Bool, Int64, Layout

_ENTRIES, _SLOTS, _LINKS = Block.of(ENTRY_DTYPE), Block.of(np.int32), Block.of(np.int64, 2)
_index_entries = LIBRARY.kernel("producer_state.kernels", "index_rows", [_SLOTS, _ENTRIES, None], 0, "_entries")
_link_open = LIBRARY.kernel("producer_state.kernels", "link_open", [_LINKS, _ENTRIES, None], 0)


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction with data that a marker ended.

    `first_offset` is the base of its first batch, `last_offset` the marker's offset; `last_stable_offset` the first offset
    of the earliest transaction of another producer still open then, else the marker's offset + 1.
    """

    producer_id: Int64
    first_offset: Int64
    last_offset: Int64
    last_stable_offset: Int64
    aborted: Bool


_COMPLETED_DTYPE = Layout(CompletedTransaction).dtype("=")
_replay = LIBRARY.kernel(
    "producer_state.kernels", "replay", [*FACTS, _SLOTS, _ENTRIES, None, _LINKS, Block.of(_COMPLETED_DTYPE)], 4
)


def replay(state: ProducerTable, facts: BatchFacts) -> tuple[ProducerTable, tuple[CompletedTransaction, ...]]:
    """The state after these batches, and the transactions that they complete, in marker order. Raises BatchProblem.

    Markers that end nothing complete nothing, as in Kafka 2.8 and later. The table's end offset becomes the offset
    after the last batch.
    """
    if len(facts) == 0:
        return state, ()
    by_producers = facts.producer_id >= 0
    used = len(state.rows)
    capacity = used + int(np.count_nonzero(by_producers))
    entries = np.empty(capacity, ENTRY_DTYPE)
    entries[:used] = state.rows
    slots = np.full(1 << (2 * capacity + 2).bit_length(), -1, np.int32)
    _index_entries(slots, entries, used)
    links = np.empty((capacity + 1, 2), np.int64)
    _link_open(links, entries, used)
    completed = np.empty(int(np.count_nonzero(by_producers & (facts.attributes & CONTROL != 0))), _COMPLETED_DTYPE)
    row, used, done, problem = _replay(*facts.columns(), slots, entries, used, links, completed)
    if problem != NO_PROBLEM:
        raise problem_at(facts, row, problem, state.end_offset)
    entries = entries[:used]
    table = ProducerTable(int(facts.last_offset[-1]) + 1, entries[np.argsort(entries["producer_id"], kind="stable")])
    return table, tuple(CompletedTransaction(*values) for values in completed[:done].tolist())
