"""The restored checkpoint knows the epochs of all that is restored, also those that the broker had forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.logformat.bodies.building import build_batch, build_empty_batch
from sidecar.logformat.bodies.legacy import build_legacy_message
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.leader_epochs import LeaderEpochs, read_leader_epochs
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT
from sidecar.restore.request import LeaderEpochMode, OpenTransactionMode
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.restore.archives import batches_of, own_log_dir, restored
from tests.restore.test_deleted_records import deleted_before
from tests.runner.rig import (
    archive,
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    set_aside_last,
    tools_for,
)

HISTORY = [(0, 0), (2, 350), (4, 700)]
"""What the golden broker noted for `orders-0`."""
LOST = (248, 362)


def epochs_in(directory: Path) -> LeaderEpochs:
    return read_leader_epochs((directory / LEADER_EPOCH_CHECKPOINT).read_bytes())


def pairs(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in epochs.entries]


def archived_over_retention(directory: Path, *, local_start_offset: int, loses: bool = False) -> MemoryStore:
    """`orders-0`, whose last segment was rolled and archived after local retention had removed what was archived before.

    Args:
        loses: without the segment `LOST`, in the middle of which epoch 2 begins.
    """
    log_dir, store = copy_partitions(directory / "broker", "orders-0"), MemoryStore()
    local, aside = log_dir / "orders-0", directory / "aside"
    assert pairs(epochs_in(local)) == HISTORY
    set_aside_last(local, aside)
    if loses:
        (local / f"{LOST[0]:020d}.log").unlink()
    with tools_for(log_dir, store, directory / "state", record_lost=loses) as context:
        archive(context, log_dir)
    remove_offsets(local, lambda offset: offset >= local_start_offset)
    # As a broker does whenever its log start moves.
    cut = epochs_in(local).truncate_from_start(local_start_offset)
    (local / LEADER_EPOCH_CHECKPOINT).write_bytes(cut.to_text())
    for path in aside.iterdir():
        path.rename(local / path.name)
    with tools_for(log_dir, store, directory / "state") as context:
        assert archive(context, log_dir).errors == []
    assert ranges(archived_states(store)["orders-0"])[-1] == (868, 964)
    return store


@pytest.mark.parametrize("local_start_offset", [362, 724])
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, HISTORY),
        ({"offset_range": (300, 900)}, [(0, 300), (2, 350), (4, 700)]),
        ({"offset_range": (400, 700)}, [(2, 400)]),
        ({"offset_range": (730, 964)}, [(4, 730)]),
        ({"leader_epochs": LeaderEpochMode.FLATTEN, "offset_range": (300, 964)}, [(0, 300)]),
    ],
    ids=["all", "from within an epoch", "one epoch", "above the broker's start", "flattened"],
)
def test_the_epochs_begin_with_the_restored_log(
    wanted: dict[str, object], expected: list[tuple[int, int]], local_start_offset: int, tmp_path: Path
) -> None:
    store = archived_over_retention(tmp_path, local_start_offset=local_start_offset)
    log_dir = own_log_dir(tmp_path)
    assert restored(store, log_dir, "orders", **wanted).problem == ""
    epochs = epochs_in(log_dir / "orders-0")
    assert pairs(epochs) == expected
    batches = batches_of(log_dir / "orders-0")
    assert batches
    assert all(epochs.epoch_for_offset(batch.last_offset) == batch.leader_epoch for batch in batches)


def test_an_epoch_that_began_among_lost_offsets_is_known_where_any_archived_checkpoint_knows_it(tmp_path: Path) -> None:
    store = archived_over_retention(tmp_path, local_start_offset=724, loses=True)
    (hole,) = archived_states(store)["orders-0"].holes
    assert (hole.base_offset, hole.end_offset) == LOST
    log_dir = own_log_dir(tmp_path)
    assert restored(store, log_dir, "orders").problem == ""
    assert pairs(epochs_in(log_dir / "orders-0")) == HISTORY


def test_markers_in_an_empty_log_have_an_epoch_that_its_checkpoint_knows(tmp_path: Path) -> None:
    log_dir, end_offset = own_log_dir(tmp_path), 116
    options = {"offset_range": (0, end_offset), "open_transactions": OpenTransactionMode.ABORT}
    outcome = restored(deleted_before(end_offset, "transactions-0"), log_dir, "transactions", **options)
    assert outcome.log is not None
    assert outcome.log.start_offset == end_offset
    (marker,) = batches_of(log_dir / "transactions-0")
    source = epochs_in(golden("4.3.0") / "logs" / "transactions-0")
    epochs = epochs_in(log_dir / "transactions-0")
    assert epochs.epoch_for_offset(end_offset) == source.epoch_for_offset(end_offset - 1) == marker.leader_epoch


@pytest.mark.parametrize("mode", LeaderEpochMode)
def test_what_compaction_made_of_older_formats_gets_an_epoch(mode: LeaderEpochMode, tmp_path: Path) -> None:
    """A follower refuses batches of the current format that have none. Source: UnifiedLog.append, LeaderEpochFileCache.assign."""
    log_dir, store = copy_partitions(tmp_path / "broker"), MemoryStore()
    partition = log_dir / "orders-0"
    partition.mkdir()
    compacted = build_empty_batch(base_offset=1, last_offset=1)
    newer = build_batch([Record(2, 1_700_000_000_000, b"k", b"v")], leader_epoch=3)
    (partition / f"{0:020d}.log").write_bytes(build_legacy_message(0, b"k", b"v") + compacted + newer)
    (partition / f"{3:020d}.log").touch()
    (partition / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n3 2\n")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (log_dir / name).write_text("0\n1\norders 0 3\n")
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir, "orders").errors == []
    target = own_log_dir(tmp_path)
    assert restored(store, target, "orders", leader_epochs=mode).problem == ""
    epochs = [batch.leader_epoch for batch in batches_of(target / "orders-0")]
    assert epochs == [-1, 0, 3 if mode is LeaderEpochMode.KEEP else 0]
