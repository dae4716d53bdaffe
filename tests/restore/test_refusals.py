"""Nothing is overwritten, nothing is guessed, and no broker is written under."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.errors import (
    CorruptFile,
    LineageUnknown,
    PartitionError,
    SettingsError,
    SidecarError,
    StagingFull,
    StoreUnavailable,
)
from sidecar.host.log_dir_lock import LogDirRefused
from sidecar.logformat.metadata_files import write_partition_metadata
from sidecar.logformat.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from sidecar.reporting.advice import advised
from sidecar.restore.plan import SegmentPlan
from sidecar.restore.request import LeaderEpochMode, ProducerStateMode, RestoreRequest
from sidecar.restore.restore import Run, plan_restore, restore
from sidecar.restore.segments import PartitionRestore
from sidecar.restore.staging import translating
from tests.golden import golden, manifest
from tests.restore.archives import CLOCK, archived, files_of, golden_topic_id, other_log_dir, own_log_dir, restored

OTHER_ID = "8OyGp8_jQ0iBuez4VPrvCg"
HOLD_LOCK = (
    "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
)


def new_topic(log_dir: Path, name: str, topic_id: str, epochs: str = "0\n1\n0 0\n") -> Path:
    """The directory of a topic that was created and never written to."""
    directory = log_dir / name
    shutil.copytree(golden("4.3.0") / "logs" / "empty-0", directory)
    (directory / "partition.metadata").write_bytes(write_partition_metadata(topic_id))
    (directory / "leader-epoch-checkpoint").write_text(epochs)
    return directory


def test_the_empty_log_of_a_new_topic_is_replaced_under_its_own_id(tmp_path: Path) -> None:
    log_dir = other_log_dir(tmp_path)
    new_topic(log_dir, "orders-0", OTHER_ID)
    outcome = restored(archived(), log_dir, "orders", topic_id=None)
    assert outcome.decisions is not None
    assert (outcome.decisions.topic_id, outcome.decisions.leader_epochs) == (OTHER_ID, LeaderEpochMode.FLATTEN)
    assert OTHER_ID.encode() in files_of(log_dir / "orders-0")["partition.metadata"]
    assert (log_dir / "orders-0" / f"{0:020d}.log").stat().st_size > 0


def test_a_directory_of_the_same_topic_tells_the_id(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    shutil.copytree(golden("4.3.0") / "logs" / "orders-1", log_dir / "orders-1")
    outcome = restored(archived(), log_dir, "orders", topic_id=None)
    assert outcome.decisions is not None
    assert outcome.decisions.topic_id == golden_topic_id("orders")


def test_a_zookeeper_brokers_directory_needs_no_id(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path, "2.7.2")
    restored(archived("2.7.2"), log_dir, "orders", "2.7.2")
    assert "partition.metadata" not in files_of(log_dir / "orders-0")


@pytest.mark.parametrize("name", [f"{0:020d}.log", f"{5:020d}.log", "letter.txt", f"{7:020d}.snapshot"])
def test_a_directory_that_is_not_empty_is_left_alone(name: str, tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    directory = new_topic(log_dir, "orders-0", str(golden_topic_id("orders")))
    (directory / name).write_bytes(b"x")
    before = files_of(directory)
    with pytest.raises(LogDirRefused, match=name):
        restored(archived(), log_dir, "orders")
    assert files_of(directory) == before
    assert not (log_dir / "orders-0.restoring").exists()


def test_a_running_brokers_directory_is_left_alone(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    lock = log_dir / ".lock"
    lock.touch()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(LogDirRefused, match=r"\.lock is locked"):
            restored(archived(), log_dir, "orders")
        assert sorted(path.name for path in log_dir.iterdir()) == [".lock", "meta.properties"]
        assert holder.stdin is not None
        holder.stdin.close()


def test_a_broker_cannot_start_meanwhile(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    refused = []

    def try_to_lock(operation: str, key: str) -> None:
        if operation == "stream":
            code = f"import fcntl; fcntl.lockf(open({str(log_dir / '.lock')!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
            refused.append(subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode)

    restored(archived(before=try_to_lock), log_dir, "codecs-librdkafka")
    assert refused == [1]
    descriptor = os.open(log_dir / ".lock", os.O_RDWR)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_neither_a_partitions_directory_nor_anybodys_is_taken_for_a_log_dir(tmp_path: Path) -> None:
    partition = tmp_path / "orders-0"
    shutil.copytree(golden("4.3.0") / "logs" / "orders-0", partition)
    with pytest.raises(LogDirRefused, match="--to is the log dir above it"):
        restored(archived(), partition, "orders")
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter.txt").touch()
    with pytest.raises(LogDirRefused, match=r"letter\.txt"):
        restored(archived(), home, "orders")
    assert [path.name for path in home.iterdir()] == ["letter.txt"]
    with pytest.raises(LogDirRefused, match="neither it nor the directory above"):
        restored(archived(), tmp_path / "a" / "b", "orders")


@pytest.mark.parametrize("exists", [True, False])
def test_a_partitions_directory_in_a_log_dir_gets_no_log_dir_inside(exists: bool, tmp_path: Path) -> None:
    partition = own_log_dir(tmp_path) / "orders-0"
    if exists:
        partition.mkdir()
    with pytest.raises(LogDirRefused, match="--to is the log dir above it"):
        restored(archived(), partition, "orders")
    assert not any(partition.rglob("*"))


def test_a_log_dir_may_have_the_name_of_a_partition(tmp_path: Path) -> None:
    """As data-0 below a `metadata.log.dir`."""
    log_dir = own_log_dir(tmp_path).rename(tmp_path / "data-0")
    shutil.copy(log_dir / "meta.properties", tmp_path)
    restored(archived(), log_dir, "orders")
    assert (log_dir / "orders-0").is_dir()


def refusal(error: type[SidecarError], log_dir: Path, **request: object) -> str:
    with pytest.raises(error) as raised:
        restored(archived(), log_dir, "orders", **request)
    assert not list(log_dir.glob("orders-*.restoring"))
    return str(raised.value)


def test_an_unknown_topic_id_is_asked_for(tmp_path: Path) -> None:
    text = refusal(SettingsError, own_log_dir(tmp_path), topic_id=None)
    assert "stray" in text
    assert f"own id is {golden_topic_id('orders')}" in text


def test_a_topic_id_that_contradicts_the_directory_is_refused(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    new_topic(log_dir, "orders-0", OTHER_ID)
    assert OTHER_ID in refusal(LineageUnknown, log_dir)
    assert "KRaft" in refusal(SettingsError, log_dir, topic_id="none")
    assert "22 characters" in refusal(SettingsError, log_dir, topic_id="orders")


def test_the_dangerous_combination_is_refused(tmp_path: Path) -> None:
    keep = {"leader_epochs": LeaderEpochMode.KEEP}
    other = other_log_dir(tmp_path)
    assert "wait for ever" in refusal(SettingsError, other, topic_id=OTHER_ID, **keep)
    own = own_log_dir(tmp_path)
    assert "re-created" in refusal(SettingsError, own, topic_id=OTHER_ID, **keep)
    new_topic(own, "orders-0", str(golden_topic_id("orders")), "0\n1\n3 0\n")
    assert "has seen leader epoch 3" in refusal(SettingsError, own, **keep)
    outcome = restored(archived(), own, "orders")
    assert outcome.decisions is not None
    assert outcome.decisions.leader_epochs is LeaderEpochMode.FLATTEN
    assert outcome.decisions.producer_state is ProducerStateMode.KEEP


def test_a_topic_that_was_created_again_gets_no_producers(tmp_path: Path) -> None:
    """A cluster that was formatted again with its old id gives their ids to others, whose batches would seem to be duplicates."""
    outcome = restored(archived(), own_log_dir(tmp_path), "orders", topic_id=OTHER_ID)
    assert outcome.decisions is not None
    assert outcome.decisions.producer_state is ProducerStateMode.DROP
    assert not outcome.decisions.keeps_foreign_producers
    (tmp_path / "kept").mkdir()
    kept = ProducerStateMode.KEEP
    outcome = restored(archived(), own_log_dir(tmp_path / "kept"), "orders", topic_id=OTHER_ID, producer_state=kept)
    assert outcome.decisions is not None
    assert outcome.decisions.keeps_foreign_producers


def test_without_a_cluster_the_operator_says_whose_epochs(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    assert "no meta.properties" in refusal(SettingsError, fresh)
    outcome = restored(archived(), fresh, "orders", leader_epochs=LeaderEpochMode.FLATTEN)
    assert outcome.log is not None
    assert outcome.decisions is not None
    assert outcome.decisions.producer_state is ProducerStateMode.DROP


def test_topics_and_partitions_that_are_not_archived_are_named(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    with pytest.raises(SettingsError, match="partition 7"):
        restored(archived(), log_dir, "orders", partitions=(0, 7))
    with pytest.raises(SettingsError, match="at memory:// has no topic odrers; did you mean orders"):
        restored(archived(), log_dir, "odrers", topic_id=OTHER_ID)
    with pytest.raises(SettingsError, match="at memory:// has no topic zzz; there are: append-time, codecs-java"):
        restored(archived(), log_dir, "zzz", topic_id=OTHER_ID)


@pytest.mark.parametrize(
    "name", [RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_CHECKPOINT]
)
def test_a_checkpoint_file_that_cannot_be_read_is_found_before_anything_is_fetched(name: str, tmp_path: Path) -> None:
    log_dir, asked = own_log_dir(tmp_path), []
    store = archived(before=lambda _operation, key: asked.append(key))
    (log_dir / name).write_text("0\n2\norders 0 5\n")
    with pytest.raises(CorruptFile, match=f"{name}.*1 entry, the file announces 2"):
        restored(store, log_dir, "orders")
    (log_dir / name).unlink()
    (log_dir / name).mkdir()
    with pytest.raises(PartitionError, match=f"{name}: cannot be read: Is a directory"):
        restored(store, log_dir, "orders")
    assert not [key for key in asked if "/segments/" in key]
    assert not list(log_dir.glob("orders*"))


def test_several_histories_of_one_name_must_be_distinguished(tmp_path: Path) -> None:
    store = archived("4.3.0")
    store.objects |= archived("3.9.1").objects
    log_dir = own_log_dir(tmp_path)
    with pytest.raises(LineageUnknown, match="--cluster-id ID"):
        restored(store, log_dir, "orders", topic_id=OTHER_ID)
    outcome = restored(store, log_dir, "orders", topic_id=OTHER_ID, cluster_id=manifest("3.9.1")["cluster_id"])
    assert outcome.plan.state.lineage.cluster_id == manifest("3.9.1")["cluster_id"]


@pytest.mark.parametrize("is_new", [False, True])
def test_a_lack_of_room_is_reported_before_anything_is_made(
    is_new: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = tmp_path / "new" if is_new else own_log_dir(tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    request = RestoreRequest("orders", log_dir, topic_id=OTHER_ID, leader_epochs=LeaderEpochMode.FLATTEN)
    with pytest.raises(StagingFull, match=r"1000 are free.*Nothing was fetched") as refused:
        restore(archived(), CLOCK, request)
    assert plan_restore(archived(), CLOCK, request).no_room == str(refused.value)
    assert "restoring" not in str(refused.value)
    assert log_dir.exists() != is_new
    assert not list(tmp_path.rglob("orders*"))
    assert not (log_dir / ".lock").exists()


def test_a_log_dir_that_may_be_listed_but_not_entered_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = own_log_dir(tmp_path)
    (log_dir / ".lock").unlink(missing_ok=True)
    stat = Path.stat

    def refused(path: Path, **options: bool) -> os.stat_result:
        if path == log_dir / ".lock":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refused)  # A test may run as root, whom no mode keeps out.
    with pytest.raises(PartitionError, match=r"\.lock: cannot be read: Permission denied"):
        restored(archived(), log_dir, "orders")


def test_a_disk_that_fills_up_says_what_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = own_log_dir(tmp_path)
    request = RestoreRequest("orders", log_dir, topic_id=golden_topic_id("orders"))
    stays = (
        r"orders-0\.restoring, orders-1\.restoring in .* stay, and no broker starts.*or remove the named directories"
    )
    with monkeypatch.context() as patch:
        patch.setattr("sidecar.restore.restore.fetch_segment", _finds_the_disk_full)
        with pytest.raises(StagingFull, match=rf"(?s)no space left.*run the same command again.*{stays}"):
            restore(archived(), CLOCK, request)
    usage = shutil.disk_usage(log_dir)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
        with pytest.raises(StagingFull, match=rf"(?s)1000 are free.*--partition N.*{stays}"):
            restore(archived(), CLOCK, request)
    fewer = restore(archived(), CLOCK, replace(request, partitions=(1,)))
    assert (fewer.exit_code, fewer.unfinished) == (0, ["orders-0.restoring"])
    assert restore(archived(), CLOCK, request).exit_code == 0
    assert not list(log_dir.glob("*.restoring"))


def test_a_store_that_fails_in_the_middle_says_what_stays(tmp_path: Path) -> None:
    def failing(operation: str, key: str) -> None:
        if operation == "stream":
            raise StoreUnavailable(f"{key}: no answer")

    log_dir = own_log_dir(tmp_path)
    with pytest.raises(StoreUnavailable, match=r"(?s)no answer.*orders-0\.restoring in .* stays, and no broker starts"):
        restored(archived(before=failing), log_dir, "orders")


@pytest.mark.parametrize(
    "error", [LogDirRefused("the lock is lost"), PartitionError("no entry"), MemoryError("no room")]
)
def test_whatever_ends_a_restore_in_the_middle_says_what_stays(error: Exception, tmp_path: Path) -> None:
    def failing(run: Run) -> None:
        raise error

    log_dir = own_log_dir(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "swap_in", failing)
        with pytest.raises(type(error), match=str(error)) as raised:
            restored(archived(), log_dir, "orders")
    assert raised.value is error
    (note,) = error.__notes__
    assert note.startswith(f"orders-0.restoring in {log_dir} stays, and no broker starts in a log dir with unfinished")
    assert note.endswith("Run the same command again to continue, or remove the named directories")
    if isinstance(error, SidecarError):
        assert advised(error) == f"{error}. {note}"
    restored(archived(), log_dir, "orders")
    assert not list(log_dir.glob("*.restoring"))


def test_room_counts_what_is_there_and_what_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir, store = own_log_dir(tmp_path), archived()
    request = RestoreRequest("orders", log_dir, topic_id=golden_topic_id("orders"), partitions=(0,))
    (whole,) = plan_restore(store, CLOCK, request).outcomes
    with monkeypatch.context() as patch:
        patch.setattr("sidecar.restore.restore.Run.finish", lambda run: _full())
        with pytest.raises(OSError, match="No space left"):
            restore(store, CLOCK, request)
    usage = shutil.disk_usage(log_dir)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=whole.size_bytes // 4))
    # All is there: of the same options nothing is missing, of others as much is cleared as is fetched again.
    assert plan_restore(store, CLOCK, request).no_room == ""
    assert plan_restore(store, CLOCK, replace(request, leader_epochs=LeaderEpochMode.FLATTEN)).no_room == ""
    assert restore(store, CLOCK, replace(request, leader_epochs=LeaderEpochMode.FLATTEN)).exit_code == 0
    assert plan_restore(store, CLOCK, replace(request, partitions=(1,))).no_room


def _finds_the_disk_full(work: PartitionRestore, _plan: SegmentPlan) -> None:
    with translating(work.staged.directory):
        _full()


def _full() -> int:
    with Path("/dev/full").open("wb", buffering=0) as file:
        return file.write(b"x")
