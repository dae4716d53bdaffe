"""The executor of copy tasks: in which order it does what a task asks for, and whose fault an error is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.archive.state import PartitionState
from sidecar.broker.files import FileBrokerFacts
from sidecar.commits.commit_log import CommitLog
from sidecar.errors import CorruptFile, StagingFull
from sidecar.host.journal import Journal
from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.runner import copy_executor
from sidecar.runner.context import RunContext
from tests.fakes.memory_store import MemoryStore
from tests.retention.test_pinned_logs import Answering, listed, planned_and_held
from tests.runner.one_partition import archived, planned
from tests.runner.rig import (
    archive,
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    tools_for,
)

AHEAD = 3
"""The default of the settings: with fewer, nothing is read between an upload and its commit."""


class Watched:
    """What happens, in its order. `deposed_at`: the broker loses the leadership while this segment is read."""

    def __init__(self, log_dir: Path) -> None:
        self.facts = FileBrokerFacts([log_dir], assume_leader=True)
        self.done: list[str] = []
        self.deposed_at: int | None = None
        self.stop_at_confirmation = 0
        self.context: RunContext | None = None
        self._is_deposed = False

    def __getattr__(self, name: str) -> object:
        return getattr(self.facts, name)

    def confirm(self, files: PartitionFiles) -> PartitionFacts:
        self.done.append("confirm")
        if self.context is not None and self.done.count("confirm") == self.stop_at_confirmation:
            self.context.stop.set()
        return replace(self.facts.confirm(files), leads=not self._is_deposed)

    def prepares(self, segment: SegmentFiles) -> None:
        self.done.append(f"prepare {segment.base_offset}")
        self._is_deposed = self._is_deposed or segment.base_offset == self.deposed_at


@contextmanager
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Watched, RunContext, Path]]:
    log_dir = copy_partitions(tmp_path, "orders-0")
    found, prepare, append = Watched(log_dir), copy_executor.prepare_segment, CommitLog.append

    def prepared(
        context: RunContext, files: PartitionFiles, archived: PartitionState, segment: SegmentFiles, *given: object
    ) -> object:
        found.prepares(segment)
        return prepare(context, files, archived, segment, *given)  # type: ignore[arg-type]

    def appended(self: CommitLog, *given: object) -> object:
        found.done.append("append")
        return append(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(copy_executor, "prepare_segment", prepared)
    monkeypatch.setattr(CommitLog, "append", appended)
    with tools_for(log_dir, MemoryStore(), tmp_path / "state", uploads_ahead=AHEAD) as context:
        found.context = replace(context, facts=found)  # type: ignore[arg-type]
        yield found, found.context, log_dir


def test_nothing_is_done_between_a_confirmed_leadership_and_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(tmp_path, monkeypatch) as (found, context, log_dir):
        assert archive(context, log_dir).errors == []
    appended = [number for number, what in enumerate(found.done) if what == "append"]
    assert len(appended) > AHEAD
    assert all(found.done[number - 1] == "confirm" for number in appended), found.done


def test_a_leader_that_is_deposed_while_a_segment_is_read_commits_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(tmp_path, monkeypatch) as (found, context, log_dir):
        found.deposed_at = 504
        (error,) = archive(context, log_dir).errors
    assert type(error).__name__ == "Fenced"
    assert "append" not in found.done[found.done.index("prepare 504") :]


def test_no_segment_is_read_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(tmp_path, monkeypatch) as (found, context, log_dir):
        found.stop_at_confirmation = 2
        assert archive(context, log_dir).errors == []
    second = [number for number, what in enumerate(found.done) if what == "confirm"][1]
    assert found.done[second + 1] == "append", "what is uploaded is committed"
    assert not any(what.startswith("prepare") for what in found.done[second:]), found.done


def test_a_snapshot_that_cannot_be_read_is_no_fault_of_the_segment_above_it(tmp_path: Path) -> None:
    """Retention has taken the segment: its descriptor is the only copy, and must not be given up for damage elsewhere."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=AHEAD) as made:
        facts = Answering(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0)
        context = replace(made, facts=facts)
        archiver, files = planned_and_held(context, log_dir)
        plan = planned(context, archiver, files)
        first, second = plan.segments[:2]
        assert archived(context, archiver, replace(plan, segments=(first,))).error is None
        archiver.known.forget()
        (key,) = [key for key in store.objects if key.endswith(".indexes")]
        good = store.objects[key]
        remove_offsets(files.directory, lambda offset: offset >= second.end_offset)
        facts.cluster_start_offset = second.end_offset
        plan = planned(context, archiver, listed(log_dir))
        assert plan.segments[0] == second
        store.damage(key, lambda body: bytes(byte ^ 0xFF for byte in body))
        failed = archived(context, archiver, plan)
        assert isinstance(failed.error, CorruptFile)
        assert failed.unprepared is None
        store.damage(key, lambda _body: good)
        again = planned(context, archiver, listed(log_dir))
        assert (again.hole, again.segments[0]) == (None, second)
        assert archived(context, archiver, again).error is None
        assert ranges(archived_states(store)["orders-0"])[1] == (second.base_offset, second.end_offset)
        context.pinned.release()


@pytest.mark.parametrize("step", ["begin", "log_uploaded", "committing", "end"])
def test_a_full_disk_of_the_journal_loses_nothing_at_any_step(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal cannot be written once: what a commit names stays, what none names goes, and the next task goes on."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    write, calls = getattr(Journal, step), []

    def full_once(self: Journal, *given: object) -> None:
        calls.append(given)
        if len(calls) == 2:
            raise StagingFull("no room")
        write(self, *given)

    monkeypatch.setattr(Journal, step, full_once)
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=AHEAD) as context:
        (error,) = archive(context, log_dir).errors
        assert isinstance(error, StagingFull)
        for segment in archived_states(store)["orders-0"].segments:
            assert any(segment.segment_id in key for key in store.objects), f"{segment} is committed, and gone"
        assert archive(context, log_dir).errors == []
        assert context.journal.count() == 0
    state = archived_states(store)["orders-0"]
    assert ranges(state) == rolled_ranges(log_dir, "orders-0")
    live = {segment.segment_id for segment in state.segments}
    assert {key for key in store.objects if "/segments/" in key and not any(name in key for name in live)} == set()
