from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import CorruptFile
from sidecar.logformat.leader_epochs import (
    LeaderEpochCheck,
    LeaderEpochs,
    complete,
    epochs_of,
    read_leader_epochs,
)
from tests.logformat.placed_batches import Placed, chunks_of, columns_of

EXAMPLE = epochs_of([(0, 0), (2, 100), (5, 250)])


def pairs(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in epochs.entries]


assignments = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 40)), max_size=20)


def test_the_text_of_one_entry() -> None:
    assert epochs_of([(0, 1)]).to_text() == b"0\n1\n0 1\n"
    assert LeaderEpochs().to_text() == b"0\n0\n"


@given(assignments)
def test_text_is_read_back(drawn: list[tuple[int, int]]) -> None:
    epochs = epochs_of(drawn)
    assert read_leader_epochs(epochs.to_text()) == epochs


@given(assignments)
def test_epochs_and_starts_ascend_strictly(drawn: list[tuple[int, int]]) -> None:
    found = pairs(epochs_of(drawn))
    assert all(before[0] < after[0] and before[1] < after[1] for before, after in pairwise(found))
    if drawn:
        assert found[-1][0] == drawn[-1][0]


def test_assigning_the_latest_epoch_again_changes_nothing() -> None:
    assert EXAMPLE.assign(5, 300) == EXAMPLE
    assert pairs(EXAMPLE.assign(5, 240)) == [(0, 0), (2, 100), (5, 240)]
    assert pairs(EXAMPLE.assign(1, 400)) == [(0, 0), (1, 400)]
    assert pairs(EXAMPLE.assign(6, 100)) == [(0, 0), (6, 100)]


def test_truncation() -> None:
    assert pairs(EXAMPLE.truncate_from_start(100)) == [(2, 100), (5, 250)]
    assert pairs(EXAMPLE.truncate_from_start(180)) == [(2, 180), (5, 250)]
    assert pairs(EXAMPLE.truncate_from_start(999)) == [(5, 999)]
    assert pairs(EXAMPLE.truncate_from_end(250)) == [(0, 0), (2, 100)]
    assert pairs(EXAMPLE.truncate_from_end(0)) == []
    assert EXAMPLE.truncate_from_end(-1) == EXAMPLE
    assert pairs(epochs_of([(3, 50)]).truncate_from_start(10)) == [(3, 50)]


def test_what_goes_with_a_segment() -> None:
    assert pairs(EXAMPLE.in_range(50, 200)) == [(0, 50), (2, 100)]
    assert EXAMPLE.text_for_bundle(200) == b"0\n2\n0 0\n2 100\n"
    assert pairs(EXAMPLE.in_range(100, 300)) == [(2, 100), (5, 250)]
    assert EXAMPLE.text_for_bundle(300) == b"0\n3\n0 0\n2 100\n5 250\n"


def test_ranges_as_upstream() -> None:
    epochs = epochs_of([(0, 0), (1, 100), (2, 200)])
    assert epochs.in_range(0, 300) == epochs
    assert pairs(epochs.in_range(100, 200)) == [(1, 100)]


def test_lookups() -> None:
    assert [EXAMPLE.epoch_for_offset(offset) for offset in (0, 99, 100, 249, 250, 9999)] == [0, 0, 2, 2, 5, 5]
    assert epochs_of([(3, 50)]).epoch_for_offset(49) is None
    assert (EXAMPLE.latest_epoch, LeaderEpochs().latest_epoch) == (5, -1)


def test_entries_in_conflict_with_later_ones_are_gone_after_loading() -> None:
    assert pairs(read_leader_epochs(b"0\n4\n0 0\n3 10\n2 10\n2 20\n")) == [(0, 0), (2, 10)]
    assert read_leader_epochs(b"") == LeaderEpochs()


@pytest.mark.parametrize(
    "text",
    [
        *(b"1\n0\n", b"0\n", b"x\n", b"0\n1\n", b"0\n2\n0 0\n", b"0\n1\n0 0 0\n", b"0\n1\n0 -1\n", b"0\n1\n-1 0\n"),
        *(
            b"0\n1\n0 0\n\n",
            b"0\n1\n2147483648 0\n",
            b"0\n1\n0 9223372036854775808\n",
            b"\xff\n",
            b"0\n1\n0 1.5\n",
            b"\0\0\0",
        ),
    ],
)
def test_malformed_texts_are_corrupt(text: bytes) -> None:
    with pytest.raises(CorruptFile) as caught:
        read_leader_epochs(text, "leader-epoch-checkpoint")
    assert caught.value.file == "leader-epoch-checkpoint"


@given(st.binary(max_size=60) | st.text(alphabet="0123456789 \n-", max_size=60).map(str.encode))
def test_any_bytes_are_epochs_or_corrupt(data: bytes) -> None:
    with suppress(CorruptFile):
        epochs = read_leader_epochs(data)
        assert read_leader_epochs(epochs.to_text()) == epochs


def test_a_checkpoint_that_covers_the_base_is_taken_as_it_is() -> None:
    assert complete(EXAMPLE, epochs_of([(9, 7)]), 7) is EXAMPLE


def test_a_missing_checkpoint_is_replaced_by_what_batches_show() -> None:
    found = complete(None, epochs_of([(4, 503), (6, 700)]), 500)
    assert pairs(found) == [(4, 500), (6, 700)]
    assert found.text_for_bundle(700) == b"0\n1\n4 500\n"


def test_a_checkpoint_that_begins_inside_the_segment_is_completed() -> None:
    """After DeleteRecords it begins at the log start, with the epoch in force there."""
    checkpoint = epochs_of([(4, 650), (6, 700), (8, 900)])
    assert pairs(complete(checkpoint, epochs_of([(2, 500), (4, 600), (6, 700)]), 500)) == [
        (2, 500),
        (4, 600),
        (6, 700),
        (8, 900),
    ]


def test_a_segment_without_a_batch_that_shows_an_epoch_has_those_of_the_checkpoint() -> None:
    assert complete(None, LeaderEpochs(), 10).entries == ()
    checkpoint = epochs_of([(3, 50)])
    assert complete(checkpoint, LeaderEpochs(), 10) is checkpoint
    assert pairs(checkpoint.in_range(10, 60)) == [(3, 50)]
    assert pairs(checkpoint.in_range(10, 50)) == []


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_batches_that_agree_pass(rows: int) -> None:
    check = LeaderEpochCheck(EXAMPLE, 0)
    batches = [Placed(0, last_offset=99), Placed(100, leader_epoch=2), Placed(240, last_offset=249, leader_epoch=2)]
    for columns in chunks_of([*batches, Placed(250, leader_epoch=5)], rows):
        check.add(columns)


@pytest.mark.parametrize(
    "wrong",
    [
        Placed(150, leader_epoch=0),
        Placed(150, leader_epoch=5),
        Placed(150, leader_epoch=-1),
        Placed(240, last_offset=251, leader_epoch=2),
    ],
)
def test_a_batch_of_another_epoch_is_reported_with_its_place(wrong: Placed) -> None:
    check = LeaderEpochCheck(EXAMPLE, 0)
    with pytest.raises(CorruptFile, match="but the leader epoch checkpoint has") as caught:
        check.add(columns_of([Placed(0, 80), wrong]))
    assert (caught.value.position, caught.value.offset) == (80, wrong.base_offset)


def test_batches_below_the_log_start_are_exempt() -> None:
    check = LeaderEpochCheck(epochs_of([(7, 20)]), 20)
    check.add(columns_of([Placed(0, last_offset=9, leader_epoch=3), Placed(10, last_offset=25, leader_epoch=7)]))
    with pytest.raises(CorruptFile):
        LeaderEpochCheck(epochs_of([(7, 20)]), 0).add(columns_of([Placed(0, last_offset=9, leader_epoch=3)]))


def test_no_epoch_is_not_confirmed_by_an_empty_checkpoint() -> None:
    with pytest.raises(CorruptFile):
        LeaderEpochCheck(LeaderEpochs(), 0).add(columns_of([Placed(0, leader_epoch=-1)]))


def test_legacy_messages_have_no_epoch() -> None:
    LeaderEpochCheck(LeaderEpochs(), 0).add(columns_of([Placed(0, leader_epoch=-1, magic=1)]))
