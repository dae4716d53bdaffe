from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import SettingsError
from sidecar.model import TopicPartition
from tests.discovery.made_up import ALL, HEX, TOPIC_ID, a_partition, names, only


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


@pytest.mark.parametrize("suffix", ["log.swap", "index.swap"])
def test_segments_that_are_being_replaced_make_the_partition_unstable(tmp_path: Path, suffix: str) -> None:
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
    assert names(scan_log_dirs([tmp_path], TopicFilter(internal=True))) == [
        "__consumer_offsets-0",
        "a-0",
        "b-2",
        "b-10",
    ]
    assert names(scan_log_dirs([tmp_path], TopicFilter(include=("b",)))) == ["b-2", "b-10"]


def test_patterns_match_whole_names_and_exclusion_wins() -> None:
    topics = TopicFilter(include=("orders.*", "x"), exclude=(".*-dlq",))
    assert [topics.accepts(name) for name in ("orders", "orders-eu", "orders-dlq", "my-orders", "x", "xx")] == [
        *(True, True, False, False, True, False)
    ]
    everything = TopicFilter(include=("__.*",), internal=True)
    assert [everything.accepts(name) for name in ("__transaction_state", "__cluster_metadata")] == [*(True, False)]


def test_a_malformed_pattern_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match="exclude pattern '\\*x'"):
        TopicFilter(exclude=("*x",))


def test_a_partition_that_is_being_moved_is_found_once(tmp_path: Path) -> None:
    a_partition(tmp_path / "one", "orders-0", 0, 10)
    a_partition(tmp_path / "two", f"orders-0.{HEX}-future", 0)
    result = scan_log_dirs([tmp_path / "one", tmp_path / "two"], ALL)
    assert (only(result).log_dir, result.problems) == (tmp_path / "one", ())


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
