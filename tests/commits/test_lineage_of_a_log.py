"""A local log that is another one than the archived one is never appended to it, however much it looks like it."""

from __future__ import annotations

import shutil
import struct
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from structlog.testing import capture_logs

from sidecar.archive.state import PartitionState
from sidecar.broker.files import FileBrokerFacts
from sidecar.commits.continuity import ArchivePorts, require_continuity
from sidecar.config import Settings
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.errors import CorruptFile, CoverageHole, LineageUnknown, StagingFull
from sidecar.host.journal import Journal
from sidecar.host.log_dir_fingerprint import LogDirFingerprint
from sidecar.model import PartitionFiles
from sidecar.partition.domain_events import DomainEvent, LostOffsetsOnDisk
from sidecar.runner import copy_executor
from sidecar.runner.backfill import backfill
from sidecar.runner.partition_archiver import PartitionArchiver
from tests.fakes.memory_store import MemoryStore
from tests.retention.test_pinned_logs import Answering, listed
from tests.runner.one_partition import archived, planned
from tests.runner.rig import (
    archive,
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    tools_for,
)

PARTITION = "orders-0"
METADATA = "partition.metadata"
EPOCHS = "leader-epoch-checkpoint"


def write_other_records(directory: Path) -> None:
    """Every batch becomes another one with the same offsets, sizes and epochs, whole by its checksum."""
    for file in directory.glob("*.log"):
        content, at = bytearray(file.read_bytes()), 0
        while at < len(content):
            size = struct.unpack_from(">i", content, at + 8)[0] + 12
            content[at + 42] ^= 1  # The last byte of the maximum timestamp.
            struct.pack_into(">I", content, at + 17, crc32c(bytes(content[at + 21 : at + size])))
            at += size
        file.write_bytes(content)
    for file in directory.glob("*.timeindex"):
        file.unlink()


def make_anew(directory: Path, original: Path) -> None:
    """The topic is deleted and made again: the same name, offsets and (if it had one) id, but other records."""
    metadata = directory / METADATA
    kept = metadata.read_bytes() if metadata.exists() else None
    shutil.rmtree(directory)
    shutil.copytree(original, directory)
    write_other_records(directory)
    metadata.unlink() if kept is None else metadata.write_bytes(kept)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """The whole partition as the broker left it."""
    return copy_partitions(tmp_path / "original", PARTITION) / PARTITION


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """The partition with three rolled segments."""
    log_dir = copy_partitions(tmp_path / "copy", PARTITION)
    third = rolled_ranges(log_dir, PARTITION)[2]
    remove_offsets(log_dir / PARTITION, lambda offset: offset <= third[1])
    return log_dir


@pytest.mark.parametrize("has_topic_id", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_a_topic_that_was_made_anew_between_two_looks_is_not_appended_to_the_old_one(
    has_topic_id: bool, restarts: bool, original: Path, log_dir: Path, tmp_path: Path
) -> None:
    store, directory = MemoryStore(), log_dir / PARTITION
    if not has_topic_id:
        (directory / METADATA).unlink()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        assert rounds.run_once().errors == []
        make_anew(directory, original)
        if not restarts:
            errors = rounds.run_once().errors
    if restarts:
        with tools_for(log_dir, store, tmp_path / "state") as context:
            errors = archive(context, log_dir).errors
    assert [type(error) for error in errors] == [LineageUnknown]
    assert "has CRC" in str(errors[0])
    assert ranges(archived_states(store)[PARTITION]) == rolled_ranges(original.parent, PARTITION)[:3]


@pytest.mark.parametrize(
    ("cleanup_policy", "start_offset", "leader_epoch", "continues"),
    [
        ("compact", 0, 2, True),
        ("compact", 710, 2, True),
        ("compact", 710, 3, False),
        ("compact", 710, 0, False),
        ("delete", 0, 2, False),
    ],
)
def test_a_replica_that_is_not_cleaned_continues_the_archive_of_a_cleaned_one(
    cleanup_policy: str,
    start_offset: int,
    leader_epoch: int,
    continues: bool,
    original: Path,
    log_dir: Path,
    tmp_path: Path,
) -> None:
    """After DeleteRecords the checkpoint begins at the log start. The batches that the files still have say who wrote them."""
    store, spans = MemoryStore(), rolled_ranges(original.parent, PARTITION)
    name = f"{spans[2][0]:020d}.log"
    log, at = log_dir / PARTITION / name, 0
    content = log.read_bytes()
    while (end := at + struct.unpack_from(">i", content, at + 8)[0] + 12) < len(content):
        at = end
    log.write_bytes(content[:at])  # Without its last batch, of leader epoch 2.
    for suffix in ("index", "timeindex"):
        log.with_suffix(f".{suffix}").unlink()
    (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {spans[2][1]}\n")
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    (original / name).write_bytes(content[: at + 12] + struct.pack(">i", leader_epoch) + content[at + 16 :])
    if start_offset:
        (original / EPOCHS).write_text(f"0\n1\n4 {start_offset}\n")
        (original.parent / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {start_offset}\n")
    policies = [TopicPolicySettings.model_validate({"pattern": "orders", "cleanup_policy": cleanup_policy})]
    facts = FileBrokerFacts([original.parent], assume_leader=True, policies=policies)
    with tools_for(original.parent, store, tmp_path / "state of the next leader") as context:
        errors = archive(replace(context, facts=facts), original.parent).errors
    assert [type(error) for error in errors] == ([] if continues else [LineageUnknown])
    assert continues or "has CRC" in str(errors[0])
    assert ranges(archived_states(store)[PARTITION]) == (spans if continues else spans[:3])


def test_the_report_of_a_stopped_partition_shows_what_waits_and_where_the_archive_ends(
    original: Path, log_dir: Path, tmp_path: Path
) -> None:
    settings = Settings.model_validate(
        {
            "store": {"url": str(tmp_path / "archive")},
            "broker": {"log_dirs": [log_dir], "assume_leader": True, "settle_ms": 0, "snapshot_grace_ms": 0},
            "run": {"state_dir": tmp_path / "state"},
        }
    )
    directory = log_dir / PARTITION
    (directory / METADATA).unlink()
    assert backfill(settings, dry_run=False).exit_code == 0
    make_anew(directory, original)
    for dry_run in (True, False):
        (row,) = backfill(settings, dry_run=dry_run).rows
        assert row.error == "LineageUnknown"
        assert row.segments_waiting == len(rolled_ranges(log_dir, PARTITION))
        assert row.end_offset == rolled_ranges(log_dir, PARTITION)[2][1]


def test_a_log_truncated_in_place_below_the_archive_is_an_error_not_silence(log_dir: Path, tmp_path: Path) -> None:
    store, directory = MemoryStore(), log_dir / PARTITION
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        assert rounds.run_once().errors == []
        second = rolled_ranges(log_dir, PARTITION)[1]
        remove_offsets(directory, lambda offset: offset <= second[0])
        errors = rounds.run_once().errors
    assert [type(error) for error in errors] == [LineageUnknown]
    assert f"ends at offset {second[1]}, below the archive's end" in str(errors[0])


def _delete_up_to(end_offset: int, directory: Path, original: Path) -> None:
    """Retention has deleted all that the archive has, and what the log had instead."""
    remove_offsets(directory, lambda offset: False)
    for file in original.iterdir():
        if file.name == EPOCHS or (file.name[:20].isdigit() and int(file.name[:20]) >= end_offset):
            shutil.copy2(file, directory)


@pytest.mark.parametrize("has_topic_id", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_a_log_that_differed_is_not_continued_when_retention_has_taken_what_showed_it(
    has_topic_id: bool, restarts: bool, original: Path, log_dir: Path, tmp_path: Path
) -> None:
    """After an unclean leader election, as much was written and deleted since as the archive has."""
    store, directory = MemoryStore(), log_dir / PARTITION
    if not has_topic_id:
        for place in (directory, original):
            (place / METADATA).unlink()
    second, third = rolled_ranges(log_dir, PARTITION)[1:3]
    with ExitStack() as stack:
        rounds = rounds_over(stack.enter_context(tools_for(log_dir, store, tmp_path / "state")), log_dir)
        assert rounds.run_once().errors == []
        before = archived_states(store)[PARTITION]
        remove_offsets(directory, lambda offset: offset <= second[0])
        errors = rounds.run_once().errors
        if restarts:
            stack.close()
            rounds = rounds_over(stack.enter_context(tools_for(log_dir, store, tmp_path / "state")), log_dir)
        _delete_up_to(third[1], directory, original)
        errors += rounds.run_once().errors
        assert [type(error) for error in errors] == [LineageUnknown, LineageUnknown]
        assert "they differed at an earlier check" in str(errors[1])
        assert archived_states(store)[PARTITION] == before
        for file in original.iterdir():
            shutil.copy2(file, directory)
        assert rounds.run_once().errors == []
    assert ranges(archived_states(store)[PARTITION]) == rolled_ranges(original.parent, PARTITION)


@pytest.mark.parametrize("moves", [False, True])
def test_a_log_that_differed_before_anything_of_it_had_rolled_is_not_continued(
    moves: bool, original: Path, log_dir: Path, tmp_path: Path
) -> None:
    """Idle topics roll and delete a segment in one step. Source: UnifiedLog.deleteOldSegments. A move to another log dir changes
    nothing.
    """
    store, directory, state_dir = MemoryStore(), log_dir / PARTITION, tmp_path / "state"
    second, third = rolled_ranges(log_dir, PARTITION)[1:3]
    with tools_for(log_dir, store, state_dir) as context:
        assert archive(context, log_dir).errors == []
        before = archived_states(store)[PARTITION]
        remove_offsets(directory, lambda offset: offset == second[0])
        (directory / EPOCHS).write_text(f"0\n1\n9 {second[0]}\n")
        assert archive(context, log_dir).errors == []
    _delete_up_to(third[1], directory, original)
    if moves:
        kept, log_dir = log_dir, log_dir.rename(tmp_path / "moved")
        kept.mkdir()
    with tools_for(log_dir, store, state_dir) as context:
        (error,) = archive(context, log_dir).errors
    assert "they differed at an earlier check" in str(error)
    assert archived_states(store)[PARTITION] == before


def test_the_right_disk_continues_the_archive_though_nothing_archived_is_left_on_it(
    original: Path, log_dir: Path, tmp_path: Path
) -> None:
    """The broker was started without its disk, led with an empty log, and has its disk again."""
    store, directory, state_dir = MemoryStore(), log_dir / PARTITION, tmp_path / "state"
    third = rolled_ranges(log_dir, PARTITION)[2]
    with tools_for(log_dir, store, state_dir) as context:
        rounds = rounds_over(context, log_dir)
        assert rounds.run_once().errors == []
        right = log_dir.rename(tmp_path / "unmounted")
        shutil.copytree(right, log_dir)
        (directory / EPOCHS).write_text("0\n1\n9 0\n")
        (error,) = rounds.run_once().errors
        assert "If you have the right disk" in str(error)
        log_dir.rename(tmp_path / "wrong")
        right.rename(log_dir)
        _delete_up_to(third[1], directory, original)
        assert rounds.run_once().errors == []
    assert ranges(archived_states(store)[PARTITION]) == rolled_ranges(original.parent, PARTITION)


def test_a_log_that_differed_stays_noted_while_the_archive_looks_empty(
    original: Path, log_dir: Path, tmp_path: Path
) -> None:
    """As with an older copy of the bucket, until the right one is back."""
    store, directory = MemoryStore(), log_dir / PARTITION
    third = rolled_ranges(log_dir, PARTITION)[2]
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        assert rounds.run_once().errors == []
        (directory / EPOCHS).write_text("0\n1\n9 0\n")
        assert [type(error) for error in rounds.run_once().errors] == [LineageUnknown]
        _delete_up_to(third[1], directory, original)
        archived_objects = dict(store.objects)
        store.objects.clear()
        assert [type(error) for error in rounds.run_once().errors] == [CorruptFile]
        store.objects.update(archived_objects)
        (error,) = rounds.run_once().errors
    assert "they differed at an earlier check" in str(error)


def test_a_stopped_partition_writes_nothing_at_each_check(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands stop at once when a broker leads with an older copy of its disk; each write waits for the state directory's."""
    noted: list[str] = []
    monkeypatch.setattr(Journal, "_note", lambda _journal, table, *_: noted.append(table))
    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
        monkeypatch.undo()
        (log_dir / PARTITION / EPOCHS).write_text("0\n1\n9 0\n")
        rounds = rounds_over(context, log_dir)
        assert len(rounds.run_once().errors) == 1
        monkeypatch.setattr(Journal, "_note", lambda _journal, table, *_: noted.append(table))
        assert len(rounds.run_once().errors) == 1
    assert noted == ["sources"]


def test_a_full_state_directory_stops_no_other_partition_where_a_log_differs(
    original: Path, log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that is found between the plan and its task."""

    def checked(context: ArchivePorts, files: PartitionFiles, archived: PartitionState) -> None:
        (files.directory / EPOCHS).write_text("0\n1\n9 0\n")
        require_continuity(context, files, archived)

    def differs(_journal: Journal, _root: str, _mark: LogDirFingerprint) -> None:
        raise StagingFull("no room")

    with tools_for(log_dir, MemoryStore(), tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
        _delete_up_to(0, log_dir / PARTITION, original)
        monkeypatch.setattr(copy_executor, "require_continuity", checked)
        monkeypatch.setattr(Journal, "differs", differs)
        assert [type(error) for error in archive(context, log_dir).errors] == [StagingFull]


def test_a_replica_whose_active_segment_reaches_over_the_archive_end_is_no_error(
    original: Path, log_dir: Path, tmp_path: Path
) -> None:
    store, directory = MemoryStore(), log_dir / PARTITION
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    second, third = rolled_ranges(original.parent, PARTITION)[1:3]
    # This replica has not rolled since the second segment.
    merged = b"".join((original / f"{base:020d}.log").read_bytes() for base in (*second, third[1]))
    remove_offsets(directory, lambda offset: offset <= second[0])
    (directory / f"{second[0]:020d}.log").write_bytes(merged)
    with tools_for(log_dir, store, tmp_path / "other broker") as context:
        assert archive(context, log_dir).errors == []


def test_retention_of_all_that_is_archived_is_no_change_of_the_log(
    original: Path, log_dir: Path, tmp_path: Path
) -> None:
    store, directory = MemoryStore(), log_dir / PARTITION
    (directory / METADATA).unlink()
    third = rolled_ranges(original.parent, PARTITION)[2]
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    remove_offsets(directory, lambda offset: offset >= third[1])
    for file in original.iterdir():
        if file.name[:20].isdigit() and int(file.name[:20]) >= third[1]:
            shutil.copy2(file, directory)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    assert ranges(archived_states(store)[PARTITION]) == rolled_ranges(original.parent, PARTITION)


@pytest.mark.parametrize(
    ("births_ns", "is_active_kept", "continues"),
    [
        ((1, 1), False, True),
        ((1, 2), True, False),  # its inode number was given again
        ((None, None), True, True),
        ((None, 1), True, True),
        ((None, None), False, False),
    ],
)
def test_a_directory_is_known_by_its_birth_or_by_the_segment_that_was_active(
    births_ns: tuple[int | None, int | None],
    is_active_kept: bool,
    continues: bool,
    original: Path,
    log_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, directory = MemoryStore(), log_dir / PARTITION
    (directory / METADATA).unlink()
    third = rolled_ranges(original.parent, PARTITION)[2]
    monkeypatch.setattr("sidecar.host.log_dir_fingerprint.birth_ns", lambda *_: births_ns[0])
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    remove_offsets(directory, lambda offset: offset >= third[1])
    for file in original.iterdir():
        if file.name[:20].isdigit() and int(file.name[:20]) >= third[1]:
            is_new = not is_active_kept or not (directory / file.name).exists()
            shutil.copy2(file, made := directory / (f"{file.name}.new" if is_new else file.name))
            made.replace(directory / file.name)
    monkeypatch.setattr("sidecar.host.log_dir_fingerprint.birth_ns", lambda *_: births_ns[1])
    with tools_for(log_dir, store, tmp_path / "state") as context:
        errors = archive(context, log_dir).errors
    assert [type(error) for error in errors] == ([] if continues else [LineageUnknown])
    expected = rolled_ranges(original.parent, PARTITION)
    assert ranges(archived_states(store)[PARTITION]) == (expected if continues else expected[:3])


def _taken_metadata(directory: Path) -> bytes:
    """As before an upgrade of the cluster: the topic has no id. Returns the file that gives it one."""
    metadata = (directory / METADATA).read_bytes()
    (directory / METADATA).unlink()
    return metadata


def test_an_upgraded_topic_with_nothing_rolled_left_goes_on_with_its_lineage(
    original: Path, log_dir: Path, tmp_path: Path
) -> None:
    store, directory = MemoryStore(), log_dir / PARTITION
    metadata = _taken_metadata(directory)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        assert rounds.run_once().errors == []
        third = rolled_ranges(log_dir, PARTITION)[2]
        remove_offsets(directory, lambda offset: offset >= third[1])
        (directory / METADATA).write_bytes(metadata)
        assert rounds.run_once().errors == []
        for file in original.iterdir():
            if file.name[:20].isdigit() and int(file.name[:20]) >= third[1]:
                shutil.copy2(file, directory)
        assert rounds.run_once().errors == []
    (state,) = archived_states(store).values()
    assert ranges(state) == rolled_ranges(original.parent, PARTITION)
    assert state.topic_id is not None


def test_a_topic_id_that_another_writer_has_adopted_is_not_adopted_again(
    original: Path, log_dir: Path, tmp_path: Path
) -> None:
    """The leader of before commits first: both sidecars have seen the topic's id, and the archive has none yet."""
    store, directory = MemoryStore(), log_dir / PARTITION
    metadata = _taken_metadata(directory)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    (directory / METADATA).write_bytes(metadata)
    spans = rolled_ranges(original.parent, PARTITION)
    other = copy_partitions(tmp_path / "other", PARTITION)
    remove_offsets(other / PARTITION, lambda offset: offset <= spans[3][1])
    uploads: list[str] = []

    def overtake(operation: str, key: str) -> None:
        if operation == "upload" and not uploads:
            uploads.append(key)
            with tools_for(other, store, tmp_path / "other-state") as others:
                assert archive(others, other).errors == []

    with tools_for(original.parent, store, tmp_path / "state") as context:
        store.before = overtake
        assert archive(context, original.parent).errors == []
    (state,) = archived_states(store).values()
    assert ranges(state) == spans
    assert state.topic_id is not None


def test_an_active_segment_above_the_archive_is_a_hole_before_it_rolls(
    original: Path, log_dir: Path, tmp_path: Path
) -> None:
    store, directory = MemoryStore(), log_dir / PARTITION
    spans = rolled_ranges(original.parent, PARTITION)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        assert rounds.run_once().errors == []
        remove_offsets(directory, lambda offset: False)
        shutil.copy2(original / f"{spans[-1][1]:020d}.log", directory)
        errors = rounds.run_once().errors
        assert [type(error) for error in errors] == [CoverageHole]
        assert f"begins at {spans[-1][1]}" in str(errors[0])
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True) as context:
        assert archive(context, log_dir).errors == []
    (hole,) = archived_states(store)[PARTITION].holes
    assert (hole.base_offset, hole.end_offset) == (spans[2][1], spans[-1][1])


def _ends_with_a_loss(log_dir: Path, original: Path, store: MemoryStore, state_dir: Path, known: str) -> None:
    """The archive has two segments, and a loss up to the fifth. `known`: the leader epochs that the log has until then."""
    directory, spans = log_dir / PARTITION, rolled_ranges(original.parent, PARTITION)
    remove_offsets(directory, lambda offset: offset <= spans[1][1])
    (directory / EPOCHS).write_text(known)
    with tools_for(log_dir, store, state_dir) as context:
        assert archive(context, log_dir).errors == []
    remove_offsets(directory, lambda offset: False)
    shutil.copy2(original / f"{spans[4][0]:020d}.log", directory)
    with tools_for(log_dir, store, state_dir, record_lost=True) as context:
        assert archive(context, log_dir).errors == []
    (hole,) = archived_states(store)[PARTITION].holes
    assert (hole.base_offset, hole.end_offset) == (spans[1][1], spans[4][0]) == (248, 504)


def test_a_replica_that_still_has_what_the_archive_ends_with_as_lost_continues_it(
    original: Path, log_dir: Path, tmp_path: Path
) -> None:
    """The leader of before had raised its log start, and this one had not fetched that yet. The loss stays recorded."""
    store, spans = MemoryStore(), rolled_ranges(original.parent, PARTITION)
    _ends_with_a_loss(log_dir, original, store, tmp_path / "state", (original / EPOCHS).read_text())
    with tools_for(original.parent, store, tmp_path / "state of the new leader") as context, capture_logs() as logs:
        assert archive(context, original.parent).errors == []
    assert not [entry for entry in logs if entry["event"] == "lost_offsets_on_disk"]
    state = archived_states(store)[PARTITION]
    assert ranges(state) == [*spans[:2], *spans[4:]]
    assert [(hole.base_offset, hole.end_offset) for hole in state.holes] == [(248, 504)]


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("accepts", [True, False])
@pytest.mark.parametrize(
    ("epochs", "shown"),
    [(None, "leader epoch 2"), ("0\n1\n4 700\n", "an unknown leader epoch")],
    ids=["later", "unknown"],
)
def test_a_log_that_was_truncated_into_a_loss_at_the_archives_end_is_not_continued_in_silence(
    accepts: bool,
    restarts: bool,
    epochs: str | None,
    shown: str,
    original: Path,
    log_dir: Path,
    tmp_path: Path,
) -> None:
    """No batch of it is archived. The loss was recorded under leader epoch 0, and leader epoch 2 begins at offset 350."""
    store, directory = MemoryStore(), log_dir / PARTITION
    spans = rolled_ranges(original.parent, PARTITION)
    _ends_with_a_loss(log_dir, original, store, tmp_path / "state", "0\n1\n0 0\n")
    before = archived_states(store)[PARTITION]
    with tools_for(log_dir, store, tmp_path / "state", record_lost=accepts) as context, capture_logs() as logs:
        rounds = rounds_over(context, log_dir)
        if not restarts:
            assert rounds.run_once().errors == []
        shutil.rmtree(directory)
        shutil.copytree(original, directory)
        if epochs is not None:
            (directory / EPOCHS).write_text(epochs)
        errors = rounds.run_once().errors
    reason = f"recorded under leader epoch 0 or lower, and the local log has offset 503 under {shown}"
    assert [type(error) for error in errors] == ([] if accepts else [LineageUnknown])
    assert any(reason in entry["reason"] for entry in logs if entry["event"] == "lost_offsets_on_disk")
    if accepts:
        assert ranges(archived_states(store)[PARTITION])[2:] == spans[4:]
    else:
        assert reason in str(errors[0])
        assert archived_states(store)[PARTITION] == before


def test_records_below_the_leaders_log_start_do_not_contradict_a_loss(tmp_path: Path) -> None:
    """A follower takes its leader's log start with the next fetch, and deletes by its own timer (5 minutes).

    `log-start-offset-checkpoint` follows after up to a minute; the broker's answer has it at once. Source:
    ReplicaFetcherThread.processPartitionData, LogManager.cleanupLogs.
    """
    of_a, of_b = (copy_partitions(tmp_path / name, "orders-0") for name in ("a", "b"))
    store, seen = MemoryStore(), list[DomainEvent]()
    with tools_for(of_a, store, tmp_path / "state-a") as context:
        facts = Answering(FileBrokerFacts([of_a], assume_leader=True), cluster_start_offset=0)
        context = replace(context, facts=facts)
        archiver = PartitionArchiver(context, listed(of_a))
        plan = planned(context, archiver, listed(of_a))
        active = plan.files.active_base_offset
        assert active is not None
        assert archived(context, archiver, replace(plan, segments=plan.segments[:1])).error is None
        facts.cluster_start_offset = active
        remove_offsets(of_a / "orders-0", lambda offset: offset >= active)
        plan = planned(context, archiver, listed(of_a))
        assert plan.hole == (140, active)
        assert archived(context, archiver, plan).error is None
    assert archived_states(store)["orders-0"].end_offset == active
    with tools_for(of_b, store, tmp_path / "state-b") as context:
        epoch = plan.facts.leader_epoch + 1
        facts = Answering(FileBrokerFacts([of_b], assume_leader=True), cluster_start_offset=active, epoch=epoch)
        context = replace(context, facts=facts, emit=seen.append)
        assert planned(context, PartitionArchiver(context, listed(of_b)), listed(of_b)).error is None
    assert not [event for event in seen if isinstance(event, LostOffsetsOnDisk)]
