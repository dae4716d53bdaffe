"""An archive of a log that was restored without producers knows its transactions: compaction and restore go by that alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.archive.state import PartitionState
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.logformat.indexes.transaction_index import read_transaction_index
from sidecar.model import PartName
from sidecar.restore.request import OpenTransactionMode, ProducerStateMode
from tests.fakes.memory_store import MemoryStore
from tests.golden import wall_clock_ms
from tests.restore.archives import archived, other_log_dir, restored
from tests.runner.archives import compact_one, only_state, parts_of, records_of, sound, use
from tests.runner.rig import archive, tools_for

RULES = CompactionRules(wall_clock_ms("4.3.0"), strategy=Strategy.OFFSET)
A_SEGMENT_IN_EACH_PROCESS = {"max_queue": 1}


def archived_anew(directory: Path, mode: ProducerStateMode, rounds: int = 1, **policy: int) -> MemoryStore:
    """The golden transactions, restored into another cluster and archived from there."""
    log_dir, store = other_log_dir(directory), MemoryStore()
    outcome = restored(
        archived(), log_dir, "transactions", open_transactions=OpenTransactionMode.ABORT, producer_state=mode
    )
    assert outcome.log is not None
    for _ in range(rounds):
        with tools_for(log_dir, store, directory / "state", **policy) as context:
            assert archive(context, log_dir, "transactions").errors == []
    return store


def aborted(store: MemoryStore, state: PartitionState) -> list[tuple[int, int]]:
    contents = [parts_of(store, state, found).get(PartName.TRANSACTION_INDEX, b"") for found in state.segments]
    return [
        span
        for index in map(read_transaction_index, contents)
        for span in zip(index.first_offset.tolist(), index.last_offset.tolist(), strict=True)
    ]


@pytest.mark.parametrize(("rounds", "policy"), [(1, {}), (12, A_SEGMENT_IN_EACH_PROCESS)])
def test_compaction_keeps_no_aborted_record(
    rounds: int, policy: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {}
    for mode in (ProducerStateMode.KEEP, ProducerStateMode.DROP):
        (tmp_path / mode).mkdir()
        store = archived_anew(tmp_path / mode, mode, rounds, **policy)
        use(monkeypatch, store)
        assert compact_one(store, only_state(store), RULES).error is None
        sound(store)
        state = only_state(store)
        left[mode] = records_of(store, state), aborted(store, state)
    assert left[ProducerStateMode.DROP] == left[ProducerStateMode.KEEP]


def test_compaction_leaves_an_archive_alone_that_ends_in_the_middle_of_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {}
    for mode in (ProducerStateMode.KEEP, ProducerStateMode.DROP):
        (tmp_path / mode).mkdir()
        store = archived_anew(tmp_path / mode, mode, rounds=2, max_queue=1)
        use(monkeypatch, store)
        assert compact_one(store, only_state(store), RULES).error is None
        left[mode] = records_of(store, only_state(store))
    assert left[ProducerStateMode.DROP] == left[ProducerStateMode.KEEP]


def test_a_restore_that_ends_in_the_middle_of_a_transaction_says_so(tmp_path: Path) -> None:
    store = archived_anew(tmp_path, ProducerStateMode.DROP)
    found = only_state(store)
    opens = next(segment for segment in found.segments if segment.end_offset == 220)
    assert opens.snapshot.start_offset == opens.end_offset
    (tmp_path / "again").mkdir()
    outcome = restored(
        store,
        other_log_dir(tmp_path / "again"),
        "transactions",
        offset_range=(0, opens.end_offset),
        open_transactions=OpenTransactionMode.ABORT,
    )
    assert outcome.log is not None
    assert outcome.log.open_transactions == (77,)
