"""A log is listed again as the same one, or not at all: its directory may be another topic's, and its segments others by then."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.errors import SegmentChanged
from sidecar.host.listed_files import ensure_unchanged, listed_anew
from sidecar.model import TopicPartition
from tests.discovery.made_up import TOPIC_ID as ID
from tests.discovery.made_up import a_partition

OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def name_topic(directory: Path, topic_id: str) -> None:
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


def test_a_partition_is_listed_again_under_the_id_that_it_had(tmp_path: Path) -> None:
    directory = a_partition(tmp_path, "orders-0", 0, 10)
    name_topic(directory, ID)
    files = read_partition_directory(TopicPartition("orders", 0), tmp_path, directory)
    (directory / f"{20:020d}.log").touch()
    again = listed_anew(files)
    assert ([segment.end_offset for segment in again.segments], again.topic_id) == ([10, 20], ID)
    (directory / "partition.metadata").unlink()
    assert listed_anew(files).topic_id == ID


@pytest.mark.parametrize("topic_id", [ID, OTHER_ID])
def test_another_directory_or_another_id_in_it_is_another_log(topic_id: str, tmp_path: Path) -> None:
    directory = a_partition(tmp_path, "orders-0", 0, 10)
    name_topic(directory, ID)
    files = read_partition_directory(TopicPartition("orders", 0), tmp_path, directory)
    if topic_id == ID:
        directory.rename(tmp_path / "orders-0.deleted")
        a_partition(tmp_path, "orders-0", 0, 10)
    name_topic(directory, topic_id)
    with pytest.raises(SegmentChanged, match="was replaced since it was listed"):
        listed_anew(files)


SETTLED_AFTER_MS = 10_000


def now_ms_of(directory: Path, after_ms: int) -> int:
    return directory.stat().st_mtime_ns // 1_000_000 + after_ms


@pytest.mark.parametrize("after_ms", [0, SETTLED_AFTER_MS])
@pytest.mark.parametrize(
    ("gone", "comes", "message"),
    [
        ((), None, None),
        ((0,), None, None),
        ((0, 10), None, None),
        ((0, 10, 20), None, None),
        ((10,), None, "is gone, but the log still begins at 0"),
        ((20,), None, "no segment begins at its end any more"),
        ((0, 20), None, "no segment begins at its end any more"),
        ((), 15, "a segment now begins at 15, inside it"),
        ((0, 10, 20, 30), None, "has no log any more"),
    ],
)
def test_only_retention_may_take_files_of_a_log_while_a_segment_is_archived(
    gone: tuple[int, ...], comes: int | None, message: str | None, after_ms: int, tmp_path: Path
) -> None:
    directory = a_partition(tmp_path, "orders-0", 0, 10, 20, 30)
    os.utime(directory, (1_000, 1_000))
    files = read_partition_directory(TopicPartition("orders", 0), tmp_path, directory)
    ensure_unchanged(files.segments[1], files, now_ms_of(directory, after_ms))
    for base_offset in gone:
        (directory / f"{base_offset:020d}.log").unlink()
    if comes is not None:
        (directory / f"{comes:020d}.log").touch()
    with nullcontext() if message is None else pytest.raises(SegmentChanged, match=message):
        ensure_unchanged(files.segments[1], files, now_ms_of(directory, after_ms))


def test_a_directory_is_listed_for_a_commit_only_if_its_times_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To list a partition of 10,000 segments takes longer than to commit one of them."""
    directory, listed, scandir = a_partition(tmp_path, "orders-0", 0, 10, 20), list[Path](), os.scandir
    os.utime(directory, (1_000, 1_000))
    files = read_partition_directory(TopicPartition("orders", 0), tmp_path, directory)

    def counted(path: Path) -> object:
        listed.append(path)
        return scandir(path)

    def listings_until(now_ms: int) -> int:
        listed.clear()
        ensure_unchanged(files.segments[0], files, now_ms)
        return len(listed)

    monkeypatch.setattr(os, "scandir", counted)
    written_ms = now_ms_of(directory, 0)
    # One listing is two that agree. Within two seconds, another change might have the same time.
    assert [listings_until(written_ms + after_ms) for after_ms in (0, 2_000, 10_000, 10_001)] == [2, 2, 2, 0]
    assert listings_until(written_ms + 300_000) == 2
    os.utime(directory, ns=(0, directory.stat().st_mtime_ns + 1))
    assert [listings_until(written_ms + 300_000) for _ in "ab"] == [2, 0]
    # A file of the segment is gone, and the file system did not change the directory's times.
    files.segments[0].log.path.unlink()
    os.utime(directory, ns=(0, written_ms * 1_000_000 + 1))
    assert listings_until(written_ms + 300_000) == 2
