"""By which strategy `before_upload` compacts where the archive's newest compaction was by another one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from sidecar.commits.archive_view import ArchiveView
from sidecar.commits.commit_log import CommitLog
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy, StrategyInUse
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.compactor.topic_counts import RawReason
from sidecar.compactor.topic_rule import TopicRule, TopicRules, strategy_refusal, topic_rule
from sidecar.config import CompactionSettings
from sidecar.host.archive_cache import SEGMENTS_KEPT, ArchiveCache
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.model import PartitionFiles
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.topic_policy import TopicPolicy
from tests.pipeline.archives import compactor, only_state, sound, use
from tests.pipeline.before_upload_rig import NOW_MS, Rig, rig, rounds_scan
from tests.pipeline.made_logs import LEADER_EPOCH, VERSION, records_in, roll

UNDECLARED = TopicPolicy(cleanup_policy=frozenset({"compact"}))
BY_OFFSET = replace(UNDECLARED, compaction_strategy="offset")
BY_HEADER = replace(UNDECLARED, compaction_strategy="header", compaction_strategy_header=VERSION)
HEADER = StrategyInUse("header", VERSION)


@dataclass
class Story:
    """Each wave is two segments with one key: its version 9, then its version 1, so that either may lose."""

    held: Rig
    told: TopicPolicy
    logs: list[Any]
    end_offset: int = 0

    def policy(self, _topic: str) -> TopicPolicy:
        return self.told

    def roll_two(self) -> None:
        directory = self.held.log_dir / "orders-0"
        for number in (9, 1):
            headers = ((VERSION, number.to_bytes(8, signed=True)),)
            record = Record(self.end_offset, NOW_MS - 5_000_000, b"key", b"%d" % self.end_offset, headers)
            path = directory / f"{self.end_offset:020d}.log"
            path.write_bytes(build_batch([record], leader_epoch=LEADER_EPOCH))
            os.utime(path, ns=((NOW_MS - 60_000) * 1_000_000,) * 2)
            self.end_offset += 1
            (directory / f"{self.end_offset:020d}.log").touch()
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (self.held.log_dir / name).write_text(f"0\n1\norders 0 {self.end_offset}\n")

    def wave(self, between: Callable[[str], None] = lambda _: None) -> set[int]:
        """Archive two more; the offsets that the archive has of them."""
        first = self.end_offset
        self.roll_two()
        between("before the round")
        self.held.round()
        between("before the copies")
        self.held.compactor.turn()
        between("before the commit")
        self.held.round()
        self.held.round()
        assert only_state(self.held.store).end_offset == self.end_offset
        return {
            found.offset for found in records_in(self.held.stored_logs("orders-0").values()) if found.offset >= first
        }

    def compact_archive(self) -> None:
        """As `compact --archive --strategy header --override` does."""
        rules = CompactionRules(NOW_MS, strategy=Strategy.HEADER, header=VERSION)
        root = only_state(self.held.store).lineage.root
        (result,) = compactor(self.held.store, self.held.copies.parent).compact([CompactionRequest(root, rules)])
        assert result.error is None

    def reasons(self) -> list[str]:
        return [line["reason"] for line in self.logs if line["event"] == "archived_without_compaction"]

    def warned(self) -> list[tuple[str, str, str, str]]:
        return [
            (line["log_level"], line["partition"], line["old"], line["new"])
            for line in self.logs
            if line["event"] == "compaction_changes_strategy" and "first_dirty_offset" not in line
        ]


@contextmanager
def story(tmp_path: Path, told: TopicPolicy) -> Iterator[Story]:
    with structlog.testing.capture_logs() as logs, rig(tmp_path, "orders-0") as held:
        roll(held.log_dir, {0: ()}, 0)
        found = Story(held, told, logs)
        held.waiting.rule_of = TopicRules(held.waiting.settings, found.policy).rule_of
        yield found


def test_a_default_does_not_change_the_strategy_of_groups_before(tmp_path: Path) -> None:
    """Also when the segments that tell the strategy are older than those that the process remembers."""
    with story(tmp_path, BY_HEADER) as told:
        assert told.wave() == {0}
        told.told = UNDECLARED
        for number in range(1, SEGMENTS_KEPT):
            assert told.wave() == {2 * number, 2 * number + 1}
        assert set(told.reasons()) == {"strategy_differs"}
        count = 2 * (SEGMENTS_KEPT - 1)
        assert told.held.waiting.raw.status() == {"orders": {str(RawReason.STRATEGY_DIFFERS): count}}
        details = {line["detail"] for line in told.logs if line["event"] == "archived_without_compaction"}
        assert all("strategy header 'version', this one would use offset" in detail for detail in details)
        assert told.warned() == []
        told.told = BY_HEADER
        assert told.wave() == {told.end_offset - 2}
        assert len(told.reasons()) == count
    sound(told.held.store)


@pytest.mark.parametrize("when", ["before the round", "before the copies", "before the commit", "at the last upload"])
def test_a_default_does_not_change_the_strategy_of_the_archive(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with story(tmp_path, UNDECLARED) as told:
        use(monkeypatch, told.held.store)
        assert told.wave() == {1}

        def compact(now: str) -> None:
            if now == when:
                told.compact_archive()
            elif (now, when) == ("before the commit", "at the last upload"):
                told.held.store.before = at_last

        uploads: list[str] = []

        def at_last(operation: str, key: str) -> None:
            if operation == "upload" and "/segments/" in key:
                uploads.append(key)
                if len(uploads) == 2:
                    told.compact_archive()

        assert told.wave(compact) == {2, 3}
        assert set(told.reasons()) == {"strategy_differs"}
        assert told.wave() == {4, 5}
        assert list(told.held.copies.iterdir()) == []
        assert told.held.tools.journal.count() == 0
    sound(told.held.store)


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_group_is_committed_to_the_archive_as_it_was_read_last(
    is_overtaken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telling the strategy may read the archive anew, right before the commit of a group."""
    opened: list[ArchiveView] = []
    newest_strategy, append = ArchiveView.newest_strategy, CommitLog.append
    appended: list[tuple[CommitLog, CommitLog]] = []

    def anew(known: ArchiveView, files: PartitionFiles) -> Any:
        known.forget()
        opened.append(known)
        return newest_strategy(known, files)

    def noted(log: CommitLog, *arguments: Any) -> Any:
        if opened:
            appended.append((log, opened[-1].opened()[1]))
        return append(log, *arguments)

    with story(tmp_path, BY_HEADER) as told:
        use(monkeypatch, told.held.store)
        told.wave()
        uploads: list[str] = []

        def at_last(operation: str, key: str) -> None:
            if operation == "upload" and "/segments/" in key:
                uploads.append(key)
                if len(uploads) == 1:
                    monkeypatch.setattr(ArchiveView, "newest_strategy", anew)
                    monkeypatch.setattr(CommitLog, "append", noted)
                    if is_overtaken:
                        told.compact_archive()
                        appended.clear()

        def between(now: str) -> None:
            if now == "before the commit":
                told.held.store.before = at_last

        assert told.wave(between) in ({2}, {2, 3})
        assert opened
        assert all(log is known for log, known in appended)
        assert told.held.tools.journal.count() == 0
        assert list(told.held.copies.iterdir()) == []
    sound(told.held.store)


def test_a_process_that_remembers_only_the_newest_segments_reads_by_which_strategy_the_others_were_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with story(tmp_path, UNDECLARED) as told:
        held = told.held
        use(monkeypatch, held.store)

        def restart() -> None:
            held.tools = replace(held.tools, memory=ArchiveCache(tmp_path / "state"))
            held.rounds = ArchiveLoop(held.tools, rounds_scan(held.log_dir), held.waiting)

        restart()
        told.wave()
        told.compact_archive()
        for _ in range(SEGMENTS_KEPT):
            told.wave()
        held.tools.memory.close()
        restart()
        assert told.wave() == {told.end_offset - 2, told.end_offset - 1}
        assert set(told.reasons()) == {"strategy_differs"}
        held.tools.memory.close()


def test_a_declared_strategy_is_used_and_the_change_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with story(tmp_path, BY_HEADER) as told:
        use(monkeypatch, told.held.store)
        assert told.wave() == {0}
        told.compact_archive()
        told.wave()  # Meets the commit of the compaction.
        assert told.warned() == []
        told.logs.clear()
        told.told = BY_OFFSET
        assert told.wave() == {5}
        assert told.wave() == {7}
        assert told.warned() == [("warning", "orders-0", "header 'version'", "offset")]
        assert told.reasons() == []
    sound(told.held.store)


@pytest.mark.parametrize(
    ("when", "reason"), [("before the copies", "strategy_differs"), ("at the last upload", "rule_changed")]
)
def test_a_strategy_that_is_not_declared_any_more_commits_no_copies(when: str, reason: str, tmp_path: Path) -> None:
    with story(tmp_path, BY_HEADER) as told:
        assert told.wave() == {0}
        told.told = BY_OFFSET
        uploads: list[str] = []

        def at_last(operation: str, key: str) -> None:
            if operation == "upload" and "/segments/" in key:
                uploads.append(key)
                if len(uploads) == 2:
                    told.told = UNDECLARED

        def change(now: str) -> None:
            if now == when:
                told.told = UNDECLARED
            elif (now, when) == ("before the commit", "at the last upload"):
                told.held.store.before = at_last

        assert told.wave(change) == {2, 3}
        assert set(told.reasons()) == {reason}
        assert list(told.held.copies.iterdir()) == []
        assert told.held.tools.journal.count() == 0
    sound(told.held.store)


def rule(told: TopicPolicy, **compaction: Any) -> TopicRule:
    return topic_rule(CompactionSettings.model_validate({"topics": ["orders"], **compaction}), "orders", told)


def test_only_a_declared_strategy_may_differ_from_that_of_the_newest_compaction() -> None:
    refusal = "the newest compaction used strategy header 'version', this one would use offset"
    assert strategy_refusal(rule(UNDECLARED), HEADER) == refusal
    assert strategy_refusal(rule(replace(UNDECLARED, compaction_strategy="header")), HEADER) == refusal
    assert strategy_refusal(rule(UNDECLARED), None) == ""
    assert strategy_refusal(rule(UNDECLARED), StrategyInUse("offset")) == ""
    assert strategy_refusal(rule(BY_OFFSET), HEADER) == ""
    assert strategy_refusal(rule(UNDECLARED, strategy="offset"), HEADER) == ""
    assert strategy_refusal(rule(BY_HEADER), StrategyInUse("header", "other")) == ""
