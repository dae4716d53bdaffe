"""What cannot be listed, or changes while it is listed: a problem of that partition or log dir, and of no other."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery import partition_directory
from sidecar.discovery.partition_directory import ListingCache
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import CorruptFile, PartitionError, SegmentChanged
from sidecar.model import TopicPartition
from sidecar.reporting.advice import advised
from tests.discovery.made_up import ALL, HEX, a_partition, names, only
from tests.fakes.manual_clock import ManualClock

OTHER_USER_ID: Final = 65534


def test_a_partition_live_in_two_log_dirs_is_a_problem_of_that_partition(tmp_path: Path) -> None:
    for log_dir in ("one", "two"):
        a_partition(tmp_path / log_dir, "orders-0", 0, 10)
    a_partition(tmp_path / "two", "orders-1", 0)
    result = scan_log_dirs([tmp_path / "one", tmp_path / "two"], ALL)
    assert names(result) == ["orders-1"]
    (problem,) = result.problems
    assert problem.topic_partition == TopicPartition("orders", 0)
    assert str(tmp_path / "one" / "orders-0") in str(problem.error)
    assert str(tmp_path / "two" / "orders-0") in str(problem.error)
    assert "While a broker moves a partition, both exist for a moment" in str(problem.error)


def test_a_move_that_ends_while_the_log_dirs_are_listed_leaves_the_new_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (a_partition(tmp_path / log_dir, "orders-0", 0, 10) for log_dir in ("one", "two"))
    listed: list[str] = []

    def moving(_topics: TopicFilter, topic: str) -> bool:
        listed.append(topic)
        if len(listed) == 2:
            old.rename(old.with_name(f"orders-0.{HEX}-delete"))
        return True

    monkeypatch.setattr(TopicFilter, "accepts", moving)
    result = scan_log_dirs([tmp_path / "one", tmp_path / "two"], ALL)
    assert len(listed) == 2
    assert (only(result).directory, result.problems) == (new, ())


def test_a_log_dir_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    a_partition(tmp_path / "one", "orders-0", 0)
    result = scan_log_dirs([tmp_path / "one", tmp_path / "failed-disk"], ALL)
    assert names(result) == ["orders-0"]
    (problem,) = result.problems
    assert (problem.topic_partition, problem.path) == (None, tmp_path / "failed-disk")


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EMFILE, "raise the open-file limit of the process (ulimit -n, or LimitNOFILE of its systemd unit)"),
        (errno.ENFILE, "raise the machine's limit of open files (sysctl fs.file-max)"),
        (errno.EIO, "check the disk and the system log"),
    ],
)
def test_the_advice_about_a_log_dir_fits_why_it_cannot_be_read(
    number: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_path: Path) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refused)
        (problem,) = scan_log_dirs([tmp_path], ALL).problems
    assert advised(problem.error) == (
        f"log dir {tmp_path} cannot be read: its partitions are not archived until a scan can ({os.strerror(number)}); {advice}"
    )


def test_a_log_dir_that_came_back_empty_is_a_problem_and_one_without_partitions_is_none(tmp_path: Path) -> None:
    (tmp_path / "unmounted" / "lost+found").mkdir(parents=True)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "meta.properties").write_bytes(b"")
    a_partition(tmp_path / "moving", f"orders-0.{HEX}-delete")
    result = scan_log_dirs([tmp_path / name for name in ("unmounted", "new", "moving")], ALL, require_formatted=True)
    (problem,) = result.problems
    assert (problem.topic_partition, problem.path) == (None, tmp_path / "unmounted")
    assert "neither meta.properties nor a partition" in str(problem.error)


@contextmanager
def without_rights() -> Iterator[None]:
    """As another user than root, who may read everything."""
    user_id = os.geteuid()
    if user_id == 0:
        os.seteuid(OTHER_USER_ID)
    try:
        yield
    finally:
        os.seteuid(user_id)


@pytest.mark.parametrize("cache", [None, ListingCache(ManualClock(10**12))], ids=["listed", "cached"])
def test_a_partition_that_may_not_be_read_is_a_problem_of_its_own(cache: ListingCache | None) -> None:
    with tempfile.TemporaryDirectory() as name:  # Directories above pytest's are root's alone.
        log_dir = Path(name)
        log_dir.chmod(0o755)
        closed = a_partition(log_dir, "closed-0", 0, 10)
        a_partition(log_dir, "open-0", 0)
        for settled in log_dir.iterdir():
            os.utime(settled, ns=(0, 10**15))
        assert names(scan_log_dirs([log_dir], ALL, cache=cache)) == ["closed-0", "open-0"]
        closed.chmod(0)  # No change of its modification time.
        with without_rights():
            result = scan_log_dirs([log_dir], ALL, cache=cache)
        closed.chmod(0o700)
    assert (names(result), len(result.problems)) == (["open-0"], 1)


def test_an_unreadable_partition_is_a_problem_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = a_partition(tmp_path, "closed-0", 0, 10)
    a_partition(tmp_path, "open-0", 0)
    real_scandir = os.scandir

    def scandir(path: Path) -> Iterator[os.DirEntry[str]]:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return real_scandir(path)

    monkeypatch.setattr(os, "scandir", scandir)
    result = scan_log_dirs([tmp_path], ALL)
    assert names(result) == ["open-0"]
    (problem,) = result.problems
    assert type(problem.error) is PartitionError
    assert "closed-0: " in str(problem.error)
    assert "Permission denied" in str(problem.error)


def test_a_malformed_partition_metadata_is_a_problem_of_its_partition(tmp_path: Path) -> None:
    directory = a_partition(tmp_path, "orders-0", 0, 10)
    (directory / "partition.metadata").write_bytes(b"\xff")
    (problem,) = scan_log_dirs([tmp_path], ALL).problems
    assert isinstance(problem.error, CorruptFile)
    assert problem.error.file == str(directory / "partition.metadata")


def test_a_directory_named_like_a_log_is_a_problem(tmp_path: Path) -> None:
    directory = a_partition(tmp_path, "orders-0", 10)
    (directory / f"{0:020d}.log").mkdir()
    (problem,) = scan_log_dirs([tmp_path], ALL).problems
    assert "is not a regular file" in str(problem.error)


def test_a_log_that_vanishes_after_the_listing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = a_partition(tmp_path, "orders-0", 0, 10, 20)
    real = partition_directory._settled_listing

    def listing_then_deletion(path: Path) -> object:
        listing = real(path)
        (directory / f"{0:020d}.log").unlink()
        (directory / f"{10:020d}.index").unlink()
        return listing

    monkeypatch.setattr(partition_directory, "_settled_listing", listing_then_deletion)
    found = only(scan_log_dirs([tmp_path], ALL))
    (segment,) = found.segments
    assert (segment.base_offset, segment.end_offset, segment.offset_index) == (10, 20, None)


def test_a_partition_directory_that_vanishes_is_looked_at_again_later(tmp_path: Path) -> None:
    with pytest.raises(SegmentChanged):
        partition_directory.read_partition_directory(TopicPartition("a", 0), tmp_path, tmp_path / "a-0")


def test_a_listing_during_renames_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its renames may happen within one tick of the kernel's clock: the directory's time is what it was before them."""
    directory = a_partition(tmp_path, "orders-0", 0, 20)
    os.utime(directory, ns=(0, 12345))
    real = partition_directory._list
    listings: list[object] = []

    def list_while_renaming(path: Path) -> object:
        listing = real(path)
        listings.append(listing)
        if len(listings) == 1:
            (directory / f"{10:020d}.log").write_bytes(b"came under another name")
            os.utime(directory, ns=(0, 12345))
        return listing

    monkeypatch.setattr(partition_directory, "_list", list_while_renaming)
    found = only(scan_log_dirs([tmp_path], ALL))
    assert len(listings) == 3
    assert ([segment.end_offset for segment in found.segments], found.unstable) == ([10, 20], False)


def test_two_equal_listings_are_not_believed_if_the_directory_has_changed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large directory, both may miss a file that a cleaner renames from `.cleaned` to `.swap`, and then to `.log`."""
    directory = a_partition(tmp_path, "orders-0", 0, 10, 20)
    real = partition_directory._list
    listings: list[object] = []

    def list_while_renaming(path: Path) -> object:
        (directory / f"{10:020d}.log").rename(directory / "missed")
        listings.append(real(path))
        (directory / "missed").rename(directory / f"{10:020d}.log")
        os.utime(directory, ns=(0, 12345 + len(listings)))
        return listings[-1]

    monkeypatch.setattr(partition_directory, "_list", list_while_renaming)
    assert only(scan_log_dirs([tmp_path], ALL)).unstable


def test_a_directory_that_never_rests_is_unstable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = a_partition(tmp_path, "orders-0", 0, 20)
    real = partition_directory._list
    listings: list[object] = []

    def list_while_renaming(path: Path) -> object:
        listings.append(real(path))
        (directory / f"{len(listings):020d}.snapshot").touch()
        return listings[-1]

    monkeypatch.setattr(partition_directory, "_list", list_while_renaming)
    assert only(scan_log_dirs([tmp_path], ALL)).unstable
    assert len(listings) == 3
