"""What was archived comes back as it was, with what a broker wants beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from producer_state.snapshot import read_snapshot
from sidecar.archive.bundle import EMPTY_SNAPSHOT
from sidecar.archive.keys import COMMITS
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.indexes.transaction_index import read_transaction_index
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.logformat.metadata_files import read_partition_metadata
from sidecar.logformat.names import CLEANER_CHECKPOINT, LOG_START_CHECKPOINT
from sidecar.model import TopicPartition
from sidecar.restore.request import (
    DeletedRecordsMode,
    LeaderEpochMode,
    OpenTransactionMode,
    ProducerStateMode,
    RestoreRequest,
)
from sidecar.restore.restore import plan_restore, restore
from tests.golden import VERSIONS, golden, manifest
from tests.restore.archives import (
    CLOCK,
    archived,
    batches_of,
    files_of,
    golden_topic_id,
    other_log_dir,
    own_log_dir,
    restored,
)
from tests.runner.rig import archived_states

ACTIVE_SUFFIXES = ("log", "index", "timeindex")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_golden_partition_comes_back_byte_for_byte(version: str, tmp_path: Path) -> None:
    store, log_dir = archived(version), own_log_dir(tmp_path, version)
    topics = [topic for topic in manifest(version)["topics"] if topic not in {"single", "empty"}]
    for topic in topics:
        everything = {"topic_id": golden_topic_id(topic, version), "deleted_records": DeletedRecordsMode.RESTORE}
        everything["leader_epochs"] = (
            LeaderEpochMode.KEEP
        )  # 2.7.2 has no topic ids: nothing else tells that it is the same one
        request = RestoreRequest(topic, log_dir, **everything)  # type: ignore[arg-type]
        report = restore(store, CLOCK, request)
        assert report.exit_code == 0, [outcome.problem for outcome in report.outcomes]
    states = archived_states(store)
    assert {path.name for path in log_dir.iterdir() if path.is_dir()} == set(states)
    ends = {}
    for name, state in states.items():
        found, source = files_of(log_dir / name), golden(version) / "logs" / name
        end = state.segments[-1].end_offset
        ends[name] = end
        assert [found.pop(f"{end:020d}.{suffix}") for suffix in ACTIVE_SUFFIXES] == [b""] * 3
        epochs = read_leader_epochs(found.pop("leader-epoch-checkpoint"))
        checkpoint = source / "leader-epoch-checkpoint"  # message formats below v2 have none
        known = read_leader_epochs(checkpoint.read_bytes() if checkpoint.exists() else b"")
        expected = [
            (entry.epoch, entry.start_offset) for entry in known.in_range(state.segments[0].base_offset, end).entries
        ]
        if name == "trimmed-0":  # DeleteRecords cut the broker's own; the archive has the whole segment
            expected[0] = (expected[0][0], state.segments[0].base_offset)
        assert [(entry.epoch, entry.start_offset) for entry in epochs.entries] == expected
        topic_id = golden_topic_id(state.lineage.topic_partition.topic, version)
        metadata = found.pop("partition.metadata", None)
        assert (metadata and read_partition_metadata(metadata)) == topic_id
        for file, content in found.items():
            if (source / file).exists():
                assert content == (source / file).read_bytes(), f"{name}/{file}"
            else:
                read_snapshot(content)
                assert file.endswith(".snapshot"), f"{name}/{file}"
        rolled = {path.name for path in source.iterdir() if path.suffix == ".log" and int(path.stem) < end}
        assert {file for file in found if file.endswith(".log")} == rolled
        snapshots = {f"{segment.end_offset:020d}.snapshot" for segment in state.segments}
        assert {file for file in found if file.endswith(".snapshot")} == snapshots
    for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        entries = read_offset_checkpoint((log_dir / checkpoint).read_bytes())
        assert {str(partition): offset for partition, offset in entries.items()} == ends
    # No log starts inside its first file, and none lacks offsets.
    assert not (log_dir / LOG_START_CHECKPOINT).exists()
    assert not (log_dir / CLEANER_CHECKPOINT).exists()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_start_that_files_alone_tell_hides_nothing(version: str, tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path, version)
    outcome = restored(archived(version), log_dir, "trimmed", version)
    entries = read_offset_checkpoint((golden(version) / "logs" / LOG_START_CHECKPOINT).read_bytes())
    assert outcome.log is not None
    assert outcome.plan.deleted_before_offset == 0
    assert outcome.log.start_offset == outcome.log.first_base_offset < entries[TopicPartition("trimmed", 0)]
    assert batches_of(log_dir / "trimmed-0")[0].first_offset == outcome.log.start_offset


def test_flattened_epochs_change_these_four_bytes_and_no_others(tmp_path: Path) -> None:
    log_dir = other_log_dir(tmp_path)
    outcome = restored(archived(), log_dir, "orders", topic_id="8OyGp8_jQ0iBuez4VPrvCg")
    assert outcome.decisions is not None
    assert outcome.decisions.leader_epochs is LeaderEpochMode.FLATTEN
    assert outcome.decisions.producer_state is ProducerStateMode.DROP
    assert "belongs to cluster" in outcome.decisions.reason
    flat = batches_of(log_dir / "orders-0")
    source = [batch for batch in batches_of(golden("4.3.0") / "logs" / "orders-0") if batch.last_offset < 964]
    assert {batch.leader_epoch for batch in source} == {0, 2, 4}
    assert {batch.leader_epoch for batch in flat} == {0}
    assert [batch.content[:12] + batch.content[16:] for batch in flat] == [
        batch.content[:12] + batch.content[16:] for batch in source
    ]
    assert (log_dir / "orders-0" / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
    snapshots = {path.read_bytes() for path in (log_dir / "orders-0").glob("*.snapshot")}
    assert snapshots == {EMPTY_SNAPSHOT}


def test_large_segments_are_flattened_window_by_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.restore.segments._COPY_BYTES", 700)
    log_dir = other_log_dir(tmp_path)
    restored(archived(), log_dir, "orders", topic_id="8OyGp8_jQ0iBuez4VPrvCg")
    assert {batch.leader_epoch for batch in batches_of(log_dir / "orders-0")} == {0}


def test_entries_of_other_partitions_stay_in_the_checkpoints(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    before = "0\n2\nother 3 77\norders 0 5\n"
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", CLEANER_CHECKPOINT):
        (log_dir / name).write_text(before)
    (log_dir / LOG_START_CHECKPOINT).write_text(before)
    restored(archived(), log_dir, "orders")
    other, ours = {TopicPartition("other", 3): 77}, {TopicPartition("orders", 0): 964}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert read_offset_checkpoint((log_dir / name).read_bytes()) == other | ours
    for name in (CLEANER_CHECKPOINT, LOG_START_CHECKPOINT):
        assert read_offset_checkpoint((log_dir / name).read_bytes()) == other


def test_an_open_transaction_is_reported_and_aborted_on_demand(tmp_path: Path) -> None:
    # What is archived ends below the one that is open in the golden log; so the end is cut right before the first marker.
    source = batches_of(golden("4.3.0") / "logs" / "transactions-0")
    store = archived()
    log_dir = own_log_dir(tmp_path)
    span = next(batch.first_offset for batch in source if batch.is_control)
    outcome = restored(store, log_dir, "transactions", offset_range=(0, span))
    assert outcome.log is not None
    assert outcome.log.open_transactions
    assert not outcome.log.aborted
    end = outcome.log.end_offset

    other = other_log_dir(tmp_path)
    stopped = restored(store, other, "transactions", offset_range=(0, span))
    assert "--open-transactions abort" in stopped.problem
    assert not (other / "transactions-0").exists()
    ended = restored(store, other, "transactions", offset_range=(0, span), open_transactions=OpenTransactionMode.ABORT)
    assert ended.log is not None
    assert (ended.log.open_transactions, ended.log.aborted) == (outcome.log.open_transactions, True)
    count = len(ended.log.open_transactions)
    assert ended.log.end_offset == end + count
    index = read_transaction_index((other / "transactions-0" / f"{end:020d}.txnindex").read_bytes())
    assert sorted(index.first_offset.tolist()) == list(ended.log.open_transactions)
    assert index.last_offset.tolist() == list(range(end, end + count))

    (tmp_path / "kept").mkdir()
    kept = own_log_dir(tmp_path / "kept")
    same = restored(store, kept, "transactions", offset_range=(0, span), open_transactions=OpenTransactionMode.ABORT)
    assert same.log is not None
    state = read_snapshot((kept / "transactions-0" / f"{same.log.end_offset:020d}.snapshot").read_bytes())
    assert all(entry.current_txn_first_offset is None for entry in state)


def test_a_dry_run_says_the_same_and_touches_nothing(tmp_path: Path) -> None:
    store, log_dir = archived(), own_log_dir(tmp_path)
    report = plan_restore(store, CLOCK, RestoreRequest("orders", log_dir, topic_id=golden_topic_id("orders")))
    assert [(str(found.plan.topic_partition), found.state) for found in report.outcomes] == [
        ("orders-0", "planned"),
        ("orders-1", "planned"),
    ]
    assert report.outcomes[0].plan.segments[-1].end_offset == 964
    assert [path.name for path in log_dir.iterdir()] == ["meta.properties"]
    absent = plan_restore(
        store,
        CLOCK,
        RestoreRequest("orders", tmp_path / "new", topic_id="none", leader_epochs=LeaderEpochMode.FLATTEN),
    )
    assert len(absent.outcomes) == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_files_belong_to_the_log_dirs_owner(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    os.chown(log_dir, 12345, 12346)
    restored(archived(), log_dir, "transactions", offset_range=(0, 500))
    made = [path for path in log_dir.rglob("*") if path.name != "meta.properties"]
    assert len(made) > 12
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(12345, 12346)}


def test_nothing_is_written_into_the_archive(tmp_path: Path) -> None:
    store = archived()
    before = dict(store.objects)
    restored(store, own_log_dir(tmp_path), "orders")
    assert store.objects == before
    assert set(store.calls) <= {"list", "list_folders", "read", "stream", "head"}
    assert any(COMMITS in key for key in before)
