"""What a broker does to its log while a segment is on its way decides whether the segment may be committed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.errors import SegmentChanged
from sidecar.model import SnapshotOrigin
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import (
    archive,
    archived_states,
    copy_partitions,
    remove_offsets,
    rounds_over,
    tools_for,
)

PARTITION = "orders-0"


def during_the_first_upload(change: Callable[[], None]) -> Callable[[str, str], None]:
    """A hook for `MemoryStore.before`: the change happens once, when the first `.indexes` is about to be sent."""
    pending = [change]

    def before(operation: str, key: str) -> None:
        if operation == "upload" and key.endswith(".indexes") and pending:
            pending.pop()()

    return before


def remove_the_second_log(directory: Path) -> None:
    (directory / f"{140:020d}.log").unlink()


def replace_directory(directory: Path) -> None:
    directory.rename(directory.with_name(f"{directory.name}.0-delete"))
    directory.mkdir()
    shutil.copy2(directory.parent / f"{directory.name}.0-delete" / f"{504:020d}.log", directory / f"{504:020d}.log")


def truncate_to_the_first_segment(directory: Path) -> None:
    """As a follower does: what lies above is removed, and appended anew with other boundaries."""
    remove_offsets(directory, lambda offset: offset == 0)
    (directory / f"{300:020d}.log").touch()


def begin_a_segment_inside(directory: Path) -> None:
    (directory / f"{77:020d}.log").touch()


def remove_all_logs(directory: Path) -> None:
    for file in directory.glob("*.log"):
        file.unlink()


@pytest.mark.parametrize(
    "change",
    [remove_the_second_log, replace_directory, truncate_to_the_first_segment, begin_a_segment_inside, remove_all_logs],
)
def test_a_log_that_is_cut_or_replaced_during_the_upload_is_not_committed(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    log_dir = copy_partitions(tmp_path, PARTITION)
    store = MemoryStore(before=during_the_first_upload(lambda: change(log_dir / PARTITION)))
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1) as context:
        report = archive(context, log_dir)
    assert [type(error) for error in report.errors] == [SegmentChanged]
    assert PARTITION not in archived_states(store)
    assert not [key for key in store.objects if "/segments/" in key]


def test_a_snapshot_that_the_broker_deletes_after_the_look_is_one_that_it_did_not_leave(tmp_path: Path) -> None:
    """Brokers up to 2.7 keep the newest few: with every roll one goes."""
    log_dir, store = copy_partitions(tmp_path, PARTITION), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        planned = rounds.plan()
        for snapshot in (log_dir / PARTITION).glob("*.snapshot"):
            snapshot.unlink()
        assert rounds.work(*planned).errors == []
    (state,) = archived_states(store).values()
    assert len(state.segments) > 1
    assert {segment.snapshot.origin for segment in state.segments} == {SnapshotOrigin.REBUILT}
