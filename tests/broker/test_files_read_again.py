"""Small files that have not changed are not decoded again; whatever makes them others is seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sidecar.broker import files, log_dir_state
from sidecar.broker.files import FileBrokerFacts, LeaderEpochCache
from sidecar.broker.log_dir_state import read_log_dir_state
from sidecar.errors import CorruptFile
from sidecar.logformat.files import SETTLED_MS
from sidecar.partition.wait_reason import render
from tests.broker.test_files import ORDERS, a_log_dir, files_of
from tests.fakes.manual_clock import ManualClock

EPOCHS = "0\n1\n{epoch} 0\n"


class Epochs:
    """A `leader-epoch-checkpoint`, a cache over it, and how often it was read."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.path = directory, directory / "leader-epoch-checkpoint"
        self.write(3)
        self.clock = ManualClock(self.path.stat().st_mtime_ns // 1_000_000 + SETTLED_MS + 1_000)
        self.cache = LeaderEpochCache(self.clock)
        self.reads = 0
        latest = files.latest_epoch

        def counted(directory: Path) -> int:
            self.reads += 1
            return latest(directory)

        monkeypatch.setattr(files, "latest_epoch", counted)

    def write(self, epoch: int) -> None:
        """As a broker does: a new file, renamed over the old one."""
        fresh = self.directory / "leader-epoch-checkpoint.tmp"
        fresh.write_text(EPOCHS.format(epoch=epoch))
        fresh.replace(self.path)

    def latest(self) -> int:
        return self.cache.latest(self.directory)


@pytest.fixture
def epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Epochs:
    return Epochs(tmp_path, monkeypatch)


def test_an_epoch_file_that_stays_is_read_once(epochs: Epochs) -> None:
    assert [epochs.latest(), epochs.latest(), epochs.reads] == [3, 3, 1]


def test_another_file_with_the_same_size_and_time_is_read(epochs: Epochs) -> None:
    assert epochs.latest() == 3
    status = epochs.path.stat()
    epochs.write(4)
    os.utime(epochs.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert epochs.latest() == 4


def test_a_file_written_in_place_is_read(epochs: Epochs) -> None:
    assert epochs.latest() == 3
    status = epochs.path.stat()
    epochs.path.write_text(EPOCHS.format(epoch=4))
    os.utime(epochs.path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert epochs.latest() == 4
    epochs.path.write_text(EPOCHS.format(epoch=1234))
    os.utime(epochs.path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert epochs.latest() == 1234


def test_a_file_that_goes_or_cannot_be_believed_is_reported_at_once(epochs: Epochs) -> None:
    assert epochs.latest() == 3
    epochs.path.unlink()
    assert epochs.latest() == -1
    epochs.path.write_text("what?")
    for _ in range(2):
        with pytest.raises(CorruptFile):
            epochs.latest()


def test_a_young_file_is_read_again(epochs: Epochs) -> None:
    epochs.clock.advance_ms(-SETTLED_MS - 1_000)
    assert [epochs.latest(), epochs.latest(), epochs.reads] == [3, 3, 2]


def test_directories_that_nobody_asks_for_are_forgotten(epochs: Epochs) -> None:
    epochs.latest()
    epochs.cache.forget_unasked()
    assert [epochs.latest(), epochs.reads] == [3, 1], "it was asked for since the last call"
    epochs.cache.forget_unasked()
    epochs.cache.forget_unasked()
    assert [epochs.latest(), epochs.reads] == [3, 2]


def test_right_before_a_commit_the_file_itself_is_read(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=5, recovery_point=5)
    path = log_dir / "orders-0" / "leader-epoch-checkpoint"
    path.write_text(EPOCHS.format(epoch=3))
    status = path.stat()
    facts = FileBrokerFacts(
        [log_dir], assume_leader=True, clock=ManualClock(status.st_mtime_ns // 1_000_000 + 2 * SETTLED_MS)
    )
    files = files_of(log_dir)
    assert facts.partition(files).leader_epoch == 3
    path.write_text(EPOCHS.format(epoch=4))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert facts.partition(files).leader_epoch == 3, "nothing tells these two files apart"
    assert facts.confirm(files).leader_epoch == 4


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "recovery-point-offset-checkpoint"])
def test_checkpoints_are_decoded_where_their_bytes_are_others(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=7, recovery_point=7)
    decoded: list[str] = []
    decode = log_dir_state.read_offset_checkpoint

    def counted(content: bytes, name: str) -> object:
        decoded.append(Path(name).name)
        return decode(content, name)

    monkeypatch.setattr(log_dir_state, "read_offset_checkpoint", counted)
    facts = FileBrokerFacts([log_dir], assume_leader=True)
    assert facts.partition(files_of(log_dir)).stable_end_offset == 7
    decoded.clear()
    facts.refresh()
    assert decoded == []
    (log_dir / name).write_text("0\n1\norders 0 6\n")
    facts.refresh()
    assert decoded == [name]
    assert facts.partition(files_of(log_dir)).stable_end_offset == 6
    (log_dir / name).unlink()
    facts.refresh()
    assert "does not exist" in render(facts.partition(files_of(log_dir)).reason)


def test_a_checkpoint_that_was_damaged_and_mended_is_believed_again(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=7)
    path = log_dir / "replication-offset-checkpoint"
    good = path.read_bytes()
    state = read_log_dir_state(log_dir)
    path.write_bytes(b"what?")
    damaged = read_log_dir_state(log_dir, state)
    assert damaged.high_watermark.error is not None
    assert read_log_dir_state(log_dir, damaged).high_watermark.error is not None
    path.write_bytes(good)
    assert read_log_dir_state(log_dir, damaged).high_watermark.offset(ORDERS) == 7


def test_a_checkpoint_that_appears_empty_is_not_one_that_is_missing(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=7)
    path = log_dir / "replication-offset-checkpoint"
    path.unlink()
    missing = read_log_dir_state(log_dir)
    assert not missing.high_watermark.exists
    path.touch()
    empty = read_log_dir_state(log_dir, missing).high_watermark
    assert empty.exists
    assert "has no entry" in empty.lacks(ORDERS)
