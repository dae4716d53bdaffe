"""Which differences between a broker's snapshot and ours are permissible, each with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_state.compare import Allowance, Comparison, Conformance, compare_snapshots
from producer_state.snapshot import ProducerEntry

NOW_MS, WINDOW_MS = 1_000_000, 1000
OLD, FRESH = NOW_MS - WINDOW_MS, NOW_MS - 1
ENTRY = ProducerEntry(7, 3, 12, 200, 2, FRESH, 4)
FORGOTTEN = "the broker forgot it when the producer expired between two writes"


def compared(
    theirs: ProducerEntry | None,
    ours: ProducerEntry | None,
    *,
    expiration_ms: int | None = WINDOW_MS,
    exact: bool = True,
    log_start_offset: int = 0,
    deleted_below: int = 0,
    first_offset: int = 0,
) -> Comparison:
    allowance = Allowance(NOW_MS, expiration_ms, exact, log_start_offset, deleted_below, first_offset)
    return compare_snapshots([theirs] if theirs else [], [ours] if ours else [], allowance)


def reason(comparison: Comparison) -> str:
    assert comparison.conformance is Conformance.PERMISSIBLE
    return comparison.differences[0].permissible


def test_equal_as_maps() -> None:
    other = replace(ENTRY, producer_id=8)
    result = compare_snapshots([ENTRY, other], [other, ENTRY], Allowance(NOW_MS, None, exact=True))
    assert result == Comparison(Conformance.EQUAL)
    assert result.describe() == ""


@pytest.mark.parametrize(
    "change",
    [
        {"producer_epoch": 2},
        {"last_sequence": 11},
        {"last_offset": 199},
        {"offset_delta": 1},
        {"last_timestamp_ms": FRESH - 1},
        {"coordinator_epoch": 5},
        {"current_txn_first_offset": 150},
    ],
)
def test_any_field_of_an_unexpired_producer_that_differs_is_wrong(change: dict[str, int]) -> None:
    for theirs, ours in ((replace(ENTRY, **change), ENTRY), (ENTRY, replace(ENTRY, **change))):
        result = compared(theirs, ours)
        assert result.conformance is Conformance.WRONG
        (name,) = change
        assert (
            f"producer 7: {name} {getattr(theirs, name)}, according to the log {getattr(ours, name)}"
            in result.describe()
        )


def test_an_unexpired_producer_that_the_broker_lacks_is_wrong() -> None:
    result = compared(None, ENTRY)
    assert result.conformance is Conformance.WRONG
    assert result.describe() == "producer 7: missing in the broker's file"


def test_80d_an_empty_file_beside_live_producers_is_wrong() -> None:
    assert compared(None, replace(ENTRY, current_txn_first_offset=3, last_timestamp_ms=OLD)).conformance == "wrong"


def test_a_producer_that_the_log_does_not_know_is_wrong() -> None:
    assert compared(ENTRY, None).conformance is Conformance.WRONG
    assert compared(replace(ENTRY, last_timestamp_ms=OLD), None, expiration_ms=None).conformance is Conformance.WRONG


def test_expired_entries_may_come_and_go_and_differ() -> None:
    expired = replace(ENTRY, last_timestamp_ms=OLD)
    assert reason(compared(expired, None)) == "already expired"
    assert reason(compared(None, expired)) == "already expired"
    assert reason(compared(expired, replace(expired, last_sequence=3))) == "already expired"


def test_the_blank_entry_of_an_empty_control_batch_may_be_there() -> None:
    assert reason(compared(ProducerEntry(7), None, expiration_ms=None)) == "known only from an empty control batch"


def test_what_lies_below_the_logs_start_only_the_broker_knows() -> None:
    below = "it is below the log start offset"
    assert reason(compared(ENTRY, None, log_start_offset=201)) == below
    assert compared(ENTRY, None, log_start_offset=200).conformance is Conformance.WRONG
    no_coordinator = replace(ENTRY, coordinator_epoch=-1)
    assert reason(compared(ENTRY, no_coordinator, log_start_offset=100)) == below
    assert compared(ENTRY, no_coordinator).conformance is Conformance.WRONG
    no_batch = replace(ENTRY, last_sequence=-1, last_offset=-1, offset_delta=0)
    assert reason(compared(ENTRY, no_batch, log_start_offset=201)) == below
    assert compared(ENTRY, no_batch, log_start_offset=100).conformance is Conformance.WRONG
    begun = replace(ENTRY, current_txn_first_offset=50)
    no_marker = replace(begun, current_txn_first_offset=110, coordinator_epoch=-1)
    assert reason(compared(begun, no_marker, log_start_offset=100)) == below
    assert compared(begun, no_marker).conformance is Conformance.WRONG
    after_a_marker = replace(begun, current_txn_first_offset=110)
    assert compared(begun, after_a_marker, log_start_offset=100).conformance is Conformance.WRONG


def test_what_was_deleted_below_the_log_start_a_broker_may_have_forgotten() -> None:
    plain = replace(ENTRY, coordinator_epoch=-1)
    assert compared(None, plain, deleted_below=201).conformance is Conformance.PERMISSIBLE
    assert compared(None, plain, deleted_below=200).conformance is Conformance.WRONG
    begun = replace(plain, current_txn_first_offset=199)
    assert compared(None, begun, deleted_below=201).conformance is Conformance.WRONG


def test_a_producer_with_a_marker_alone_is_not_deleted_where_nothing_is() -> None:
    """As each is after a transaction of version 2, whose marker has a new epoch (KIP-890)."""
    marked = replace(ENTRY, last_sequence=-1, last_offset=-1, offset_delta=0)
    assert compared(None, marked).conformance is Conformance.WRONG
    assert compared(None, marked, log_start_offset=100, deleted_below=100).conformance is Conformance.WRONG
    assert compared(None, marked, deleted_below=100).conformance is Conformance.PERMISSIBLE
    begun = replace(marked, current_txn_first_offset=50)
    assert compared(None, begun, deleted_below=100).conformance is Conformance.WRONG


def test_open_transactions_above_the_logs_start_are_known_to_both() -> None:
    begun = replace(ENTRY, current_txn_first_offset=50)
    assert compared(begun, None, log_start_offset=201).conformance is Conformance.PERMISSIBLE
    assert compared(begun, None, log_start_offset=50).conformance is Conformance.WRONG


def test_a_live_broker_forgets_a_producer_that_pauses() -> None:
    assert reason(compared(replace(ENTRY, coordinator_epoch=-1), ENTRY)) == FORGOTTEN
    no_batch = replace(ENTRY, last_sequence=-1, last_offset=-1, offset_delta=0)
    assert reason(compared(no_batch, ENTRY)) == FORGOTTEN
    # Data would have been remembered: after being forgotten only markers can have come, and they leave their epoch.
    assert compared(replace(no_batch, coordinator_epoch=-1), ENTRY).conformance is Conformance.WRONG
    begun = replace(no_batch, current_txn_first_offset=199)
    assert compared(begun, replace(ENTRY, current_txn_first_offset=199)).conformance is Conformance.WRONG
    assert compared(no_batch, ENTRY, expiration_ms=None).conformance is Conformance.WRONG
    assert compared(no_batch, replace(ENTRY, producer_epoch=2)).conformance is Conformance.WRONG
    assert compared(replace(ENTRY, coordinator_epoch=-1), ENTRY, expiration_ms=None).conformance is Conformance.WRONG


CLEANED = "compaction has removed later batches or markers"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (ENTRY, replace(ENTRY, coordinator_epoch=1, last_timestamp_ms=FRESH - 5)),
        (ENTRY, replace(ENTRY, producer_epoch=2, last_sequence=3, last_offset=120, offset_delta=0)),
        (ENTRY, replace(ENTRY, last_sequence=-1, last_offset=-1, offset_delta=0)),
        (ProducerEntry(7, 4, last_timestamp_ms=FRESH, coordinator_epoch=5), ENTRY),
        (replace(ENTRY, current_txn_first_offset=190), replace(ENTRY, last_sequence=3, last_offset=120)),
        (replace(ENTRY, current_txn_first_offset=190), replace(ENTRY, current_txn_first_offset=195)),
    ],
)
def test_compaction_makes_the_log_say_less(theirs: ProducerEntry, ours: ProducerEntry) -> None:
    assert reason(compared(theirs, ours, exact=False)) == CLEANED
    assert compared(theirs, ours).conformance is Conformance.WRONG


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (ENTRY, replace(ENTRY, last_sequence=3)),
        (replace(ENTRY, last_sequence=3, last_offset=120), ENTRY),
        (ENTRY, replace(ENTRY, current_txn_first_offset=190)),
        (replace(ENTRY, current_txn_first_offset=195), replace(ENTRY, current_txn_first_offset=190)),
        (None, ENTRY),
    ],
)
def test_compaction_does_not_make_the_log_say_more(theirs: ProducerEntry | None, ours: ProducerEntry) -> None:
    assert compared(theirs, ours, exact=False).conformance is Conformance.WRONG


def test_compaction_takes_the_marker_of_a_transaction_without_a_batch_in_the_log() -> None:
    """Only the snapshot at the log start, 201, has it: segments below were deleted."""
    begun = replace(ENTRY, current_txn_first_offset=190)
    allowed = {"exact": False, "first_offset": 201}
    assert reason(compared(ENTRY, begun, **allowed)) == CLEANED
    later = replace(begun, last_sequence=13, last_offset=250)
    assert reason(compared(replace(later, current_txn_first_offset=250), later, **allowed)) == CLEANED
    assert compared(ENTRY, begun, exact=False, first_offset=200).conformance is Conformance.WRONG
    assert compared(ENTRY, begun, exact=True, first_offset=201).conformance is Conformance.WRONG
    assert compared(replace(later, current_txn_first_offset=None), later, **allowed).conformance is Conformance.WRONG


def test_a_producer_that_compaction_took_from_the_log_may_be_in_the_file() -> None:
    assert reason(compared(ENTRY, None, exact=False)) == "its batches are no longer in the log"


def test_one_wrong_entry_makes_the_file_wrong_and_the_description_is_short() -> None:
    expired = [ProducerEntry(number, last_timestamp_ms=OLD, producer_epoch=0) for number in range(10, 20)]
    result = compare_snapshots([], [ENTRY, *expired], Allowance(NOW_MS, WINDOW_MS, exact=True))
    assert result.conformance is Conformance.WRONG
    assert len(result.differences) == 11
    assert result.describe(2) == (
        "producer 7: missing in the broker's file; producer 10: missing in the broker's file (already expired); and 9 more"
    )
