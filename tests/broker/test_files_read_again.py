"""Whatever makes small files others is seen at the next reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.broker.log_dir_state import read_log_dir_state
from sidecar.errors import CorruptFile
from sidecar.partition.wait_reason import render
from tests.broker.test_files import ORDERS, a_log_dir, files_of

EPOCHS = "0\n1\n{epoch} 0\n"


def test_a_leader_epoch_is_that_of_the_file_now(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=5, recovery_point=5)
    path = log_dir / "orders-0" / "leader-epoch-checkpoint"
    facts, files = FileBrokerFacts([log_dir], assume_leader=True), files_of(log_dir)
    for epoch in (3, 4):
        path.write_text(EPOCHS.format(epoch=epoch))
        assert facts.partition(files).leader_epoch == epoch
        assert facts.confirm(files).leader_epoch == epoch
    path.write_text("what?")
    with pytest.raises(CorruptFile):
        facts.partition(files)
    path.unlink()
    assert facts.partition(files).leader_epoch == -1


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "recovery-point-offset-checkpoint"])
def test_checkpoints_are_those_of_the_last_refresh(name: str, tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=7, recovery_point=7)
    facts = FileBrokerFacts([log_dir], assume_leader=True)
    (log_dir / name).write_text("0\n1\norders 0 6\n")
    assert facts.partition(files_of(log_dir)).stable_end_offset == 7
    facts.refresh()
    assert facts.partition(files_of(log_dir)).stable_end_offset == 6
    (log_dir / name).unlink()
    facts.refresh()
    assert "does not exist" in render(facts.partition(files_of(log_dir)).reason)


def test_a_checkpoint_that_was_damaged_and_mended_is_believed_again(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=7)
    path = log_dir / "replication-offset-checkpoint"
    good = path.read_bytes()
    path.write_bytes(b"what?")
    assert read_log_dir_state(log_dir).high_watermark.error is not None
    path.write_bytes(good)
    assert read_log_dir_state(log_dir).high_watermark.offset(ORDERS) == 7


def test_a_checkpoint_that_is_empty_is_not_one_that_is_missing(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=7)
    path = log_dir / "replication-offset-checkpoint"
    path.unlink()
    assert not read_log_dir_state(log_dir).high_watermark.exists
    path.touch()
    empty = read_log_dir_state(log_dir).high_watermark
    assert empty.exists
    assert "has no entry" in empty.lacks(ORDERS)
