"""Copies of a group are archived by one commit or not at all: no record may lose to one that the archive lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import structlog

from sidecar.archive.actions import Add
from sidecar.archive.commit import decode_commit
from sidecar.archive.keys import COMMITS, below
from sidecar.broker.files import FileBrokerFacts
from sidecar.commits import commit_log
from sidecar.compaction_strategy import Strategy
from sidecar.compactor import before_upload
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.checkpoints import write_offset_checkpoint
from sidecar.logformat.names import CLEANER_CHECKPOINT
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.facts import PartitionFacts
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.verify.verify import verify_archive
from tests.compactor.before_upload_rig import Rig, rig, rounds_scan
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import log_of, only_state
from tests.runner.rig import archive, archived_states, ranges, tools_for
from tests.runner.test_crashes import Killed, dies_at
from tests.segment.made_logs import VERSION, random_segments, records_in, roll, winners

STRATEGIES = list(Strategy)


class Story:
    """A group of rolled segments, compacted and not archived yet."""

    def __init__(self, site: Rig, segments: dict[int, tuple[bytes, ...]], strategy: Strategy) -> None:
        self.site, self.segments, self.strategy = site, segments, strategy
        self.store = site.store
        self.rolled = sorted(segments)[:-1]

    def path(self, base_offset: int) -> Path:
        return self.site.log_dir / "orders-0" / f"{base_offset:020d}.log"

    def raw(self) -> list[Record]:
        """What the archived segments held before."""
        state = only_state(self.store)
        archived = {segment.base_offset for segment in state.segments}
        return records_in(b"".join(self.segments[base]) for base in sorted(archived))

    def kept(self) -> set[int]:
        """The offsets of all archived records."""
        state = only_state(self.store)
        return {found.offset for found in records_in(log_of(self.store, state, s) for s in state.segments)}

    def check(self, *, start_offset: int = 0) -> None:
        """Every key of the archived segments is there, with the record that must win."""
        if not archived_states(self.store):
            return
        alive = [found for found in self.raw() if found.offset >= start_offset]
        assert winners(alive, self.strategy) <= self.kept()
        assert [found.problems for found in verify_archive(self.store, self.site.context.clock, deep=True)] == [()]

    def generations(self) -> set[int]:
        return {segment.generation for segment in only_state(self.store).segments}

    def finish(self) -> None:
        """Rounds until all is archived."""
        for _ in range(6):
            self.site.round()
            self.site.compactor.cycle()
            self.check()
        assert only_state(self.store).end_offset == max(self.segments)


@contextmanager
def story(
    tmp_path: Path, strategy: Strategy, seed: int = 0, store: MemoryStore | None = None, *, segments: int = 5
) -> Iterator[Story]:
    settings = {"topics": [{"pattern": ".*", "strategy": str(strategy)}]}
    if strategy is Strategy.HEADER:
        settings = {"topics": [{"pattern": ".*", "strategy": "header", "header": VERSION}]}
    with rig(tmp_path, "orders-0", store=store, **settings) as site, structlog.testing.capture_logs():
        made = random_segments(Random(seed), segments)
        roll(site.log_dir, made, max(made))
        assert site.round().errors == []
        assert site.compactor.cycle()
        found = Story(site, made, strategy)
        assert archived_states(found.store) == {}
        yield found


def commits_of(store: MemoryStore) -> list[list[int]]:
    """The bases of the segments that each commit adds."""
    root = only_state(store).lineage.root
    keys = sorted(key for key in store.objects if key.startswith(below(root, COMMITS)))
    found = [decode_commit(store.objects[key], key) for key in keys]
    return [[a.segment.base_offset for a in commit.actions if isinstance(a, Add)] for commit in found]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(4))
def test_one_commit_archives_the_group(seed: int, strategy: Strategy, tmp_path: Path) -> None:
    with story(tmp_path, strategy, seed) as reported:
        assert reported.site.round().errors == []
        reported.check()
        assert commits_of(reported.store) == [reported.rolled]
        assert 1 in reported.generations()
        assert reported.kept() == winners(reported.raw(), strategy)
        assert list(reported.site.copies.iterdir()) == []
        assert reported.site.context.journal.count() == 0


def test_death_at_any_call_of_the_store_loses_no_key(tmp_path: Path) -> None:
    """On real bytes. Calls that fail in every other way: `tests.simulation`, with its rules record-lost and not-archived."""
    with story(tmp_path / "count", Strategy.TIMESTAMP, 7) as reported:
        before, count = dies_at(10**9, after=False)
        reported.store.before = before
        reported.site.round()
        total = count()
    assert total > 10
    for call in range(total):
        place = tmp_path / str(call)
        with story(place, Strategy.TIMESTAMP, 7) as reported:
            reported.store.before, _ = dies_at(call, after=False)
            with pytest.raises(Killed):
                reported.site.round()
            reported.store.before = lambda _operation, _key: None
            reported.check()
            log_dir, store = reported.site.log_dir, reported.store
        with tools_for(log_dir, store, place / "state", producer_id_expiration_ms=None) as context:
            assert archive(context, log_dir).errors == []
            assert context.journal.count() == 0
        reported.check()
        assert only_state(store).end_offset == max(reported.segments)


def change_one(reported: Story, how: str, base_offset: int) -> None:
    path = reported.path(base_offset)
    if how == "gone":
        path.unlink()
    elif how == "shorter":
        path.write_bytes(reported.segments[base_offset][0][:-1])
    elif how == "another file":
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)


@pytest.mark.parametrize("uploads", [0, 4], ids=lambda n: f"after {n} uploads")
@pytest.mark.parametrize("how", ["gone", "shorter", "another file", "copy gone", "retention"])
def test_a_later_member_that_cannot_go_keeps_no_copy_of_the_others_in_the_archive(
    how: str, uploads: int, tmp_path: Path
) -> None:
    for seed in range(3):
        with story(tmp_path / str(seed), Strategy.TIMESTAMP, seed) as reported:
            left = [uploads]

            def act(
                operation: str = "upload", _key: str = "", reported: Story = reported, left: list[int] = left
            ) -> None:
                if operation != "upload":
                    return
                left[0] -= 1
                if left[0] == -1:
                    if how == "copy gone":
                        max(reported.site.copies.rglob("*.log")).unlink(missing_ok=True)
                    elif how == "retention":
                        for base_offset in reported.rolled[:2]:
                            reported.path(base_offset).unlink()
                    else:
                        change_one(reported, how, reported.rolled[-1])

            if uploads:
                reported.store.before = act
            else:
                act()
            for _ in range(4):
                reported.site.round()
                reported.check()
                reported.site.compactor.cycle()
            if archived_states(reported.store):
                # Either the whole group went by one commit, or each segment by its own and as it was.
                adds = [bases for bases in commits_of(reported.store) if bases]
                assert adds == [reported.rolled] or all(len(bases) == 1 for bases in adds)
                if adds != [reported.rolled] and how != "another file":  # that one is compacted again, by itself
                    assert reported.generations() == {0}


def test_a_group_that_one_commit_cannot_hold_goes_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with story(tmp_path, Strategy.TIMESTAMP) as reported:
        monkeypatch.setattr(commit_log, "COMMIT_BYTES_MAX", 4000)
        assert [type(error).__name__ for error in reported.site.round().errors] == ["CommitRefused"]
        reported.finish()
        assert reported.generations() == {0}
        assert list(reported.site.copies.iterdir()) == []


def test_segments_that_the_broker_has_emptied_are_not_joined(tmp_path: Path) -> None:
    """Before KAFKA-17076 a cleaner left segments without a batch, also next to one another."""
    with rig(tmp_path, "orders-0") as site:
        made = random_segments(Random(1), 4)
        _, *emptied, _, end_offset = made
        roll(site.log_dir, {**made, **dict.fromkeys(emptied, ())}, end_offset)
        cleaned = {TopicPartition("orders", 0): end_offset}
        (site.log_dir / CLEANER_CHECKPOINT).write_bytes(write_offset_checkpoint(cleaned))
        assert site.round().errors == []
        assert site.compactor.cycle()
        assert site.round().errors == []
        assert [base for base, _ in ranges(only_state(site.store))] == sorted(made)[:-1]
        assert 1 in site.generations("orders-0")


def test_a_group_is_no_larger_than_one_commit_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(before_upload, "GROUP_SEGMENTS_MAX", 2)
    with story(tmp_path, Strategy.TIMESTAMP) as reported:
        reported.finish()
        assert [len(bases) for bases in commits_of(reported.store)] == [2, 2, 1]


def test_a_round_that_is_over_does_not_cut_a_group(tmp_path: Path) -> None:
    with story(tmp_path, Strategy.TIMESTAMP) as reported:
        clock, taken = reported.site.context.clock, []

        def slow(operation: str, key: str) -> None:
            if operation == "upload":
                taken.append(key)
                clock.sleep_s(10_000)

        reported.store.before = slow
        reported.site.round()
        assert commits_of(reported.store) == [reported.rolled]


def test_who_is_asked_to_stop_during_a_group_commits_nothing_of_it(tmp_path: Path) -> None:
    with story(tmp_path, Strategy.TIMESTAMP, segments=8) as reported:

        def stop(operation: str, _key: str) -> None:
            if operation == "upload":
                reported.site.context.stop.set()

        reported.store.before = stop
        reported.site.round()
        assert commits_of(reported.store) == []
        reported.store.before = lambda _operation, _key: None
        log_dir, store = reported.site.log_dir, reported.store
    with tools_for(log_dir, store, tmp_path / "state", producer_id_expiration_ms=None) as context:
        assert archive(context, log_dir).errors == []
        assert context.journal.count() == 0
    reported.check()


class LogStart(FileBrokerFacts):
    """A leader whose log begins there: when it is asked for a plan, and right before the commit."""

    planned: int | None = None
    confirmed: int | None = None

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        return replace(super().partition(files), cluster_start_offset=self.planned)

    def confirm(self, files: PartitionFiles) -> PartitionFacts:
        return replace(super().confirm(files), cluster_start_offset=self.confirmed)


def led(site: Rig) -> tuple[LogStart, Callable[[], list[Exception]]]:
    facts = LogStart([site.log_dir], assume_leader=True)
    context = replace(site.context, facts=facts)
    rounds = ArchiveLoop(context, rounds_scan(site.log_dir), site.waiting)
    return facts, lambda: list(rounds.run_once().errors)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(4))
def test_segments_with_deleted_records_take_part_in_no_decision(seed: int, strategy: Strategy, tmp_path: Path) -> None:
    """The log start lies in the second segment before anything is compacted."""
    topic = {"pattern": ".*", "strategy": str(strategy)} | ({"header": VERSION} if strategy is Strategy.HEADER else {})
    with rig(tmp_path, "orders-0", topics=[topic]) as site:
        made = random_segments(Random(seed), 5)
        roll(site.log_dir, made, max(made))
        reported, (facts, run) = Story(site, made, strategy), led(site)
        start_offset = facts.planned = facts.confirmed = reported.rolled[1] + 1
        for _ in range(4):
            assert run() == []
            site.compactor.cycle()
        reported.check(start_offset=start_offset)
        state = only_state(site.store)
        assert state.end_offset == max(made)
        assert [segment.generation for segment in state.segments][:2] == [0, 0]
        assert 1 in reported.generations()


@pytest.mark.parametrize("confirmed", [None, 1], ids=["the leader does not tell", "within the group"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_records_deleted_after_the_decision_are_no_winners(
    strategy: Strategy, confirmed: int | None, tmp_path: Path
) -> None:
    for seed in range(3):
        with story(tmp_path / str(seed), strategy, seed) as reported:
            facts, run = led(reported.site)
            facts.planned, facts.confirmed = 0, None if confirmed is None else reported.rolled[1] + confirmed
            errors = run()
            assert [type(error).__name__ for error in errors] == ["SegmentChanged"]
            assert "Nothing was committed" in str(errors[0])
            assert archived_states(reported.store) == {}
            facts.confirmed = facts.planned = facts.confirmed or 0
            for _ in range(3):
                assert run() == []
                reported.site.compactor.cycle()
            assert reported.generations() == {0}
            reported.check(start_offset=facts.confirmed)


def test_a_log_start_that_moves_while_a_group_waits_breaks_it_up(tmp_path: Path) -> None:
    with story(tmp_path, Strategy.TIMESTAMP) as reported:
        facts, run = led(reported.site)
        facts.planned = facts.confirmed = reported.rolled[2] + 1
        assert run() == []
        assert reported.generations() == {0}
        assert ranges(only_state(reported.store))[-1][1] == max(reported.segments)
        reported.check(start_offset=facts.planned)
