"""How archive compactions end in between: each partition is committed by itself, and what is not committed leaves nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sidecar.archive.keys import below
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.commit_window import COMMIT_WITHIN_MS
from sidecar.compaction.rules import CompactionRules
from sidecar.compactor.archive import compactor as archive_compactor
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest, PartitionCompaction, PartitionInWork
from sidecar.engine_ports import Answer, Task
from sidecar.errors import CompactionCutOff, SidecarError, StoreUnavailable
from sidecar.rewriting.local_engine import LocalEngine
from tests.fakes.manual_clock import ManualClock
from tests.runner.archives import NOW_MS, SETTINGS, WRITER, archived, use
from tests.runner.rig import archived_states

RULES = CompactionRules(NOW_MS)


class EngineDied(SidecarError):
    """The JVM was killed."""


class Story:
    """Two archived partitions, and a bound by which both are compacted in several steps."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = archived(tmp_path, "compacted-0")
        other = archived(tmp_path / "other", "orders-0")
        self.store.objects |= other.objects
        self.store.modified_ms |= other.modified_ms
        use(monkeypatch, self.store)
        self.staging = tmp_path / "staging"
        self.staging.mkdir()
        self.before = archived_states(self.store)
        segments = [segment for state in self.before.values() for segment in state.segments]
        self.bound = 2 * max(segment.parts[0].size_bytes for segment in segments)
        self.requests = [CompactionRequest(state.lineage.root, RULES, WRITER) for state in self.before.values()]
        self.committed: list[PartitionCompaction] = []
        self.steps = 0

    def compact(self, **parameters: Any) -> tuple[PartitionCompaction, ...]:
        compactor = ArchiveCompactor(
            SETTINGS,
            LocalEngine(),
            self.store.clock,
            self.staging,
            split_bytes=4096,
            max_staging_bytes=self.bound,
            **parameters,
        )
        return compactor.compact(self.requests, done=self.committed.append)

    def fails_at(self, monkeypatch: pytest.MonkeyPatch, step: int, error: BaseException) -> None:
        rewritten, self.steps = archive_compactor.rewritten, 0

        def failing(*arguments: Any) -> Any:
            self.steps += 1
            if self.steps == step:
                raise error
            return rewritten(*arguments)

        monkeypatch.setattr(archive_compactor, "rewritten", failing)

    def unnamed(self) -> set[str]:
        """Segment objects that no commit names; replaced ones are named by the commit before."""
        states = [*archived_states(self.store).values(), *self.before.values()]
        named = {
            below(state.lineage.root, key)
            for state in states
            for segment in state.segments
            for key in (segment.log_key, segment.indexes_key)
        }
        return {key for key in self.store.objects if "/segments/" in key} - named


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(tmp_path, monkeypatch)


@pytest.mark.parametrize("error", [EngineDied(), KeyboardInterrupt(), ZeroDivisionError("a bug")], ids=repr)
def test_what_ends_all_between_steps_leaves_no_uploads(
    error: BaseException, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, modified_ms = dict(story.store.objects), dict(story.store.modified_ms)
    outcomes, step = list[int](), 0
    while not outcomes or step == story.steps:
        step += 1
        story.store.objects, story.store.modified_ms = dict(objects), dict(modified_ms)
        story.committed.clear()
        with monkeypatch.context() as patched:
            story.fails_at(patched, step, error)
            with suppress(type(error)):
                story.compact()
        outcomes.append(len(story.committed))
        assert story.unnamed() == set(), f"it ended at step {step}"
    # What was committed before the failure stays, and is reported.
    assert outcomes == sorted(outcomes)
    assert outcomes.count(0) > 2
    assert outcomes.count(1) > 2
    assert outcomes[-1] == 2


def test_a_partition_is_committed_after_its_own_last_step_within_a_window_of_its_own(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition takes less than twelve hours, both together take longer, and the rewriting of the first one, too."""
    clock = story.store.clock
    assert isinstance(clock, ManualClock)
    rewritten, seen = archive_compactor.rewritten, set[int]()

    def slow(run: Any, parts: Any, step: Any) -> Any:
        if new := set(step) - seen:
            seen.update(new)
            clock.advance_ms(COMMIT_WITHIN_MS + 1)
        return rewritten(run, parts, step)

    monkeypatch.setattr(archive_compactor, "rewritten", slow)
    for found in story.compact():
        assert found.error is None
        assert found.commit_number is not None
    assert len(story.committed) == 2
    assert story.unnamed() == set()


@pytest.mark.parametrize("answers", range(12))
def test_a_compaction_that_is_cut_off_commits_nothing_from_then_on(answers: int, story: Story) -> None:
    asked, commits_then = [0], list[int]()

    def commits() -> int:
        return sum("/commits/" in key for key in story.store.objects)

    def is_cut_off() -> bool:
        asked[0] += 1
        if asked[0] > answers:
            commits_then.append(commits())
        return asked[0] > answers

    results: tuple[PartitionCompaction, ...] = ()
    with suppress(CompactionCutOff):
        results = story.compact(is_cut_off=is_cut_off)
    if commits_then:
        assert commits() == commits_then[0]
        assert story.unnamed() == set()
    assert all(isinstance(found.error, CompactionCutOff | None) for found in results)
    assert list(story.staging.iterdir()) == []


def test_a_compaction_that_is_cut_off_while_it_uploads_is_not_committed(story: Story) -> None:
    story.bound, cut_off = 2**62, list[str]()  # one step: only the commit is left

    def upload(operation: str, key: str) -> None:
        if operation == "upload" and "/segments/" in key:
            cut_off.append(key)

    story.store.before = upload
    results = story.compact(is_cut_off=lambda: bool(cut_off))
    assert cut_off
    assert [type(found.error) for found in results] == [CompactionCutOff] * 2
    assert archived_states(story.store) == story.before
    assert story.unnamed() == set()


def test_a_fault_at_one_commit_does_not_hide_the_commits_of_others(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.bound = 2**40
    commit, first = archive_compactor.commit, story.requests[0].root
    is_committed = threading.Event()

    def odd(log: Any, found: PartitionInWork, *arguments: Any) -> Any:
        if found.request.root == first:
            assert is_committed.wait(60)
            raise ZeroDivisionError
        number = commit(log, found, *arguments)
        is_committed.set()
        return number

    monkeypatch.setattr(archive_compactor, "commit", odd)
    with pytest.raises(ZeroDivisionError):
        story.compact()
    assert [found.request.root for found in story.committed] == [story.requests[1].root]


@pytest.mark.parametrize(("seconds", "is_committed"), [(50, True), (70, False)])
def test_a_store_that_does_not_answer_before_a_commit_is_asked_for_a_minute(
    seconds: int, is_committed: bool, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, require_newest = story.store.clock, CommitLog._require_newest
    silent_since: dict[CommitLog, float] = {}

    def silent(log: CommitLog, expected: Any) -> None:
        if clock.monotonic_s() < silent_since.setdefault(log, clock.monotonic_s()) + seconds:
            raise StoreUnavailable("no answer")
        require_newest(log, expected)

    monkeypatch.setattr(CommitLog, "_require_newest", silent)
    story.requests = story.requests[:1]
    (found,) = story.compact()
    assert (found.error is None) is is_committed
    assert story.unnamed() == set()


class Noting(LocalEngine):
    """Notes which tasks also write to the store."""

    def __init__(self) -> None:
        super().__init__()
        self.uploads: list[bool] = []

    def run(
        self, function: Callable[[Task], Answer], tasks: Sequence[Task], *, uploads: bool = False
    ) -> Generator[Answer]:
        self.uploads.append(uploads)
        yield from super().run(function, tasks, uploads=uploads)


def test_tasks_that_upload_segments_say_so(story: Story) -> None:
    """On a cluster they get a share of the limit for uploads."""
    engine = Noting()
    compactor = ArchiveCompactor(SETTINGS, engine, story.store.clock, story.staging, split_bytes=4096)
    assert all(found.error is None for found in compactor.compact(story.requests))
    assert any(engine.uploads)
