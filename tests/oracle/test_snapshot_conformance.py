"""Our snapshots equal those that Kafka's own classes write by full replay: on golden directories and on random logs.

`make conformance` runs it on more logs than CI does: CONFORMANCE_LOGS says how many.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from producer_state.snapshot import ProducerEntry, read_snapshot
from sidecar.config.topic_filter import TopicFilter
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.snapshots.check import Result, check
from sidecar.snapshots.jobs import Forgetting
from sidecar.snapshots.rebuild import rebuild
from sidecar.snapshots.resolve_paths import find_targets
from tests.golden import VERSIONS, partitions
from tests.oracle import Oracle
from tests.oracle.log_shape import CLEANER, REPLAY
from tests.oracle.random_batches import DAY_MS
from tests.oracle.random_segments import random_log

pytestmark = pytest.mark.real

LOGS = int(os.environ.get("CONFORMANCE_LOGS", "200"))
CHUNKS = 8
NOBODY_IS_FORGOTTEN = Forgetting(now_ms=0, producer_id_expiration_ms=None)
SHAPES = [
    REPLAY,
    replace(REPLAY, invalid_transaction_state=True),
    replace(REPLAY, producers=20, segments=(1, 8)),
    replace(REPLAY, first_base_offset=None, batches_per_segment=(0, 40)),
    replace(CLEANER, legacy=True),
]

Snapshots = dict[int, list[ProducerEntry]]


def theirs(oracle: Oracle, directory: Path, out: Path) -> tuple[Snapshots, str | None]:
    """By offset, without entries of which nothing is known: the next expiry check removes those."""
    out.mkdir(parents=True)
    replay = oracle.snapshots(directory, out)
    found: Snapshots = {}
    for boundary in replay.boundaries:
        rows = oracle.dump_snapshot(out / f"{boundary.offset:020d}.snapshot")
        entries = [ProducerEntry(*row[:7], None if row[7] < 0 else row[7]) for row in sorted(rows)]
        found[boundary.offset] = [entry for entry in entries if entry != ProducerEntry(entry.producer_id)]
    return found, replay.stopped


def ours(directory: Path, out: Path, forgetting: Forgetting = NOBODY_IS_FORGOTTEN) -> tuple[Snapshots, str]:
    (partition,) = rebuild(find_targets([directory], TopicFilter()), out, LocalEngine(1), forgetting).partitions
    assert not partition.from_snapshot
    found = {snapshot.offset: list(read_snapshot(snapshot.path.read_bytes())) for snapshot in partition.snapshots}
    return found, partition.problem


def bases_above_the_first(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))[1:]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("log_dir", ["logs", "compacted"])
def test_on_golden_directories(oracle: Oracle, version: str, log_dir: str, tmp_path: Path) -> None:
    compared = 0
    for partition in partitions(version, log_dir):
        # Without the broker's snapshots: nobody may know anything but from the log.
        directory = shutil.copytree(partition, tmp_path / partition.name, ignore=shutil.ignore_patterns("*.snapshot"))
        expected, stopped = theirs(oracle, directory, tmp_path / "theirs" / partition.name)
        found, problem = ours(directory, tmp_path / "ours" / partition.name)
        assert (stopped, problem) == (None, "")
        bases = bases_above_the_first(directory)
        assert found == {offset: expected[offset] for offset in bases}, partition
        compared += len(found)
    assert compared >= (5 if log_dir == "compacted" else 25)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_on_random_logs(oracle: Oracle, chunk: int, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(chunk, LOGS, CHUNKS):
        log = random_log(seed, SHAPES[seed % len(SHAPES)])
        directory = log.write(tmp_path / str(seed))
        expected, stopped = theirs(oracle, directory, tmp_path / str(seed) / "theirs")
        found, problem = ours(directory, tmp_path / str(seed) / "ours")
        rolled = {offset: entries for offset, entries in expected.items() if offset in bases_above_the_first(directory)}
        assert found == rolled, f"seed {seed}"
        assert not problem or stopped is not None, f"seed {seed}"
        seen["snapshots"] += len(found)
        seen["open"] += any(
            entry.current_txn_first_offset is not None for entries in found.values() for entry in entries
        )

        as_of_ms, window_ms = log.now_ms + DAY_MS // 2, DAY_MS
        forgetting = Forgetting(log.now_ms, window_ms, as_of_ms)
        kept = {
            offset: [
                entry
                for entry in entries
                if entry.current_txn_first_offset is not None or as_of_ms - entry.last_timestamp_ms < window_ms
            ]
            for offset, entries in rolled.items()
        }
        assert ours(directory, tmp_path / str(seed) / "filtered", forgetting)[0] == kept, f"seed {seed}"
        seen["forgotten"] += kept != rolled
    assert all(seen[what] for what in ("snapshots", "open", "forgotten")), seen


def test_we_stop_where_kafka_stops(oracle: Oracle, tmp_path: Path) -> None:
    stopped_logs = 0
    for seed in range(60):
        log = random_log(seed, replace(REPLAY, invalid_transaction_state=True))
        directory = log.write(tmp_path / str(seed))
        expected, stopped = theirs(oracle, directory, tmp_path / str(seed) / "theirs")
        found, problem = ours(directory, tmp_path / str(seed) / "ours")
        bases = bases_above_the_first(directory)
        assert sorted(found) == [offset for offset in expected if offset in bases], f"seed {seed}"
        assert bool(problem) == (len(found) < len(bases)), f"seed {seed}"
        assert not problem or (stopped is not None and "InvalidTxnState" in stopped)
        stopped_logs += bool(problem)
    assert stopped_logs >= 3


@pytest.mark.parametrize("seed", range(40))
def test_the_check_finds_kafkas_snapshots_equal_at_every_offset(oracle: Oracle, seed: int, tmp_path: Path) -> None:
    """The end of the log is among them, which is no segment base."""
    log = random_log(seed, replace(REPLAY, compacted_before=False))
    directory = log.write(tmp_path)
    oracle.snapshots(directory, directory)
    (checked,) = check(find_targets([directory], TopicFilter()), LocalEngine(1), NOBODY_IS_FORGOTTEN).partitions
    written = sorted(int(path.stem) for path in directory.glob("*.snapshot"))
    assert [(snapshot.offset, snapshot.result) for snapshot in checked.snapshots] == [
        (offset, Result.EQUAL) for offset in written
    ]
