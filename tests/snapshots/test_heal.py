"""`heal`: what it creates, what it refuses, and that nothing else in a log dir changes."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from producer_state.snapshot import read_snapshot
from sidecar.errors import PartitionError, SettingsError
from sidecar.host import placing
from sidecar.host.log_dir_lock import LogDirRefused
from sidecar.snapshots import heal as healer
from tests.golden import archive_of, golden, unpack
from tests.snapshots.log_dirs import (
    healed,
    healed_2_7_2,
    log_dir_of,
    snapshots_in,
    stopped_2_7_2,
    tree,
)


def test_every_segment_base_has_a_snapshot_afterwards_and_nothing_else_changes(tmp_path: Path) -> None:
    log_dir = stopped_2_7_2(tmp_path)
    before = tree(log_dir)
    report = healed_2_7_2(log_dir)
    after = tree(log_dir)
    assert report.exit_code == 0
    assert {name: after[name] for name in before} == before
    created = {
        f"{row['topic']}-{row['partition']}/{offset:020d}.snapshot"
        for row in report.as_json()["partitions"]
        for offset in row["created"]
    }
    assert set(after) - set(before) == created
    for healing in report.healings:
        directory = healing.plan.log.files.directory
        bases = sorted(int(path.stem) for path in directory.glob("*.log"))
        assert set(bases[1:]) <= set(snapshots_in(directory)) | {
            base for base in bases if base <= _log_start(directory)
        }
        for offset in healing.created:
            read_snapshot((directory / f"{offset:020d}.snapshot").read_bytes())
    assert sum(len(healing.created) for healing in report.healings) == 22
    assert sum(len(healing.verified) for healing in report.healings) >= 6


def _log_start(directory: Path) -> int:
    lines = (directory.parent / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    starts = {"-".join(line.split()[:2]): int(line.split()[2]) for line in lines}
    return starts.get(directory.name, 0)


def test_a_second_run_does_nothing(tmp_path: Path) -> None:
    log_dir = stopped_2_7_2(tmp_path)
    healed_2_7_2(log_dir)
    before = tree(log_dir)
    report = healed_2_7_2(log_dir)
    assert (report.exit_code, report.worth_showing) == (0, [])
    assert tree(log_dir) == before


def test_a_dry_run_lists_and_writes_nothing(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=4)
    before = tree(log_dir)
    (healing,) = healed(log_dir, dry_run=True).healings
    assert (healing.plan.missing, healing.created) == ((2, 4, 6), [])
    assert tree(log_dir) == before


def test_an_interrupted_run_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = log_dir_of(tmp_path, partitions=3)
    whole = log_dir_of(tmp_path / "whole", partitions=3)
    healed(whole)

    def killed(path: Path, *arguments: object, **options: object) -> None:
        if path.parent.name == "t-1" and path.name.startswith(f"{4:020d}"):
            (path.parent / f"{path.name}.heal.tmp").write_bytes(b"half")
            raise KeyboardInterrupt
        placing.place_snapshot(path, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(healer, "place_snapshot", killed)
        with pytest.raises(KeyboardInterrupt):
            healed(log_dir)
    assert snapshots_in(log_dir / "t-1") == [2]
    assert healed(log_dir).exit_code == 0
    assert tree(log_dir) == tree(whole)


def test_a_leftover_of_a_killed_run_goes(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    healed(log_dir)
    leftover = log_dir / "t-0" / f"{2:020d}.snapshot.heal.tmp"
    leftover.write_bytes(b"half")
    healed(log_dir)
    assert not leftover.exists()


def test_no_such_directory(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such directory"):
        healed(tmp_path / "absent")


def test_owner_and_mode_are_those_of_the_log(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=3)
    log = log_dir / "t-0" / f"{2:020d}.log"
    log.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(log, 1001, 1002)
    assert healed(log_dir).exit_code == 0
    for base in (2, 4):
        ours, theirs = ((log_dir / "t-0" / f"{base:020d}.{suffix}").stat() for suffix in ("snapshot", "log"))
        assert (ours.st_uid, ours.st_gid) == (theirs.st_uid, theirs.st_gid)
        assert stat.S_IMODE(ours.st_mode) == stat.S_IMODE(theirs.st_mode)


def test_without_the_right_to_set_the_owner_nothing_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = log_dir_of(tmp_path)
    owner = os.stat_result((0o100600, *(log_dir.stat()[1:4]), os.geteuid() + 1, os.getegid(), 0, 0, 0, 0))

    def denied(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    real = Path.stat
    monkeypatch.setattr(os, "fchown", denied)
    monkeypatch.setattr(Path, "stat", lambda path, **options: owner if path.suffix == ".log" else real(path, **options))
    path = log_dir / "t-0" / f"{2:020d}.snapshot"
    with pytest.raises(PartitionError, match="run as the broker's user"):
        placing.place_snapshot(path, b"", path.with_suffix(".log"))
    assert snapshots_in(log_dir / "t-0") == []
    assert list((log_dir / "t-0").glob("*.tmp")) == []


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "no space left"), (errno.EROFS, "mounted read-only"), (errno.EIO, "I/O error")]
)
def test_a_full_or_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str) -> None:
    log_dir = log_dir_of(tmp_path, segments=4)
    calls = iter([False, True, True])
    real: Callable[[int], None] = os.fsync

    def fails_later(descriptor: int) -> None:
        if next(calls):
            raise OSError(code, os.strerror(code).replace("Input/output", "I/O"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fails_later)
    report = healed(log_dir)
    (healing,) = report.healings
    assert words in healing.problem
    assert report.exit_code == 3
    assert snapshots_in(log_dir / "t-0") == [2]
    assert list((log_dir / "t-0").glob("*.tmp")) == []


def test_a_read_only_log_dir_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = log_dir_of(tmp_path)
    real = os.open

    def read_only(path: Path, flags: int, *mode: int, **options: int) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(LogDirRefused, match="mounted read-write"):
        healed(log_dir)
    assert healed(log_dir, dry_run=True).exit_code == 3  # looked at all the same: snapshots are missing


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    log_dir = log_dir_of(tmp_path)
    assert healed(log_dir).exit_code == 0
    assert snapshots_in(log_dir / "t-0") == [2, 4, 6]
    path = log_dir / "t-0" / f"{2:020d}.snapshot"
    with pytest.raises(PartitionError, match="exists already"):
        placing.place_snapshot(path, b"", path.with_suffix(".log"))


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    path = log_dir / "t-0" / f"{2:020d}.snapshot"
    path.write_bytes(b"theirs")
    with pytest.raises(PartitionError, match="exists already"):
        placing.place_snapshot(path, b"ours", path.with_suffix(".log"))
    assert path.read_bytes() == b"theirs"


def test_a_corrupt_batch_stops_its_partition_where_it_lies(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, partitions=2, segments=5)
    log = log_dir / "t-0" / f"{4:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    report = healed(log_dir)
    broken, whole = report.healings
    assert snapshots_in(log_dir / "t-0") == [2, 4]
    assert str(log) in broken.problem
    assert "at byte 0" in broken.problem
    assert "above offset 4 cannot be created" in broken.problem
    assert (broken.created, whole.created, report.exit_code) == ([2, 4], [2, 4, 6, 8], 3)


def test_a_log_whose_name_disagrees_with_its_content(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=3)
    (log_dir / "t-0" / f"{2:020d}.log").rename(log_dir / "t-0" / f"{3:020d}.log")
    report = healed(log_dir)
    assert report.exit_code == 3
    assert snapshots_in(log_dir / "t-0") == [3]
    assert "expected at least 3" in report.healings[0].problem


def test_nothing_is_made_at_or_below_the_log_start(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=5)
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    healed(log_dir)
    assert snapshots_in(log_dir / "t-0") == [6, 8]


def test_an_interrupted_compaction_is_left_alone(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    (log_dir / "t-0" / f"{0:020d}.log.swap").touch()
    report = healed(log_dir)
    assert "compaction was interrupted" in report.healings[0].problem
    assert snapshots_in(log_dir / "t-0") == []


def test_the_golden_copy_itself_was_not_changed(tmp_path: Path) -> None:
    """Every other test here writes into copies. What the archive holds is the measure."""
    unpack(archive_of("2.7.2"), tmp_path)
    assert _hashes(golden("2.7.2")) == _hashes(tmp_path)


def _hashes(directory: Path) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in tree(directory).items()}
