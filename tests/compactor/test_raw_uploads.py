"""Segments of topics with `before_upload` that go without compaction: each case has a reason in log, metrics and `/status`."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from sidecar.broker.files import FileBrokerFacts
from sidecar.clock import SystemClock
from sidecar.compactor import archive_job
from sidecar.compactor.candidate_queue import Candidate
from sidecar.compactor.topic_counts import RawReason, RawUploads
from sidecar.compactor.wiring import wire_compaction
from sidecar.config import Settings
from sidecar.engine_ports import StageEngine
from sidecar.errors import SidecarError
from sidecar.metrics import Metrics
from sidecar.model import SegmentFiles
from sidecar.rewriting.local_engine import LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.topic_policy import TopicPolicy
from tests.compactor.before_upload_rig import DELAY_MS, HANGS, NOW_MS, Rig, rig, rounds_scan
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archived_states, copy_partitions, rolled_ranges, tools_for

WAIT_S = 120.0


@contextmanager
def observed(tmp_path: Path, *partitions: str, **settings: Any) -> Iterator[tuple[Rig, list[dict[str, Any]]]]:
    with structlog.testing.capture_logs() as logs, rig(tmp_path, *partitions, **settings) as site:
        yield site, logs


def require(site: Rig, logs: list[dict[str, Any]], topic: str, reason: RawReason, segments: int) -> None:
    """Log and status say it, and say it once."""
    reported = [line for line in logs if line["event"] == "archived_without_compaction"]
    assert {line["reason"] for line in reported} == {str(reason)}
    assert sum(line["segments"] for line in reported) == segments
    assert {line["log_level"] for line in reported} == {"error" if reason is RawReason.COMPACTION_FAILED else "warning"}
    assert all(line["detail"] and line["effect"] and line["remedy"] for line in reported)
    assert site.waiting.raw.status() == {topic: {str(reason): segments}}


def test_whoever_has_waited_for_too_long(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0") as (site, logs):
        site.round()
        clock = site.context.clock
        assert isinstance(clock, ManualClock)
        clock.advance_ms(DELAY_MS)
        site.round()
        site.round()
        require(site, logs, "compacted", RawReason.DELAY_OVER, len(rolled_ranges(site.log_dir, "compacted-0")))


def test_a_topic_that_never_waits(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0", max_upload_delay_ms=0) as (site, logs):
        site.round()
        require(site, logs, "compacted", RawReason.DELAY_OVER, len(rolled_ranges(site.log_dir, "compacted-0")))


def test_segments_that_the_broker_deletes_soon(tmp_path: Path) -> None:
    class KeepsForASecond(FileBrokerFacts):
        def policy(self, topic: str) -> TopicPolicy:
            return TopicPolicy(cleanup_policy=frozenset({"delete"}), retention_ms=1000)

    with observed(tmp_path, "compacted-0") as (site, logs):
        for path in (site.log_dir / "compacted-0").iterdir():
            os.utime(path, ns=((NOW_MS - 60_000) * 1_000_000,) * 2)
        facts = KeepsForASecond([site.log_dir], assume_leader=True, clock=site.context.clock)
        ArchiveLoop(replace(site.context, facts=facts), rounds_scan(site.log_dir), site.waiting).run_once()
        require(site, logs, "compacted", RawReason.RETENTION_NEAR, len(rolled_ranges(site.log_dir, "compacted-0")))


def test_a_segment_that_no_job_can_hold(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0") as (site, logs):
        site.waiting.settings = site.waiting.settings.model_copy(update={"max_job_bytes": 1})
        site.round()
        require(site, logs, "compacted", RawReason.TOO_LARGE, len(rolled_ranges(site.log_dir, "compacted-0")))


def test_records_that_are_too_young(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0", min_compaction_lag_ms=10**12) as (site, logs):
        site.round()
        site.compactor.cycle()
        site.round()
        require(site, logs, "compacted", RawReason.TOO_YOUNG, len(rolled_ranges(site.log_dir, "compacted-0")))


def test_a_transaction_that_has_not_ended(tmp_path: Path) -> None:
    with observed(tmp_path, "transactions-0") as (site, logs):
        site.round()
        site.compactor.cycle()
        open_ones = [
            span for span in rolled_ranges(site.log_dir, "transactions-0") if span[1] > HANGS["transactions-0"]
        ]
        assert open_ones
        require(site, logs, "transactions", RawReason.OPEN_TRANSACTION, len(open_ones))


def test_an_engine_that_fails(tmp_path: Path) -> None:
    class Broken:
        def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
            raise SidecarError("no Java")

    with observed(tmp_path, "compacted-0", engines=Broken()) as (site, logs):
        site.round()
        site.compactor.cycle()
        require(site, logs, "compacted", RawReason.COMPACTION_FAILED, len(rolled_ranges(site.log_dir, "compacted-0")))
        assert any(line.get("detail", "").endswith("no Java") for line in logs)


def test_a_group_that_is_broken_up(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0") as (site, logs):
        site.round()
        site.compactor.cycle()
        (group,) = {
            found.group for found in site.waiting._blocked[next(iter(site.waiting._blocked))].values() if found.group
        }
        site.waiting.break_up(group, RawReason.GROUP_REFUSED, "the commit would be too large")
        require(site, logs, "compacted", RawReason.GROUP_REFUSED, len(group.segments))


def test_a_segment_that_has_gone_while_its_group_was_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with observed(tmp_path, "compacted-0") as (site, logs):
        site.round()
        compact, sizes = site.compactor._compact, list[int]()

        def late(looked: Any) -> None:
            segments = looked[0][0].segments
            sizes.append(len(segments))
            site.waiting.goes_raw(segments[:1], RawReason.RETENTION_NEAR)
            compact(looked)

        monkeypatch.setattr(site.compactor, "_compact", late)
        site.compactor.cycle()
        reported = {line["reason"]: line["segments"] for line in logs if line["event"] == "archived_without_compaction"}
        assert reported == {"retention_near": 1, "group_changed": sizes[0] - 1}
        assert list(site.copies.iterdir()) == []


def test_what_compaction_leaves_as_it_is_is_no_fallback(tmp_path: Path) -> None:
    with observed(tmp_path, "single-0", "orders-0") as (site, logs):
        for _ in range(3):
            site.round()
            site.compactor.cycle()
        assert [line for line in logs if line["event"] == "archived_without_compaction"] == []
        assert site.waiting.raw.status() == {}


def test_nothing_goes_raw_because_the_process_stops(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0") as (site, logs):
        site.round()
        site.compactor.is_stopping = lambda: True
        assert not site.compactor.cycle()
        site.round()
        assert archived_states(site.store) == {}
        assert site.waiting.raw.status() == {}
        assert not [line for line in logs if line["event"] == "archived_without_compaction"]


def test_no_segment_is_nothing() -> None:
    raw, segments = RawUploads(), list[SegmentFiles]()
    raw.note(segments, RawReason.DELAY_OVER)
    assert raw.status() == {}


def test_groups_do_not_wait_for_a_compaction_of_the_archive_and_status_and_metrics_have_the_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive's compaction never ends here; the copies are made and archived all the same."""
    topics = [
        "orders",
        {"pattern": "compacted", "when": "before_upload"},
        {"pattern": "transactions", "when": "before_upload"},
    ]
    settings = Settings.model_validate(
        {
            "store": {"url": str(tmp_path / "archive")},
            "gc": {"enabled": False},
            "compaction": {"check_interval_s": 0.01, "min_cleanable_dirty_ratio": 0, "topics": topics},
        }
    )
    log_dir, store = copy_partitions(tmp_path, "orders-0", "compacted-0", "transactions-0"), MemoryStore()
    begun, ends, woken = threading.Event(), threading.Event(), threading.Event()
    shown: list[Any] = []

    def for_ever(_work: Any) -> Iterator[Any]:
        begun.set()
        assert ends.wait(WAIT_S)
        yield from ()

    def compact(work: Any) -> Iterator[Any]:
        assert all(isinstance(one, Candidate) for one in work)
        return for_ever(work)

    def is_done() -> bool:
        found = archived_states(store).get("compacted-0")
        generations = [] if found is None else [segment.generation for segment in found.segments]
        counted = rb'compaction_uncompacted_segments_total\{reason="open_transaction"\} [1-9]'
        return 1 in generations and re.search(counted, context.metrics.exposition()[0]) is not None

    monkeypatch.setattr(archive_job, "ArchiveJobs", lambda *_: compact)
    with tools_for(log_dir, store, tmp_path / "state", producer_id_expiration_ms=None) as context:
        running = replace(context, clock=SystemClock())
        with wire_compaction(settings, running, LocalEngines(), shown.append, wake=woken.set) as compaction:
            rounds = ArchiveLoop(context, rounds_scan(log_dir), compaction.before_upload)
            report = rounds.run_once()
            compaction.offer(report.led)
            assert begun.wait(WAIT_S)
            # The groups may be compacted together, or one after the other.
            while not is_done():
                assert woken.wait(WAIT_S)
                woken.clear()
                rounds.run_once()
            compaction.require_sound()
            ends.set()
    assert set(shown[-1]["archived_without_compaction"]["transactions"]) == {"open_transaction"}


@pytest.mark.parametrize("reason", RawReason)
def test_every_reason_is_logged_counted_and_shown(reason: RawReason, tmp_path: Path) -> None:
    (files,) = rounds_scan(copy_partitions(tmp_path, "orders-0"))().partitions
    metrics = Metrics(ManualClock(NOW_MS))
    raw = RawUploads(count=metrics.compaction.went_uncompacted)
    with structlog.testing.capture_logs() as logs:
        raw.note(files.segments[:2], reason, "so it is")
    (line,) = logs
    assert (line["event"], line["partition"], line["reason"]) == ("archived_without_compaction", "orders-0", reason)
    assert line["log_level"] == ("error" if reason is RawReason.COMPACTION_FAILED else "warning")
    assert line["detail"].endswith(": so it is")
    assert all((line["detail"].partition(":")[0], line["effect"], line["remedy"]))
    name = "tiered_sidecar_compaction_uncompacted_segments_total"
    assert metrics.registry.get_sample_value(name, {"reason": str(reason)}) == 2
    assert raw.status() == {"orders": {str(reason): 2}}
