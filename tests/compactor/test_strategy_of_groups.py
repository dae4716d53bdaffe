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
from tests.compactor.before_upload_rig import NOW_MS, Rig, rig, rounds_scan
from tests.runner.archives import compactor, log_of, only_state, sound, use
from tests.segment.made_logs import LEADER_EPOCH, VERSION, records_in, roll

UNDECLARED = TopicPolicy(cleanup_policy=frozenset({"compact"}))
BY_OFFSET = replace(UNDECLARED, compaction_strategy="offset")
BY_HEADER = replace(UNDECLARED, compaction_strategy="header", compaction_strategy_header=VERSION)
HEADER = StrategyInUse("header", VERSION)


@dataclass
class Story:
    """Each wave is two segments with one key: its version 9, then its version 1, so that either may lose."""

    site: Rig
    reported: TopicPolicy
    logs: list[Any]
    end_offset: int = 0

    def policy(self, _topic: str) -> TopicPolicy:
        return self.reported

    def roll_two(self) -> None:
        directory = self.site.log_dir / "orders-0"
        for number in (9, 1):
            headers = ((VERSION, number.to_bytes(8, signed=True)),)
            record = Record(self.end_offset, NOW_MS - 5_000_000, b"key", b"%d" % self.end_offset, headers)
            path = directory / f"{self.end_offset:020d}.log"
            path.write_bytes(build_batch([record], leader_epoch=LEADER_EPOCH))
            os.utime(path, ns=((NOW_MS - 60_000) * 1_000_000,) * 2)
            self.end_offset += 1
            (directory / f"{self.end_offset:020d}.log").touch()
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (self.site.log_dir / name).write_text(f"0\n1\norders 0 {self.end_offset}\n")

    def wave(self, between: Callable[[str], None] = lambda _: None) -> set[int]:
        """Archive two more; the offsets that the archive has of them."""
        first = self.end_offset
        self.roll_two()
        between("before the round")
        self.site.round()
        between("before the copies")
        self.site.compactor.cycle()
        between("before the commit")
        self.site.round()
        self.site.round()
        assert only_state(self.site.store).end_offset == self.end_offset
        return {
            found.offset for found in records_in(self.site.stored_logs("orders-0").values()) if found.offset >= first
        }

    def compact_archive(self) -> None:
        """As `compact --archive --strategy header --override` does."""
        rules = CompactionRules(NOW_MS, strategy=Strategy.HEADER, header=VERSION)
        root = only_state(self.site.store).lineage.root
        (result,) = compactor(self.site.store, self.site.copies.parent).compact([CompactionRequest(root, rules)])
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
def story(tmp_path: Path, reported: TopicPolicy) -> Iterator[Story]:
    with structlog.testing.capture_logs() as logs, rig(tmp_path, "orders-0") as site:
        roll(site.log_dir, {0: ()}, 0)
        found = Story(site, reported, logs)
        site.waiting.rule_of = TopicRules(site.waiting.settings, found.policy).rule_of
        yield found


def test_a_default_does_not_change_the_strategy_of_groups_before(tmp_path: Path) -> None:
    """Also when the segments that tell the strategy are older than those that the process remembers."""
    with story(tmp_path, BY_HEADER) as reported:
        assert reported.wave() == {0}
        reported.reported = UNDECLARED
        for number in range(1, SEGMENTS_KEPT):
            assert reported.wave() == {2 * number, 2 * number + 1}
        assert set(reported.reasons()) == {"strategy_differs"}
        count = 2 * (SEGMENTS_KEPT - 1)
        assert reported.site.waiting.raw.status() == {"orders": {str(RawReason.STRATEGY_DIFFERS): count}}
        details = {line["detail"] for line in reported.logs if line["event"] == "archived_without_compaction"}
        assert all("strategy header 'version', this one would use offset" in detail for detail in details)
        assert reported.warned() == []
        reported.reported = BY_HEADER
        assert reported.wave() == {reported.end_offset - 2}
        assert len(reported.reasons()) == count
    sound(reported.site.store)


@pytest.mark.parametrize("when", ["before the round", "before the copies", "before the commit", "at the last upload"])
def test_a_default_does_not_change_the_strategy_of_the_archive(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with story(tmp_path, UNDECLARED) as reported:
        use(monkeypatch, reported.site.store)
        assert reported.wave() == {1}

        def compact(now: str) -> None:
            if now == when:
                reported.compact_archive()
            elif (now, when) == ("before the commit", "at the last upload"):
                reported.site.store.before = at_last

        uploads: list[str] = []

        def at_last(operation: str, key: str) -> None:
            if operation == "upload" and "/segments/" in key:
                uploads.append(key)
                if len(uploads) == 2:
                    reported.compact_archive()

        assert reported.wave(compact) == {2, 3}
        assert set(reported.reasons()) == {"strategy_differs"}
        assert reported.wave() == {4, 5}
        assert list(reported.site.copies.iterdir()) == []
        assert reported.site.context.journal.count() == 0
    sound(reported.site.store)


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

    with story(tmp_path, BY_HEADER) as reported:
        use(monkeypatch, reported.site.store)
        reported.wave()
        uploads: list[str] = []

        def at_last(operation: str, key: str) -> None:
            if operation == "upload" and "/segments/" in key:
                uploads.append(key)
                if len(uploads) == 1:
                    monkeypatch.setattr(ArchiveView, "newest_strategy", anew)
                    monkeypatch.setattr(CommitLog, "append", noted)
                    if is_overtaken:
                        reported.compact_archive()
                        appended.clear()

        def between(now: str) -> None:
            if now == "before the commit":
                reported.site.store.before = at_last

        assert reported.wave(between) in ({2}, {2, 3})
        assert opened
        assert all(log is known for log, known in appended)
        assert reported.site.context.journal.count() == 0
        assert list(reported.site.copies.iterdir()) == []
    sound(reported.site.store)


def test_a_process_that_remembers_only_the_newest_segments_reads_by_which_strategy_the_others_were_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with story(tmp_path, UNDECLARED) as reported:
        site = reported.site
        use(monkeypatch, site.store)

        def restart() -> None:
            site.context = replace(site.context, memory=ArchiveCache(tmp_path / "state"))
            site.rounds = ArchiveLoop(site.context, rounds_scan(site.log_dir), site.waiting)

        restart()
        reported.wave()
        reported.compact_archive()
        for _ in range(SEGMENTS_KEPT):
            reported.wave()
        site.context.memory.close()
        restart()
        assert reported.wave() == {reported.end_offset - 2, reported.end_offset - 1}
        assert set(reported.reasons()) == {"strategy_differs"}
        site.context.memory.close()


def test_a_declared_strategy_is_used_and_the_change_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with story(tmp_path, BY_HEADER) as reported:
        use(monkeypatch, reported.site.store)
        assert reported.wave() == {0}
        reported.compact_archive()
        reported.wave()  # Meets the commit of the compaction.
        assert reported.warned() == []
        reported.logs.clear()
        reported.reported = BY_OFFSET
        assert reported.wave() == {5}
        assert reported.wave() == {7}
        assert reported.warned() == [("warning", "orders-0", "header 'version'", "offset")]
        assert reported.reasons() == []
    sound(reported.site.store)


@pytest.mark.parametrize(
    ("when", "reason"), [("before the copies", "strategy_differs"), ("at the last upload", "rule_changed")]
)
def test_a_strategy_that_is_not_declared_any_more_commits_no_copies(when: str, reason: str, tmp_path: Path) -> None:
    with story(tmp_path, BY_HEADER) as reported:
        assert reported.wave() == {0}
        reported.reported = BY_OFFSET
        uploads: list[str] = []

        def at_last(operation: str, key: str) -> None:
            if operation == "upload" and "/segments/" in key:
                uploads.append(key)
                if len(uploads) == 2:
                    reported.reported = UNDECLARED

        def change(now: str) -> None:
            if now == when:
                reported.reported = UNDECLARED
            elif (now, when) == ("before the commit", "at the last upload"):
                reported.site.store.before = at_last

        assert reported.wave(change) == {2, 3}
        assert set(reported.reasons()) == {reason}
        assert list(reported.site.copies.iterdir()) == []
        assert reported.site.context.journal.count() == 0
    sound(reported.site.store)


def rule(reported: TopicPolicy, **compaction: Any) -> TopicRule:
    return topic_rule(CompactionSettings.model_validate({"topics": ["orders"], **compaction}), "orders", reported)


def test_only_a_declared_strategy_may_differ_from_that_of_the_newest_compaction() -> None:
    refusal = "the newest compaction used strategy header 'version', this one would use offset"
    assert strategy_refusal(rule(UNDECLARED), HEADER) == refusal
    assert strategy_refusal(rule(replace(UNDECLARED, compaction_strategy="header")), HEADER) == refusal
    assert strategy_refusal(rule(UNDECLARED), None) == ""
    assert strategy_refusal(rule(UNDECLARED), StrategyInUse("offset")) == ""
    assert strategy_refusal(rule(BY_OFFSET), HEADER) == ""
    assert strategy_refusal(rule(UNDECLARED, strategy="offset"), HEADER) == ""
    assert strategy_refusal(rule(BY_HEADER), StrategyInUse("header", "other")) == ""


def test_a_group_that_meets_a_missing_commit_is_archived_as_it_is_and_compacted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the commit is back. Its copies do not wait for that on the disk of the sidecar."""
    with story(tmp_path, BY_HEADER) as reported:
        store = reported.site.store
        assert reported.wave() == {0}
        missing: dict[str, tuple[bytes, object]] = {}

        def lose(now: str) -> None:
            if now == "before the commit":
                newest = max(key for key in store.objects if "/commits/" in key)
                missing[newest] = store.objects.pop(newest)
                (error,) = reported.site.round().errors
                assert "is missing, although this sidecar" in str(error)
                assert list(reported.site.copies.iterdir()) == []
                store.objects |= missing

        assert reported.wave(lose) == {2, 3}, "nothing is lost"
        assert set(reported.reasons()) == {"group_refused"}
        use(monkeypatch, store)
        reported.compact_archive()
        state = only_state(store)
        kept = records_in(log_of(store, state, segment) for segment in state.segments)
        assert {found.offset for found in kept} == {2}, "the newest of those with version 9"
    sound(reported.site.store)
