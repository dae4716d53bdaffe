from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.discovery import partition_directory
from sidecar.discovery.scan import ScanResult, scan_log_dirs
from sidecar.discovery.topic_filter import TopicFilter
from sidecar.errors import CorruptFile, PartitionError, SegmentChanged, SettingsError
from sidecar.model import PartitionFiles, TopicPartition

ALL = TopicFilter()
HEX = "0123456789abcdef" * 2
TOPIC_ID = "ASNFZ4mrze_-3LqYdlQyEA"
KINDS = ("log", "index", "timeindex")


def a_partition(log_dir: Path, name: str, *bases: int, kinds: tuple[str, ...] = KINDS) -> Path:
    """A partition directory with files of some bytes for every base; nothing reads them here."""
    directory = log_dir / name
    directory.mkdir(parents=True)
    for base in bases:
        for kind in kinds:
            (directory / f"{base:020d}.{kind}").write_bytes(b"x" * (base + 1))
    return directory


def names(result: ScanResult) -> list[str]:
    return [str(found.topic_partition) for found in result.partitions]


def only(result: ScanResult) -> PartitionFiles:
    (found,) = result.partitions
    return found


def test_rolled_segments_end_at_the_next_base(tmp_path: Path) -> None:
    directory = a_partition(tmp_path, "orders-3", 0, 10, 25)
    for offset in (10, 25):
        (directory / f"{offset:020d}.snapshot").write_bytes(b"state")
    (directory / f"{10:020d}.txnindex").write_bytes(b"")
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    (directory / "leader-epoch-checkpoint").write_text("0\n0\n")
    found = only(scan_log_dirs([tmp_path], ALL))
    assert (found.topic_partition, found.log_dir, found.directory) == (TopicPartition("orders", 3), tmp_path, directory)
    assert (found.topic_id, found.active_base_offset, found.snapshot_offsets) == (TOPIC_ID, 25, (10, 25))
    assert not found.unstable
    assert [(segment.base_offset, segment.end_offset) for segment in found.segments] == [(0, 10), (10, 25)]
    first, second = found.segments
    assert first.snapshot is not None
    assert first.snapshot.path.name == f"{10:020d}.snapshot"
    assert (first.transaction_index, second.transaction_index is not None) == (None, True)
    assert second.offset_index is not None
    assert second.time_index is not None
    status = second.log.path.stat()
    assert (second.log.size_bytes, second.log.inode, second.log.mtime_ns) == (11, status.st_ino, status.st_mtime_ns)


def test_a_zero_length_rolled_segment_is_a_segment(tmp_path: Path) -> None:
    directory = a_partition(tmp_path, "orders-0", 0, 10)
    (directory / f"{0:020d}.log").write_bytes(b"")
    (segment,) = only(scan_log_dirs([tmp_path], ALL)).segments
    assert (segment.log.size_bytes, segment.end_offset) == (0, 10)


def test_missing_parts_are_none(tmp_path: Path) -> None:
    a_partition(tmp_path, "orders-0", 0, 10, kinds=("log",))
    (segment,) = only(scan_log_dirs([tmp_path], ALL)).segments
    assert (segment.offset_index, segment.time_index, segment.snapshot) == (None, None, None)


def test_an_only_segment_is_active_and_an_empty_directory_has_none(tmp_path: Path) -> None:
    a_partition(tmp_path, "a-0", 7)
    a_partition(tmp_path, "b-0")
    one, none = scan_log_dirs([tmp_path], ALL).partitions
    assert (one.segments, one.active_base_offset) == ((), 7)
    assert (none.segments, none.active_base_offset, none.topic_id) == ((), None, None)


def test_files_on_their_way_in_or_out_are_no_segments(tmp_path: Path) -> None:
    directory = a_partition(tmp_path, "orders-0", 0, 10)
    for name in ("5.log.deleted", "20.snapshot.deleted", "30.log.tmp"):
        number, _, suffix = name.partition(".")
        (directory / f"{int(number):020d}.{suffix}").write_bytes(b"")
    (directory / "notes.log").write_bytes(b"")
    found = only(scan_log_dirs([tmp_path], ALL))
    assert [segment.base_offset for segment in found.segments] == [0]
    assert (found.active_base_offset, found.snapshot_offsets, found.unstable) == (10, (), False)


@pytest.mark.parametrize("suffix", ["log.swap", "index.swap", "log.cleaned", "txnindex.cleaned"])
def test_a_running_compaction_makes_the_partition_unstable(tmp_path: Path, suffix: str) -> None:
    directory = a_partition(tmp_path, "orders-0", 0, 10)
    (directory / f"{0:020d}.{suffix}").write_bytes(b"")
    assert only(scan_log_dirs([tmp_path], ALL)).unstable


def test_only_live_directories_of_accepted_topics_are_found_in_order(tmp_path: Path) -> None:
    for name in ("b-10", "b-2", "a-0", "__consumer_offsets-0", "__cluster_metadata-0", "__remote_log_metadata-0"):
        a_partition(tmp_path, name, 0)
    for suffix in ("delete", "stray", "future"):
        a_partition(tmp_path, f"c-0.{HEX}-{suffix}", 0)
    a_partition(tmp_path, "remote-log-index-cache")
    (tmp_path / "d-0").write_bytes(b"a file, no directory")
    (tmp_path / "meta.properties").write_bytes(b"")
    assert names(scan_log_dirs([tmp_path], ALL)) == ["a-0", "b-2", "b-10"]
    assert names(scan_log_dirs([tmp_path], ALL, internal_topics=True)) == ["__consumer_offsets-0", "a-0", "b-2", "b-10"]
    assert names(scan_log_dirs([tmp_path], TopicFilter(include=("b",)))) == ["b-2", "b-10"]


def test_patterns_match_whole_names_and_exclusion_wins() -> None:
    topics = TopicFilter(include=("orders.*", "x"), exclude=(".*-dlq",))
    assert [topics.accepts(name) for name in ("orders", "orders-eu", "orders-dlq", "my-orders", "x", "xx")] == [
        *(True, True, False, False, True, False)
    ]
    everything = TopicFilter(include=("__.*",))
    assert [
        everything.accepts(name, internal_topics=True) for name in ("__transaction_state", "__cluster_metadata")
    ] == [*(True, False)]


def test_a_malformed_pattern_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match="exclude pattern '\\*x'"):
        TopicFilter(exclude=("*x",))


def test_a_partition_that_is_being_moved_is_found_once(tmp_path: Path) -> None:
    a_partition(tmp_path / "one", "orders-0", 0, 10)
    a_partition(tmp_path / "two", f"orders-0.{HEX}-future", 0)
    result = scan_log_dirs([tmp_path / "one", tmp_path / "two"], ALL)
    assert (only(result).log_dir, result.problems) == (tmp_path / "one", ())


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


def test_one_log_dir_under_two_names_is_scanned_once(tmp_path: Path) -> None:
    a_partition(tmp_path / "one", "orders-0", 0)
    (tmp_path / "alias").symlink_to(tmp_path / "one")
    result = scan_log_dirs([tmp_path / "one", tmp_path / "alias"], ALL)
    assert (names(result), result.problems) == (["orders-0"], ())


def test_linked_directories_are_followed(tmp_path: Path) -> None:
    target = a_partition(tmp_path / "elsewhere", "anything", 0, 10)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "orders-0").symlink_to(target)
    (tmp_path / "logs" / "gone-0").symlink_to(tmp_path / "nowhere")
    found = only(scan_log_dirs([tmp_path / "logs"], ALL))
    assert found.directory == tmp_path / "logs" / "orders-0"
    assert len(found.segments) == 1


def test_a_log_dir_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    a_partition(tmp_path / "one", "orders-0", 0)
    result = scan_log_dirs([tmp_path / "one", tmp_path / "failed-disk"], ALL)
    assert names(result) == ["orders-0"]
    (problem,) = result.problems
    assert (problem.topic_partition, problem.path) == (None, tmp_path / "failed-disk")


def test_a_log_dir_that_came_back_empty_is_a_problem_and_one_without_partitions_is_none(tmp_path: Path) -> None:
    (tmp_path / "unmounted" / "lost+found").mkdir(parents=True)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "meta.properties").write_bytes(b"")
    a_partition(tmp_path / "moving", f"orders-0.{HEX}-delete")
    result = scan_log_dirs([tmp_path / name for name in ("unmounted", "new", "moving")], ALL, require_formatted=True)
    (problem,) = result.problems
    assert (problem.topic_partition, problem.path) == (None, tmp_path / "unmounted")
    assert "neither meta.properties nor a partition" in str(problem.error)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; the next test stands in for it there")
def test_a_partition_that_may_not_be_read_is_a_problem_of_its_own(tmp_path: Path) -> None:
    closed = a_partition(tmp_path, "closed-0", 0, 10)
    a_partition(tmp_path, "open-0", 0)
    closed.chmod(0)
    result = scan_log_dirs([tmp_path], ALL)
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
    assert "is no regular file" in str(problem.error)


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
    directory = a_partition(tmp_path, "orders-0", 0, 20)
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
    assert len(listings) == 2
    assert ([segment.end_offset for segment in found.segments], found.unstable) == ([10, 20], False)


def test_a_directory_that_never_rests_is_unstable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = a_partition(tmp_path, "orders-0", 0, 20)
    real = partition_directory._list
    listings: list[object] = []

    def list_while_renaming(path: Path) -> object:
        listings.append(real(path))
        os.utime(directory, ns=(0, 12345 + len(listings)))
        return listings[-1]

    monkeypatch.setattr(partition_directory, "_list", list_while_renaming)
    assert only(scan_log_dirs([tmp_path], ALL)).unstable
    assert len(listings) == 3
