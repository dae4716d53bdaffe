"""What is remembered of a partition holds for one term: its leader epoch, its directory and its topic id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.facts import Change, PartitionFacts, Term
from sidecar.retention.log_starts import LogStarts
from sidecar.runner.context import RunContext
from sidecar.runner.partition_archiver import PartitionArchiver
from sidecar.runner.step_threads import Event
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archive, copy_partitions, tools_for
from tests.segment.starting_logs import seen_at

NOW = Term(4, (1, 2), "topic")
OTHERS = [replace(NOW, leader_epoch=5), replace(NOW, directory_id=(1, 3)), replace(NOW, topic_id="another")]
IDS = ["leader epoch", "directory", "topic id"]
ANOTHER_ID = "B" * 21 + "A"


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunContext, PartitionFiles]]:
    directory = tmp_path_factory.mktemp("orders")
    log_dir = copy_partitions(directory, "orders-0")
    with tools_for(log_dir, MemoryStore(), directory / "state") as context:
        archive(context, log_dir)
        (files,) = scan_log_dirs([log_dir], TopicFilter(("orders",))).partitions
        yield context, files


@pytest.mark.parametrize("other", OTHERS, ids=IDS)
def test_the_archive_is_read_again_in_another_term(archived: tuple[RunContext, PartitionFiles], other: Term) -> None:
    archiver, files = _planned(archived)
    opened, archiver.known.reported_lost_below = archiver.known.state, 7
    assert opened is not None
    see(archiver, files, NOW)
    plan(archiver)
    assert archiver.known.state is opened
    see(archiver, files, other)
    plan(archiver)
    assert archiver.known.state is not None
    assert archiver.known.state is not opened
    is_reported = other.since(NOW) is Change.LEADER_EPOCH
    assert archiver.known.reported_lost_below == (7 if is_reported else 0), "a loss is reported once for each log"


def test_a_doubt_of_another_thread_changes_nothing_until_the_loop_takes_its_event(
    archived: tuple[RunContext, PartitionFiles],
) -> None:
    archiver, files, facts, posted = _idle(archived)
    opened = archiver.known.state
    doubt(archiver)
    assert archiver.stays_idle(files, facts), "no other thread changes what the loop has"
    posted.pop()()
    assert not archiver.stays_idle(files, facts)
    plan(archiver)
    assert archiver.known.state is not opened, "the archive was read again"
    assert archiver.stays_idle(files, facts), "once"


def test_a_doubt_that_comes_while_the_archive_is_read_has_it_read_again(
    archived: tuple[RunContext, PartitionFiles],
) -> None:
    archiver, files, facts, posted = _idle(archived)
    doubt(archiver)
    posted.pop()()
    planning = archiver.planning()
    result = next(planning)()
    doubt(archiver)  # It may be of what was damaged right after the read.
    posted.pop()()
    with pytest.raises(StopIteration):
        planning.send(result)
    opened = archiver.known.state
    assert opened is not None
    assert not archiver.stays_idle(files, facts)
    plan(archiver)
    assert archiver.known.state is not opened


def test_a_doubt_hides_no_greater_change(archived: tuple[RunContext, PartitionFiles]) -> None:
    """As of a topic that was created again while gc could not read the archive of the one before."""
    archiver, files = _planned(archived)
    archiver.known.reported_lost_below = 7
    see(archiver, files, OTHERS[1])
    archiver.doubt_archive()
    plan(archiver)
    assert archiver.known.reported_lost_below == 0, "a loss is reported once for each log"


def _idle(
    archived: tuple[RunContext, PartitionFiles],
) -> tuple[PartitionArchiver, PartitionFiles, PartitionFacts, list[Event]]:
    """An archiver with nothing to do, what it was planned of, and what other threads have posted."""
    (context, files), posted = archived, list[Event]()
    archiver = PartitionArchiver(context, files, post=posted.append)
    facts = PartitionFacts(TopicPartition("orders", 0), files.topic_id, True, 0, files.segments[-1].end_offset, 0)
    archiver.see(files, facts)
    plan(archiver)
    assert archiver.stays_idle(files, facts)
    return archiver, files, facts, posted


def doubt(archiver: PartitionArchiver) -> None:
    """As gc does where it cannot read the archive."""
    assert archiver.led is not None
    archiver.led.doubt()


def _planned(archived: tuple[RunContext, PartitionFiles]) -> tuple[PartitionArchiver, PartitionFiles]:
    """An archiver that has read the archive in the term `NOW`."""
    context, files = archived
    archiver = PartitionArchiver(context, files)
    see(archiver, files, NOW)
    plan(archiver)
    return archiver, files


def test_a_time_without_leadership_begins_no_term_but_the_archive_is_read_again(
    archived: tuple[RunContext, PartitionFiles],
) -> None:
    archiver, files = _planned(archived)
    archiver.known.reported_lost_below = 7
    see(archiver, files, OTHERS[1], leads=False)
    plan(archiver)
    assert archiver.known.state is None
    assert archiver.known.end_offset is not None, "what it was is remembered, for people"
    see(archiver, files, NOW)
    assert archiver.known.reported_lost_below == 7


def test_of_a_new_topic_all_that_has_rolled_is_pending_before_its_archive_is_read(
    archived: tuple[RunContext, PartitionFiles],
) -> None:
    archiver, files = _planned(archived)
    assert archiver.pending(files) == (), "all of the topic before is archived"
    see(archiver, files, OTHERS[1])
    assert archiver.pending(files) == (), "a log that was moved has the same archive"
    see(archiver, files, replace(OTHERS[1], topic_id=ANOTHER_ID))
    assert archiver.pending(files) == files.segments


def test_a_new_topic_in_the_inode_of_a_deleted_one_is_another_log(archived: tuple[RunContext, PartitionFiles]) -> None:
    """Its directory has no id before the broker has written `partition.metadata`, and its first leader epoch is the same."""
    context, files = archived
    archiver = PartitionArchiver(context, files)
    facts = PartitionFacts(TopicPartition("orders", 0), None, True, 0, 0, 0)
    archiver.see(files, facts)
    archiver.starts, archiver.known.reported_lost_below = replace(archiver.starts, inside=500), 7
    for topic_id in (None, ANOTHER_ID):
        archiver.see(replace(files, topic_id=topic_id), facts)
        assert archiver.starts.inside is None, "what was deleted of one topic is not deleted of another"
    plan(archiver)
    assert archiver.known.reported_lost_below == 0


def see(archiver: PartitionArchiver, files: PartitionFiles, term: Term, *, leads: bool = True) -> None:
    facts = PartitionFacts(TopicPartition("orders", 0), term.topic_id, leads, term.leader_epoch, 0, 0)
    topic_id = files.topic_id if term.topic_id == NOW.topic_id else ANOTHER_ID  # The archive is of the real one.
    archiver.see(replace(files, directory_id=term.directory_id, topic_id=topic_id), facts)


def plan(archiver: PartitionArchiver) -> None:
    """Make a plan, all steps in this thread."""
    planning = archiver.planning()
    with suppress(StopIteration):
        step = next(planning)
        while True:
            step = planning.send(step())


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


def test_what_changes_with_a_term() -> None:
    assert [other.since(NOW) for other in (*OTHERS, NOW)] == [
        Change.LEADER_EPOCH,
        Change.LOG,
        Change.TOPIC,
        Change.NONE,
    ]
    assert (NOW.since(None), NOW.since(replace(NOW, topic_id=None))) == (Change.LOG, Change.TOPIC_ID)
    assert not any(other.is_one_with(NOW) for other in OTHERS)
    nameless = replace(NOW, topic_id=None)
    assert nameless.since(NOW) is Change.TOPIC, "no log loses its id"
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
