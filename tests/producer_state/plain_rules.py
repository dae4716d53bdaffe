"""The replay rules as plain Python, one batch at a time: what the compiled loops are held against.

Source: ProducerAppendInfo.append, ProducerStateEntry.update, ProducerStateManager.lastStableOffset, Apache Kafka 3.9.
"""

from __future__ import annotations

from dataclasses import replace

from producer_state.facts import (
    CONTROL,
    INVALID_TXN_STATE,
    MALFORMED,
    MARKER_ABORT,
    MARKER_COMMIT,
    TRANSACTIONAL,
    BatchFacts,
    BatchProblem,
)
from producer_state.replay import CompletedTransaction
from producer_state.snapshot import NONE, ProducerEntry

State = dict[int, ProducerEntry]


def apply_batch(state: State, facts: BatchFacts, row: int) -> CompletedTransaction | None:
    """Change `state` as the batch in this row demands; the transaction that it completes, if any. Raises BatchProblem.

    Replicated batches are never refused: sequence numbers are not looked at, and epochs may go down.
    """
    producer_id, offset = int(facts.producer_id[row]), int(facts.base_offset[row])
    if producer_id < 0:
        return None
    entry = state.setdefault(producer_id, ProducerEntry(producer_id))
    attributes = int(facts.attributes[row])
    if attributes & CONTROL:
        if facts.record_count[row] == 0:
            return None
        marker = int(facts.marker_type[row])
        if marker not in (MARKER_ABORT, MARKER_COMMIT):
            raise BatchProblem(MALFORMED, producer_id=producer_id, offset=offset)
        state[producer_id] = replace(
            _in_epoch(entry, int(facts.producer_epoch[row])),
            coordinator_epoch=int(facts.coordinator_epoch[row]),
            last_timestamp_ms=int(facts.marker_timestamp_ms[row]),
            current_txn_first_offset=None,
        )
        return _completed(state, entry, offset, aborted=marker == MARKER_ABORT)
    transactional = bool(attributes & TRANSACTIONAL)
    first_offset = entry.current_txn_first_offset
    if first_offset is not None and not transactional:
        raise BatchProblem(INVALID_TXN_STATE, producer_id=producer_id, offset=offset)
    last_offset = int(facts.last_offset[row])
    state[producer_id] = replace(
        _in_epoch(entry, int(facts.producer_epoch[row])),
        last_sequence=int(facts.last_sequence[row]),
        last_offset=last_offset,
        offset_delta=last_offset - offset,
        last_timestamp_ms=int(facts.max_timestamp_ms[row]),
        current_txn_first_offset=offset if transactional and first_offset is None else first_offset,
    )
    return None


def _in_epoch(entry: ProducerEntry, epoch: int) -> ProducerEntry:
    if entry.producer_epoch == epoch:
        return entry
    return replace(entry, producer_epoch=epoch, last_sequence=NONE, last_offset=NONE, offset_delta=0)


def _completed(state: State, entry: ProducerEntry, marker_offset: int, *, aborted: bool) -> CompletedTransaction | None:
    first_offset = entry.current_txn_first_offset
    if first_offset is None:
        return None
    others = (other.current_txn_first_offset for other in state.values())
    last_stable_offset = min((begun for begun in others if begun is not None), default=marker_offset + 1)
    return CompletedTransaction(entry.producer_id, first_offset, marker_offset, last_stable_offset, aborted)


def apply_all(state: State, facts: BatchFacts) -> list[CompletedTransaction]:
    """`apply_batch` for every row."""
    completed = (apply_batch(state, facts, row) for row in range(len(facts)))
    return [transaction for transaction in completed if transaction is not None]
