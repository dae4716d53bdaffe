from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.logformat.names import (
    DirectoryState,
    OffsetFileName,
    Suffix,
    directory_name,
    file_name,
    is_internal_topic,
    is_swap,
    parse_directory_name,
    parse_file_name,
)
from sidecar.model import TopicPartition

HEX = "0123456789abcdef0123456789abcdef"


@given(st.integers(0, 2**63 - 1), st.sampled_from(Suffix))
def test_a_file_name_is_read_back(offset: int, suffix: Suffix) -> None:
    assert parse_file_name(file_name(offset, suffix)) == OffsetFileName(offset, suffix)


def test_offsets_that_no_file_name_can_hold_are_refused() -> None:
    for offset in (-1, 2**63):
        with pytest.raises(ValueError, match="cannot be part of a file name"):
            file_name(offset, Suffix.LOG)


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.log.deleted",
        "00000000000000000000.log.swap",
        "00000000000000000000.index.cleaned",
        "00000000000000000000.snapshot.tmp",
        "0000000000000000000.log",
        "000000000000000000000.log",
        "\u06600000000000000000000.log",
        "00000000000000000000.LOG",
        "00000000000000000000.log\n",
        "99999999999999999999.log",
        "00000000000000000000.checkpoint",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "",
    ],
)
def test_other_files_are_no_segment_files(name: str) -> None:
    assert parse_file_name(name) is None


def test_files_that_replace_segments_are_recognised() -> None:
    assert is_swap("00000000000000000007.log.swap")
    assert is_swap("00000000000000000007.timeindex.swap")
    assert not is_swap("00000000000000000007.timeindex.cleaned")
    assert not is_swap("00000000000000000007.log.deleted")
    assert not is_swap("00000000000000000007.log")
    assert not is_swap("notes.swap")


@pytest.mark.parametrize(
    ("name", "topic", "partition", "state"),
    [
        ("orders-0", "orders", 0, DirectoryState.LIVE),
        ("a-b.c-d-12", "a-b.c-d", 12, DirectoryState.LIVE),
        ("-3-4", "-3", 4, DirectoryState.LIVE),
        ("orders--1", "orders-", 1, DirectoryState.LIVE),
        (f"orders-1.{HEX}-delete", "orders", 1, DirectoryState.DELETE),
        (f"or.ders-1.{HEX}-stray", "or.ders", 1, DirectoryState.STRAY),
        (f"orders-1.{HEX}-future", "orders", 1, DirectoryState.FUTURE),
        ("__cluster_metadata-0", "__cluster_metadata", 0, DirectoryState.LIVE),
    ],
)
def test_partition_directories(name: str, topic: str, partition: int, state: DirectoryState) -> None:
    found = parse_directory_name(name)
    assert found is not None
    assert (found.topic_partition, found.state) == (TopicPartition(topic, partition), state)


@pytest.mark.parametrize(
    "name",
    [
        *("remote-log-index-cache", "orders", "-0", "orders-", "orders-01", "orders-x", "or ders-0", "..-0"),
        *("orders-2147483648", "orders-\u0663", f"{'t' * 250}-0", f"orders.{HEX}-delete", "lost+found"),
    ],
)
def test_other_directories_are_no_partitions(name: str) -> None:
    assert parse_directory_name(name) is None


@given(st.from_regex(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,248}", fullmatch=True), st.integers(0, 2**31 - 1))
def test_a_directory_name_is_read_back(topic: str, partition: int) -> None:
    found = parse_directory_name(directory_name(TopicPartition(topic, partition)))
    assert found is not None
    assert (found.topic_partition, found.state) == (TopicPartition(topic, partition), DirectoryState.LIVE)


@given(st.text(max_size=300))
def test_any_name_is_parsed_or_refused(name: str) -> None:
    directory, file = parse_directory_name(name), parse_file_name(name)
    assert directory is None or str(directory.topic_partition) in name
    assert file is None or file_name(file.offset, file.suffix) == name


def test_internal_topics() -> None:
    assert is_internal_topic("__consumer_offsets")
    assert not is_internal_topic("_schemas")
