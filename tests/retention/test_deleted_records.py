"""A log start inside a segment is recorded where only DeleteRecords can have moved it there."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.archive.actions import DeleteRecords
from sidecar.archive.state import PartitionState, RemovedSegment
from sidecar.broker.files import FileBrokerFacts
from sidecar.commits import commit_log
from sidecar.commits.commit_log import CommitLog
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import PartitionError
from sidecar.host.archive_cache import SEGMENTS_KEPT, ArchiveCache
from sidecar.logformat.batches import scan_file
from sidecar.model import PartitionFiles, SegmentFiles, TopicPartition
from sidecar.partition.facts import PartitionFacts
from sidecar.retention.deleted_records import LogStartCheck
from sidecar.retention.log_starts import LogStarts
from sidecar.segment.local_disk import LocalDisk
from sidecar.topic_policy import TopicPolicy
from tests.fakes.memory_store import MemoryStore
from tests.runner.events import ignored
from tests.runner.rig import archive, archived_states, copy_partitions, remove_offsets, set_aside_last, tools_for
from tests.runner.test_asking_the_broker import Leadership, rounds_of
from tests.segment.starting_logs import seen_at

ORDERS = TopicPartition("orders", 0)
EPOCH, EPOCH_START_OFFSET = 4, 700
"""The latest leader epoch of the golden log."""
TIERED = TopicPolicy(remote_storage_enable=True)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[PartitionFiles, PartitionState]:
    directory = tmp_path_factory.mktemp("orders")
    log_dir, store = copy_partitions(directory, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, directory / "state") as context:
        archive(context, log_dir)
    (files,) = scan_log_dirs([log_dir], TopicFilter((".*",))).partitions
    return files, archived_states(store)["orders-0"]


def reported(start_offset: int | None, leader_epoch: int = EPOCH) -> PartitionFacts:
    return PartitionFacts(ORDERS, None, True, leader_epoch, 0, 0, cluster_start_offset=start_offset)


def recorded(
    seen: tuple[PartitionFiles, PartitionState],
    facts: PartitionFacts,
    *earlier: PartitionFacts,
    policy: TopicPolicy = TopicPolicy(),  # noqa: B008 - frozen
) -> list[DeleteRecords]:
    files, state = seen
    starts = LogStarts()
    for look in (*earlier, facts):
        starts = seen_at(starts, files, look, policy)
    check = LogStartCheck(facts, state, lambda: state, ignored)
    return check.deleted_on_purpose(starts, state.end_offset or 0)[0]


def test_a_deletion_that_no_commit_notes_yet_is_known_to_compaction(
    seen: tuple[PartitionFiles, PartitionState],
) -> None:
    files, state = seen
    starts, end_offset = LogStarts(), state.end_offset or 0
    assert starts.unnoted_in(state) is None
    starts = seen_at(starts, files, reported(EPOCH_START_OFFSET + 1))
    assert starts.unnoted_in(state) == EPOCH_START_OFFSET + 1
    assert starts.unnoted_in(replace(state, deleted_before_offset=EPOCH_START_OFFSET)) == EPOCH_START_OFFSET + 1
    assert starts.unnoted_in(replace(state, deleted_before_offset=EPOCH_START_OFFSET + 1)) is None
    starts = replace(starts, inside=end_offset + 10)
    assert starts.unnoted_in(state) == end_offset
    assert starts.unnoted_in(replace(state, deleted_before_offset=end_offset)) is None
    starts = replace(starts, border=starts.inside)
    assert starts.unnoted_in(state) is None


def test_a_deletion_after_the_last_look_is_known_to_compaction(
    seen: tuple[PartitionFiles, PartitionState],
) -> None:
    files, state = seen
    border = files.segments[1].base_offset
    starts = LogStarts()
    starts = seen_at(starts, files, reported(0))

    def unnoted(facts: PartitionFacts, policy: TopicPolicy = TopicPolicy()) -> int | None:  # noqa: B008 - frozen
        return starts.unnoted_at(state, files, facts, policy)

    assert unnoted(reported(border + 5)) == border + 5
    assert starts.inside is None  # That is the business of the next look.
    assert [unnoted(reported(offset)) for offset in (None, 0, border)] == [None] * 3  # retention ends at a border
    assert unnoted(reported(border + 5, EPOCH + 1)) is None
    assert unnoted(reported(border + 5), TIERED) is None
    assert starts.unnoted_at(state, replace(files, directory_id=(9, 9)), reported(border + 5), TopicPolicy()) is None
    noted = replace(state, deleted_before_offset=border + 5)
    assert starts.unnoted_at(noted, files, reported(border + 5), TopicPolicy()) is None
    starts = seen_at(starts, files, reported(border + 5))
    assert unnoted(reported(files.segments[2].base_offset)) == border + 5  # retention came after it
    assert not starts.is_unknown
    starts = starts.with_unknown(reported(border + 5), border + 5, PartitionError("damaged"), ignored)
    assert starts.is_unknown


def test_a_start_inside_a_segment_counts_above_what_this_leadership_has_written(
    seen: tuple[PartitionFiles, PartitionState],
) -> None:
    files, state = seen
    borders = [segment.base_offset for segment in files.segments]
    assert len(borders) > 3
    for border in borders:
        assert recorded(seen, reported(border)) == []
        expected = [DeleteRecords(border + 1)] if border >= EPOCH_START_OFFSET else []
        assert recorded(seen, reported(border + 1)) == expected
        assert recorded(seen, reported(border + 1), policy=TIERED) == expected
        assert recorded(seen, reported(border + 1, EPOCH + 2)) == []  # nothing is written yet
    assert EPOCH_START_OFFSET not in borders
    assert recorded(seen, reported(EPOCH_START_OFFSET)) == []  # there another leader's log may have ended
    assert recorded(seen, reported(EPOCH_START_OFFSET + 1)) == [DeleteRecords(EPOCH_START_OFFSET + 1)]
    assert (
        recorded(seen, reported((state.end_offset or 0) + 1)) == []
    )  # in the active segment: reported when that is archived


def test_of_a_start_that_only_the_brokers_tier_has_the_archive_shows_what_it_is(
    seen: tuple[PartitionFiles, PartitionState],
) -> None:
    """Local retention took these segments once the broker had uploaded them: no file has the batch below the start."""
    files, state = seen
    local = replace(files, segments=())
    starts = [segment.base_offset for segment in files.segments]
    assert starts[-2] > EPOCH_START_OFFSET > starts[0]
    for border in starts:
        ours = border + 1 > EPOCH_START_OFFSET
        assert recorded((local, state), reported(border), policy=TIERED) == []
        for looks in ((), (reported(0),), (reported(border + 1), reported(border + 1))):
            found = recorded((local, state), reported(border + 1), *looks, policy=TIERED)
            assert found == ([DeleteRecords(border + 1)] if ours else [])
    assert recorded((local, state), reported(starts[-1] + 1, EPOCH + 1), policy=TIERED) == []
    known = replace(state, deleted_before_offset=starts[-1] + 1)
    assert recorded((local, known), reported(starts[-1] + 1), policy=TIERED) == []


def test_a_start_below_all_files_does_not_count_where_the_broker_tiers_nothing(
    seen: tuple[PartitionFiles, PartitionState],
) -> None:
    """Retention deletes between the leader's answer and the listing. After a move to another log dir, under the same leader
    epoch, the log has other borders than the segments that were archived before: the start is a border of the new log."""
    files, state = seen
    deleted, start_offset = replace(files, segments=files.segments[-1:]), files.segments[-2].base_offset + 1
    assert recorded((deleted, state), reported(start_offset), policy=TIERED) == [DeleteRecords(start_offset)]
    for policy in (TopicPolicy(), TopicPolicy(remote_storage_enable=False), TopicPolicy(unanswered="denied")):
        assert recorded((deleted, state), reported(start_offset), policy=policy) == []


def test_a_start_that_only_the_brokers_tier_has_counts_once_the_archive_reaches_it(
    seen: tuple[PartitionFiles, PartitionState],
) -> None:
    """The segment that has it may be archived from its pin, by the very commit that asks."""
    files, state = seen
    start_offset, end_offset = state.segments[-1].base_offset + 1, state.end_offset or 0
    before = replace(state, segments=state.segments[:-1], end_offset=start_offset - 1)
    starts = seen_at(LogStarts(), replace(files, segments=()), reported(start_offset), TIERED)
    for known, expected in ((before, []), (state, [DeleteRecords(start_offset)])):
        check = LogStartCheck(reported(start_offset), known, partial(replace, known), ignored)
        said, starts = check.deleted_on_purpose(starts, end_offset)
        assert said == expected


def test_an_archive_is_read_once_for_a_start_that_only_the_brokers_tier_has(
    seen: tuple[PartitionFiles, PartitionState],
) -> None:
    """With each commit of a tiered topic, remote retention may have moved the start by another segment."""
    files, state = seen
    local = replace(files, segments=files.segments[-1:])
    newest = replace(state, segments=state.segments[-1:], is_whole=False)
    starts, readings = LogStarts(), 0

    def read_whole() -> PartitionState:
        nonlocal readings
        readings += 1
        return state

    for border in (segment.base_offset for segment in files.segments[1:-1]):
        starts = seen_at(starts, local, reported(border), TIERED)
        for _ in range(2):
            check = LogStartCheck(reported(border), newest, read_whole, ignored)
            said, starts = check.deleted_on_purpose(starts, state.end_offset or 0)
            assert said == []
    assert readings == 1


def test_a_start_that_moved_under_this_leadership_counts(seen: tuple[PartitionFiles, PartitionState]) -> None:
    for border in (segment.base_offset for segment in seen[0].segments[1:4]):
        moved = [DeleteRecords(border + 5)]
        assert recorded(seen, reported(border + 5), reported(0)) == moved
        assert recorded(seen, reported(border + 5), reported(None), reported(border), reported(border + 1)) == moved
        assert recorded(seen, reported(border), reported(0)) == []
        # Retention has moved it on since, or another request has.
        assert recorded(seen, reported(699), reported(0), reported(border + 5)) == [DeleteRecords(699)]
        assert recorded(seen, reported(seen[0].segments[5].base_offset), reported(0), reported(border + 5)) == moved
        assert recorded(seen, reported(border + 5), reported(border + 5)) == []
        # It moved while another led, or nobody knows when.
        assert recorded(seen, reported(border + 5), reported(0, EPOCH - 1)) == []
        assert recorded(seen, reported(border + 5), replace(reported(0), leads=False)) == []
        # Segments that earlier leaders uploaded have borders of their own.
        assert recorded(seen, reported(border + 5), reported(0), policy=TIERED) == []
        assert recorded(seen, reported(border + 5), reported(0), policy=TopicPolicy(unanswered="not authorized")) == []


def test_without_a_leader_that_is_asked_nothing_is_said(seen: tuple[PartitionFiles, PartitionState]) -> None:
    start_offset = seen[0].segments[-1].base_offset + 5
    assert recorded(seen, replace(reported(None), log_start_offset=start_offset)) == []
    assert recorded(seen, reported(start_offset, -1)) == []
    assert recorded(seen, reported(start_offset)) == [DeleteRecords(start_offset)]


def commits_that_say_so(store: MemoryStore) -> list[str]:
    said = [key for key, body in store.objects.items() if "/commits/" in key and b'"delete_records"' in body]
    return [key.rpartition("/")[2].removesuffix(".json") for key in said]


def test_it_is_committed_with_the_next_segment_only_once_and_reported(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    bases = sorted(int(path.stem) for path in (log_dir / "orders-0").glob("*.log"))
    kept = next(base for base in bases if base > EPOCH_START_OFFSET)
    remove_offsets(log_dir / "orders-0", lambda offset: offset >= kept)
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=kept + 5)
    with tools_for(log_dir, store, tmp_path / "state") as context, capture_logs() as logs:
        assert rounds_of(replace(context, facts=facts), log_dir).run_once().errors == []
    state = archived_states(store)["orders-0"]
    assert (state.start_offset, state.deleted_before_offset) == (kept, kept + 5)
    assert commits_that_say_so(store) == [f"{0:020d}"]
    assert [(log["before_offset"], log["log_level"]) for log in logs if log["event"] == "records_deleted"] == [
        (kept + 5, "warning")
    ]


@pytest.mark.parametrize("remembers", [False, True])
def test_a_start_again_knows_the_archive_in_part_and_records_it_all_the_same(remembers: bool, tmp_path: Path) -> None:
    """What is remembered of an archive is its newest segments: records below these may be deleted."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    directory, memory_dir = log_dir / "orders-0", tmp_path / "memory"
    memory_dir.mkdir()
    set_aside_last(directory, tmp_path / "aside")
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), epoch=0, cluster_start_offset=0)
    start_offset = 145
    for again in (False, True):
        with tools_for(log_dir, store, tmp_path / "state") as context:
            if remembers:
                context = replace(context, memory=ArchiveCache(memory_dir))
            if again:
                facts.cluster_start_offset = start_offset
                for path in (tmp_path / "aside").iterdir():
                    path.rename(directory / path.name)
            store.calls.clear()
            assert rounds_of(replace(context, facts=facts), log_dir).run_once().errors == []
            assert archived_states(store)["orders-0"].deleted_before_offset == (start_offset if again else 0)
            context.memory.close()
    assert start_offset < archived_states(store)["orders-0"].segments[-SEGMENTS_KEPT - 1].base_offset
    assert len(commits_that_say_so(store)) == 1


@pytest.mark.parametrize("is_seen_to_move", [True, False])
def test_a_start_among_older_batches_counts_only_where_it_is_seen_to_move(
    is_seen_to_move: bool, tmp_path: Path
) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    set_aside_last(log_dir / "orders-0", tmp_path / "aside")
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), epoch=EPOCH, cluster_start_offset=145)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_of(replace(context, facts=facts), log_dir)
        if is_seen_to_move:
            facts.cluster_start_offset = 0
        assert rounds.run_once().errors == []
        facts.cluster_start_offset = 145
        for path in (tmp_path / "aside").iterdir():
            path.rename(log_dir / "orders-0" / path.name)
        assert rounds.run_once().errors == []
    assert archived_states(store)["orders-0"].deleted_before_offset == (145 if is_seen_to_move else 0)


def test_the_whole_archive_is_read_once_however_often_records_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kafka Streams does with its repartition topics, every 30 s."""
    reads, read = [], CommitLog.read

    def counting(log: CommitLog) -> PartitionState:
        reads.append(log)
        return read(log)

    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    directory, aside = log_dir / "orders-0", [tmp_path / f"aside-{at}" for at in range(3)]
    for path in aside:
        set_aside_last(directory, path)
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), epoch=EPOCH, cluster_start_offset=0)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_of(replace(context, facts=facts), log_dir)
        assert rounds.run_once().errors == []
        monkeypatch.setattr(CommitLog, "read", counting)
        monkeypatch.setattr(commit_log, "SPARED_MIN", 100)  # checkpoints read the archive for themselves
        for start_offset, back in zip((145, 147, 149), reversed(aside), strict=True):
            facts.cluster_start_offset = start_offset
            for path in back.iterdir():
                path.rename(directory / path.name)
            assert rounds.run_once().errors == []
            assert archived_states(store)["orders-0"].deleted_before_offset == start_offset
    assert len(commits_that_say_so(store)) == 3
    assert len(reads) == 1


@pytest.fixture
def moved(seen: tuple[PartitionFiles, PartitionState]) -> tuple[PartitionFiles, int]:
    """The log in another log dir, where its last two segments are one, and where the second of them began."""
    files, state = seen
    before, last = files.segments[-2:]
    assert last.base_offset in {segment.base_offset for segment in state.segments}
    one = replace(before, end_offset=last.end_offset)
    return replace(files, segments=(*files.segments[:-2], one), directory_id=(99, 99)), last.base_offset


@pytest.mark.parametrize("is_seen_to_move", [True, False])
def test_retention_while_a_log_is_moved_to_another_log_dir_is_no_deletion(
    is_seen_to_move: bool, seen: tuple[PartitionFiles, PartitionState], moved: tuple[PartitionFiles, int]
) -> None:
    """The new log rolled elsewhere, and takes over the start of the one it replaces, under the same leader epoch."""
    state = seen[1]
    files, start_offset = moved
    starts, reads = LogStarts(), []
    if is_seen_to_move:
        starts = seen_at(starts, files, reported(0))  # the broker's answer of the moment before the swap

    def whole() -> PartitionState:
        reads.append(1)
        return state

    def said(start_offset: int, known: PartitionState) -> list[DeleteRecords]:
        nonlocal starts
        starts = seen_at(starts, files, reported(start_offset))
        end_offset = state.end_offset or 0
        found, starts = LogStartCheck(reported(start_offset), known, whole, ignored).deleted_on_purpose(
            starts, end_offset
        )
        return found

    known = replace(state, segments=())
    assert said(start_offset, known) == said(start_offset, known) == []
    assert len(reads) == 1
    assert said(start_offset + 3, known) == [DeleteRecords(start_offset + 3)]


def test_a_start_in_another_directory_is_not_compared_with_the_one_before(
    seen: tuple[PartitionFiles, PartitionState],
) -> None:
    files, starts = seen[0], LogStarts()
    starts = seen_at(starts, files, reported(0))
    starts = seen_at(starts, files, reported(145))
    assert starts.has_moved(reported(145))
    assert starts.inside == 145
    starts = seen_at(starts, replace(files, directory_id=(9, 9)), reported(145))
    assert not starts.has_moved(reported(145))
    assert starts.has_moved(reported(146))
    assert starts.inside is None


def test_a_start_where_the_archive_may_have_lost_a_border_is_no_deletion(
    seen: tuple[PartitionFiles, PartitionState], moved: tuple[PartitionFiles, int]
) -> None:
    files, start_offset = moved
    before, last = seen[1].segments[-2:]
    raw = last.raw_batches
    merged = replace(before, end_offset=last.end_offset, generation=1, compacted_from=raw)
    alone = replace(before, end_offset=last.end_offset, generation=1, compacted_from=before.raw_batches)
    removed = RemovedSegment("", start_offset, last.end_offset, 0, "")
    for segments, gone, expected in (
        ((merged,), (), []),
        ((replace(merged, compacted_from=None),), (), []),
        ((alone,), (), [DeleteRecords(start_offset)]),
        ((alone,), (removed,), []),
    ):
        state = replace(seen[1], segments=segments, removed=gone)
        assert recorded((files, state), reported(start_offset)) == expected
    up_to_it = replace(seen[1], segments=(), removed=(), end_offset=start_offset)
    starts = LogStarts()
    starts = seen_at(starts, files, reported(start_offset))
    assert starts.inside == start_offset
    check = LogStartCheck(reported(start_offset), up_to_it, lambda: up_to_it, ignored)
    assert check.deleted_on_purpose(starts, last.end_offset)[0] == []


def test_an_unreadable_segment_at_the_log_start_does_not_keep_the_next_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(segment: SegmentFiles, _: int) -> int:
        raise PartitionError(f"{segment.log.path} cannot be read: Input/output error")

    monkeypatch.setattr(LocalDisk, "leader_epoch_below", staticmethod(fails))
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    directory = log_dir / "orders-0"
    set_aside_last(directory, tmp_path / "aside")
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), epoch=EPOCH, cluster_start_offset=0)
    with tools_for(log_dir, store, tmp_path / "state") as context, capture_logs() as logs:
        rounds = rounds_of(replace(context, facts=facts), log_dir)
        assert rounds.run_once().errors == []
        archived = archived_states(store)["orders-0"]
        facts.epoch, facts.cluster_start_offset = EPOCH + 1, 145  # not seen to move: the batch below is asked
        for path in (tmp_path / "aside").iterdir():
            path.rename(directory / path.name)
        assert rounds.run_once().errors == []
    after = archived_states(store)["orders-0"]
    assert len(after.segments) > len(archived.segments)
    assert after.deleted_before_offset == 0
    assert [log["log_start_offset"] for log in logs if log["event"] == "deleted_records_unknown"] == [145]


@pytest.mark.parametrize("partition", ["orders-0", "append-time-0"])
def test_the_batch_below_is_that_of_the_whole_log(partition: str, tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, partition)
    (files,) = scan_log_dirs([log_dir], TopicFilter((".*",))).partitions
    for segment in files.segments:
        (columns,) = scan_file(segment.log.path, base_offset=segment.base_offset)
        for offset in range(segment.base_offset, segment.end_offset + 2, 3):
            below = columns.leader_epoch[columns.base_offset < offset].tolist()
            assert LocalDisk().leader_epoch_below(segment, offset) == (below[-1] if below else None)
