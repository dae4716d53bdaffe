"""What is remembered of a partition holds for one term: its leader epoch, its directory and its topic id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.commits.archive_view import ArchiveView
from sidecar.discovery.scan import TopicFilter, scan_log_dirs
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.term import Term
from sidecar.retention.log_starts import LogStarts
from sidecar.runner.context import RunContext
from tests.fakes.memory_store import MemoryStore
from tests.pipeline.rig import archive, copy_partitions, tools_for
from tests.pipeline.starting_logs import seen_at

NOW = Term(4, (1, 2), "topic")
OTHERS = [replace(NOW, leader_epoch=5), replace(NOW, directory_id=(1, 3)), replace(NOW, topic_id="another")]
IDS = ["leader epoch", "directory", "topic id"]


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunContext, PartitionFiles]]:
    directory = tmp_path_factory.mktemp("orders")
    log_dir = copy_partitions(directory, "orders-0")
    with tools_for(log_dir, MemoryStore(), directory / "state") as tools:
        archive(tools, log_dir)
        (files,) = scan_log_dirs([log_dir], TopicFilter(("orders",))).partitions
        yield tools, files


@pytest.mark.parametrize("other", OTHERS, ids=IDS)
def test_the_archive_is_read_again_in_another_term(archived: tuple[RunContext, PartitionFiles], other: Term) -> None:
    tools, files = archived
    known = ArchiveView(tools, files)
    known.see(NOW, leads=True)
    opened = known.open(files)
    known.told_lost_below = 7
    known.see(NOW, leads=True)
    assert known.state is opened
    known.see(other, leads=True)
    assert known.state is None
    assert known.end_offset == opened.end_offset, "what it was is remembered, for people"
    assert known.told_lost_below == (7 if other.is_same_log(NOW) else 0), "a loss is reported once for each log"


def test_a_loss_is_reported_once_though_another_directory_was_seen_without_leadership(
    archived: tuple[RunContext, PartitionFiles],
) -> None:
    known = ArchiveView(*archived)
    known.see(NOW, leads=True)
    known.told_lost_below = 7
    known.see(OTHERS[1], leads=False)
    known.see(NOW, leads=True)
    assert known.told_lost_below == 7
    known.see(OTHERS[1], leads=True)
    assert known.told_lost_below == 0


def test_the_archive_is_read_again_after_a_time_without_leadership(archived: tuple[RunContext, PartitionFiles]) -> None:
    tools, files = archived
    known = ArchiveView(tools, files)
    known.see(NOW, leads=True)
    known.open(files)
    known.see(NOW, leads=False)
    assert known.state is None


@pytest.mark.parametrize("other", OTHERS, ids=IDS)
def test_log_starts_of_another_term_are_forgotten(archived: tuple[RunContext, PartitionFiles], other: Term) -> None:
    _, files = archived
    inside = files.segments[0].base_offset + 5

    def see(starts: LogStarts, term: Term, start_offset: int) -> LogStarts:
        found = PartitionFacts(
            TopicPartition("orders", 0), term.topic_id, True, term.leader_epoch, 0, 0, cluster_start_offset=start_offset
        )
        in_term = replace(files, directory_id=term.directory_id, topic_id=term.topic_id)
        return seen_at(starts, in_term, found)

    starts = see(see(LogStarts(), NOW, 0), NOW, inside)
    assert starts.inside == inside
    starts = see(starts, other, files.segments[0].base_offset)
    assert starts.inside is None


def test_a_topic_that_gets_its_id_keeps_what_is_known_of_its_deleted_records(
    archived: tuple[RunContext, PartitionFiles],
) -> None:
    _, files = archived
    inside = files.segments[0].base_offset + 5
    starts = LogStarts()
    for topic_id, start_offset in ((None, 0), (None, inside), ("topic", inside)):
        found = PartitionFacts(TopicPartition("orders", 0), topic_id, True, 4, 0, 0, cluster_start_offset=start_offset)
        starts = seen_at(starts, replace(files, topic_id=topic_id), found)
    assert starts.inside == inside
    assert starts.has_moved(found)


def test_a_term_is_of_the_same_log_under_whatever_leader() -> None:
    assert [other.is_same_log(NOW) for other in OTHERS] == [True, False, False]
    assert not any(other.is_one_with(NOW) for other in OTHERS)
    nameless = replace(NOW, topic_id=None)
    assert nameless.is_one_with(NOW)
    assert NOW.is_one_with(nameless)


def test_paths_name_no_term(tmp_path: Path) -> None:
    """Two listings of one directory by different names are one term: device and inode tell."""
    log_dir = copy_partitions(tmp_path, "orders-0")
    (tmp_path / "link").symlink_to(log_dir)
    facts = PartitionFacts(TopicPartition("orders", 0), None, True, 4, 0, 0)
    found = [
        facts.term(scan_log_dirs([place], TopicFilter(("orders",))).partitions[0])
        for place in (log_dir, tmp_path / "link")
    ]
    assert found[0] == found[1]
