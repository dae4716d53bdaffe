"""A disk that fails between two checks is a problem of its partition: the loop goes on, and so do the pins of others."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import PartitionError, SegmentChanged
from sidecar.host.listed_files import identity_of, read_unless_deleted
from sidecar.host.pinned_files import PinnedFiles
from sidecar.runner.archive_loop import ArchiveLoop
from tests.descriptors import open_below
from tests.fakes.memory_store import MemoryStore
from tests.retention.pinned_rig import after_an_outage, held_names, open_deleted
from tests.runner.rig import archived_states, copy_partitions, remove_offsets, tools_for


def _stat_fails(monkeypatch: pytest.MonkeyPatch, failing: Path) -> None:
    real = Path.stat

    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", stat)


def _fstat_fails(monkeypatch: pytest.MonkeyPatch, *descriptors: int) -> None:
    """XFS does so once it has shut a file system down, NFS with ESTALE."""
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        if descriptor in descriptors:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", fstat)


def test_a_file_that_fails_before_its_commit_stops_its_own_partition_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0", "append-time-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        _stat_fails(monkeypatch, min((log_dir / "orders-0").glob("*.log")))
        report = ArchiveLoop(context, partial(scan_log_dirs, [log_dir], TopicFilter((".*",)))).run_once()
    assert "append-time-0" in archived_states(store)
    (failed,) = [found for found in report.outcomes if found.error]
    assert (str(failed.files.topic_partition), type(failed.error)) == ("orders-0", PartitionError)


def test_a_pinned_file_whose_disk_fails_is_released_with_a_report_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with after_an_outage(tmp_path) as (context, rounds, outage, directory):
        outage.left = 0
        rounds.run_once()
        assert held_names(context)[:3] == [0, 140, 248]
        _fstat_fails(monkeypatch, next(iter(context.pinned._pinned.values())))
        remove_offsets(directory, lambda offset: offset >= 248)
        with capture_logs() as logs:
            rounds.run_once()
        assert held_names(context)[:2] == [140, 248]
        monkeypatch.undo()
    (released,) = [line for line in logs if line["event"] == "pinned_segment_released"]
    assert Path(released["path"]).stem == f"{0:020d}"
    assert os.strerror(errno.EIO) in released["reason"]


def test_pins_are_released_at_the_end_and_reported_though_the_disk_of_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{number}.log" for number in range(2)]
    for path in paths:
        path.write_bytes(b"0123456789")
    held = PinnedFiles(limit=2)
    held.keep(identity_of(path, path.stat()) for path in paths)
    for path in paths:
        path.unlink()
    _fstat_fails(monkeypatch, next(iter(held._pinned.values())))
    with capture_logs() as logs:
        held.release()
    monkeypatch.undo()
    assert [line["event"] for line in logs] == ["pinned_segment_released", "pinned_segments_released"]
    assert open_deleted(tmp_path) == []


@pytest.mark.parametrize("reads", ["open", "take"])
def test_a_file_that_fails_when_it_is_opened_leaves_no_descriptor(
    reads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"0123456789")
    file, held = identity_of(path, path.stat()), PinnedFiles(limit=1)
    if reads == "take":
        held.keep([file])
    before = open_below(tmp_path)
    _fstat_fails(monkeypatch, *range(1024))
    with pytest.raises(PartitionError, match=os.strerror(errno.EIO)):
        held.take(file)
    monkeypatch.undo()
    assert open_below(tmp_path) == before
    held.release()


def test_a_file_that_is_gone_is_not_taken_for_deleted_where_its_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "0.snapshot"
    path.write_bytes(b"0123456789")
    file = identity_of(path, path.stat())
    path.unlink()
    assert read_unless_deleted(file) is None
    _stat_fails(monkeypatch, path)
    with pytest.raises(PartitionError, match=os.strerror(errno.EIO)) as raised:
        read_unless_deleted(file)
    assert not isinstance(raised.value, SegmentChanged)
