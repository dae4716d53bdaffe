"""A partition directory is listed again when something came or went in it, and else not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery import partition_directory
from sidecar.discovery.partition_directory import LIST_EVERY_S, ListingCache, read_partition_directory
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import SegmentChanged
from sidecar.logformat.files import SETTLED_MS
from sidecar.model import PartitionFiles, TopicPartition
from tests.fakes.manual_clock import ManualClock

NAME = TopicPartition("orders", 0)
BASES = (0, 10, 20)


class Rig:
    """A partition directory, a cache over it, and how often it was listed."""

    def __init__(self, log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = log_dir / str(NAME)
        self.directory.mkdir()
        for base in BASES:
            (self.directory / f"{base:020d}.log").write_bytes(b"x")
            (self.directory / f"{base:020d}.index").write_bytes(b"")
        self.clock = ManualClock(self.directory.stat().st_mtime_ns // 1_000_000 + SETTLED_MS + 1_000)
        self.cache = ListingCache(self.clock)
        self.listings = 0

        def counting(*arguments: Path) -> PartitionFiles:
            self.listings += 1
            return read_partition_directory(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(partition_directory, "read_partition_directory", counting)

    def read(self) -> PartitionFiles:
        files = self.cache.read(NAME, self.directory.parent, self.directory)
        assert files == read_partition_directory(NAME, self.directory.parent, self.directory)
        return files

    def settle(self) -> None:
        """Let the directory's last change be long ago."""
        old_ns = (self.clock.now_ms() - SETTLED_MS - 500) * 1_000_000
        os.utime(self.directory, ns=(old_ns, old_ns))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def test_nothing_has_changed(rig: Rig) -> None:
    assert rig.read() is rig.read()
    assert rig.listings == 1


def test_the_active_segment_grows(rig: Rig) -> None:
    rig.read()
    (rig.directory / f"{20:020d}.log").write_bytes(b"xyz")
    grown = rig.read()
    assert grown.active_log is not None
    assert grown.active_log.size_bytes == 3
    assert rig.listings == 1


def test_an_index_of_the_newest_segment_is_rewritten_in_place(rig: Rig) -> None:
    rig.read()
    (rig.directory / f"{10:020d}.index").write_bytes(b"12345678")
    rig.read()
    assert rig.listings == 1


def test_what_has_just_changed_is_listed_again_but_not_held_twice(rig: Rig) -> None:
    rig.clock = rig.cache._clock = ManualClock(rig.directory.stat().st_mtime_ns // 1_000_000 + SETTLED_MS - 500)
    first = rig.read()
    assert rig.read() is first
    assert rig.listings == 2


def test_a_roll_leaves_the_segments_before_it_the_same_objects(rig: Rig) -> None:
    first = rig.read()
    _roll(rig.directory)
    second = rig.read()
    assert second is not first
    assert [old is new for old, new in zip(first.segments, second.segments, strict=False)] == [True, True]
    assert len(second.segments) == len(first.segments) + 1


def _roll(directory: Path) -> None:
    (directory / f"{30:020d}.log").write_bytes(b"")


def _delete(directory: Path) -> None:
    (directory / f"{0:020d}.log").rename(directory / f"{0:020d}.log.deleted")


def _swap(directory: Path) -> None:
    (directory / f"{0:020d}.log.swap").write_bytes(b"")


@pytest.mark.parametrize("change", [_roll, _delete, _swap])
def test_what_comes_and_goes_is_listed(rig: Rig, change: Callable[[Path], None]) -> None:
    rig.read()
    change(rig.directory)
    rig.read()
    assert rig.listings == 2


def test_a_directory_that_changed_just_now_is_not_believed(rig: Rig) -> None:
    now_ns = rig.clock.now_ms() * 1_000_000
    os.utime(rig.directory, ns=(now_ns, now_ns))
    rig.read()
    rig.read()
    assert rig.listings == 2
    rig.settle()
    rig.read()
    rig.read()
    assert rig.listings == 3


def test_what_comes_while_a_directory_is_listed_is_not_missed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*arguments: Path) -> PartitionFiles:
        files = read_partition_directory(*arguments)  # type: ignore[arg-type]
        _roll(rig.directory)
        later_ns = rig.directory.stat().st_mtime_ns + 1_000_000
        os.utime(rig.directory, ns=(later_ns, later_ns))
        return files

    with monkeypatch.context() as patch:
        patch.setattr(partition_directory, "read_partition_directory", overtaken)
        assert rig.cache.read(NAME, rig.directory.parent, rig.directory).active_base_offset == BASES[-1]
    assert rig.read().active_base_offset == 30


def test_a_listing_under_a_compaction_is_not_kept(rig: Rig) -> None:
    swap = rig.directory / f"{0:020d}.log.swap"
    swap.write_bytes(b"")
    rig.settle()
    assert rig.read().unstable
    rig.read()
    assert rig.listings == 2
    swap.unlink()
    rig.settle()
    assert not rig.read().unstable
    rig.read()
    assert rig.listings == 3


def test_a_listing_is_made_anew_from_time_to_time(rig: Rig) -> None:
    rig.read()
    rig.clock.sleep_s(LIST_EVERY_S)
    rig.read()
    assert rig.listings == 2


def test_a_directory_that_vanishes_is_reported_as_without_a_cache(rig: Rig) -> None:
    rig.read()
    rig.directory.rename(rig.directory.with_name("orders-0.deleted"))
    with pytest.raises(SegmentChanged):
        rig.cache.read(NAME, rig.directory.parent, rig.directory)


def test_a_scan_forgets_what_is_gone(rig: Rig) -> None:
    log_dir, topics = rig.directory.parent, TopicFilter()
    assert len(scan_log_dirs([log_dir], topics, cache=rig.cache).partitions) == 1
    rig.directory.rename(log_dir / "orders-0.0123456789abcdef0123456789abcdef-delete")
    assert scan_log_dirs([log_dir], topics, cache=rig.cache).partitions == ()
    assert rig.cache._known == {}


def test_what_was_found_to_be_another_file_is_listed_again(rig: Rig) -> None:
    first = rig.read()
    os.utime(rig.directory / f"{0:020d}.log", ns=(1, 1))
    assert rig.cache.read(NAME, rig.directory.parent, rig.directory) is first
    rig.cache.doubt([rig.directory, rig.directory / "not there"])
    assert rig.read() is not first
    assert rig.listings == 2
