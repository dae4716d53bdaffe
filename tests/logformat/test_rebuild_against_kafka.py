"""Random logs, rebuilt by us and by Kafka's own LogSegment.recover: the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from producer_state.replay import CompletedTransaction, replay
from producer_state.table import ProducerTable
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.indexes.rebuild import IndexBuilder
from sidecar.logformat.leader_epochs import epochs_of
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT, Suffix, file_name
from tests.oracle import Oracle
from tests.oracle.log_shape import REPLAY
from tests.oracle.random_segments import RandomLog, random_log

LOGS = 60
INDEX_INTERVAL_BYTES = 700
SHAPE = replace(REPLAY, legacy=True, batches_per_segment=(0, 60))


@pytest.mark.real
def test_rebuilt_files_equal_those_of_kafkas_recovery(oracle: Oracle, tmp_path: Path) -> None:
    entries = dict.fromkeys((Suffix.OFFSET_INDEX, Suffix.TIME_INDEX, Suffix.TRANSACTION_INDEX), 0)
    for seed in range(LOGS):
        log = random_log(seed, SHAPE)
        directory = log.write(tmp_path / str(seed))
        oracle.recover(directory, config={"index.interval.bytes": INDEX_INTERVAL_BYTES})
        ours = rebuilt_files(log)
        for name, data in ours.items():
            path = directory / name
            theirs = path.read_bytes() if path.exists() else b""
            assert data == theirs, f"seed {seed}: {name}"
        for suffix in entries:
            entries[suffix] += sum(len(data) for name, data in ours.items() if name.endswith(f".{suffix}"))
    assert min(entries.values()) > 1000


def rebuilt_files(log: RandomLog) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    state, pairs = ProducerTable.blank(), list[tuple[int, int]]()
    for segment in log.segments:
        builder = IndexBuilder(segment.base_offset, INDEX_INTERVAL_BYTES)
        completed: list[CompletedTransaction] = []
        for columns in scan_bytes(segment.log, base_offset=segment.base_offset, max_batches=11):
            builder.add(columns)
            state, transactions = replay(state, columns.facts())
            completed += transactions
        built = builder.finish(completed)
        files[file_name(segment.base_offset, Suffix.OFFSET_INDEX)] = built.offset_index
        files[file_name(segment.base_offset, Suffix.TIME_INDEX)] = built.time_index
        files[file_name(segment.base_offset, Suffix.TRANSACTION_INDEX)] = built.transaction_index
        latest = pairs[-1][0] if pairs else -1
        pairs += [(entry.epoch, entry.start_offset) for entry in built.leader_epochs.entries if entry.epoch > latest]
    files[LEADER_EPOCH_CHECKPOINT] = epochs_of(pairs).to_text()
    return files
