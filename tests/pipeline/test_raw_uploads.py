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
from sidecar.compactor.candidate_queue import Compacting
from sidecar.compactor.topic_counts import RawReason, RawUploads
from sidecar.compactor.wiring import compaction_in_run
from sidecar.config import Settings
from sidecar.engine_ports import StageEngine
from sidecar.errors import SidecarError
from sidecar.metrics import Metrics
from sidecar.model import SegmentFiles
from sidecar.rewriting.local_stages import LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.topic_policy import TopicPolicy
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.pipeline.before_upload_rig import DELAY_MS, HANGS, NOW_MS, Rig, rig, rounds_scan
from tests.pipeline.rig import archived_states, copy_partitions, rolled_ranges, tools_for

WAIT_S = 120.0


@contextmanager
def observed(tmp_path: Path, *partitions: str, **settings: Any) -> Iterator[tuple[Rig, list[dict[str, Any]]]]:
    with structlog.testing.capture_logs() as logs, rig(tmp_path, *partitions, **settings) as held:
        yield held, logs


def require(held: Rig, logs: list[dict[str, Any]], topic: str, reason: RawReason, segments: int) -> None:
    """Log and status say it, and say it once."""
    reported = [line for line in logs if line["event"] == "archived_without_compaction"]
    assert {line["reason"] for line in reported} == {str(reason)}
    assert sum(line["segments"] for line in reported) == segments
    assert {line["log_level"] for line in reported} == {"error" if reason is RawReason.COMPACTION_FAILED else "warning"}
    assert all(line["detail"] and line["effect"] and line["remedy"] for line in reported)
    assert held.waiting.raw.status() == {topic: {str(reason): segments}}


def test_whoever_has_waited_for_too_long(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0") as (held, logs):
        held.round()
        clock = held.tools.clock
        assert isinstance(clock, ManualClock)
        clock.advance_ms(DELAY_MS)
        held.round()
        held.round()
        require(held, logs, "compacted", RawReason.DELAY_OVER, len(rolled_ranges(held.log_dir, "compacted-0")))


def test_a_topic_that_never_waits(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0", max_upload_delay_ms=0) as (held, logs):
        held.round()
        require(held, logs, "compacted", RawReason.DELAY_OVER, len(rolled_ranges(held.log_dir, "compacted-0")))


def test_segments_that_the_broker_deletes_soon(tmp_path: Path) -> None:
    class KeepsForASecond(FileBrokerFacts):
        def policy(self, topic: str) -> TopicPolicy:
            return TopicPolicy(cleanup_policy=frozenset({"delete"}), retention_ms=1000)

    with observed(tmp_path, "compacted-0") as (held, logs):
        for path in (held.log_dir / "compacted-0").iterdir():
            os.utime(path, ns=((NOW_MS - 60_000) * 1_000_000,) * 2)
        facts = KeepsForASecond([held.log_dir], assume_leader=True, clock=held.tools.clock)
        ArchiveLoop(replace(held.tools, facts=facts), rounds_scan(held.log_dir), held.waiting).run_once()
        require(held, logs, "compacted", RawReason.RETENTION_NEAR, len(rolled_ranges(held.log_dir, "compacted-0")))


def test_a_segment_that_no_job_can_hold(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0") as (held, logs):
        held.waiting.settings = held.waiting.settings.model_copy(update={"max_job_bytes": 1})
        held.round()
        require(held, logs, "compacted", RawReason.TOO_LARGE, len(rolled_ranges(held.log_dir, "compacted-0")))


def test_records_that_are_too_young(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0", min_compaction_lag_ms=10**12) as (held, logs):
        held.round()
        held.compactor.turn()
        held.round()
        require(held, logs, "compacted", RawReason.TOO_YOUNG, len(rolled_ranges(held.log_dir, "compacted-0")))


def test_a_transaction_that_has_not_ended(tmp_path: Path) -> None:
    with observed(tmp_path, "transactions-0") as (held, logs):
        held.round()
        held.compactor.turn()
        open_ones = [
            span for span in rolled_ranges(held.log_dir, "transactions-0") if span[1] > HANGS["transactions-0"]
        ]
        assert open_ones
        require(held, logs, "transactions", RawReason.OPEN_TRANSACTION, len(open_ones))


def test_an_engine_that_fails(tmp_path: Path) -> None:
    class Broken:
        def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
            raise SidecarError("no Java")

    with observed(tmp_path, "compacted-0", engines=Broken()) as (held, logs):
        held.round()
        held.compactor.turn()
        require(held, logs, "compacted", RawReason.COMPACTION_FAILED, len(rolled_ranges(held.log_dir, "compacted-0")))
        assert any(line.get("detail", "").endswith("no Java") for line in logs)


def test_a_group_that_is_broken_up(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0") as (held, logs):
        held.round()
        held.compactor.turn()
        (group,) = {found.group for found in held.waiting._held[next(iter(held.waiting._held))].values() if found.group}
        held.waiting.break_up(group, RawReason.GROUP_REFUSED, "the commit would be too large")
        require(held, logs, "compacted", RawReason.GROUP_REFUSED, len(group.segments))


def test_a_segment_that_has_gone_while_its_group_was_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with observed(tmp_path, "compacted-0") as (held, logs):
        held.round()
        compact, sizes = held.compactor._compact, list[int]()

        def late(looked: Any) -> None:
            segments = looked[0][0].segments
            sizes.append(len(segments))
            held.waiting.goes_raw(segments[:1], RawReason.RETENTION_NEAR)
            compact(looked)

        monkeypatch.setattr(held.compactor, "_compact", late)
        held.compactor.turn()
        reported = {line["reason"]: line["segments"] for line in logs if line["event"] == "archived_without_compaction"}
        assert reported == {"retention_near": 1, "group_changed": sizes[0] - 1}
        assert list(held.copies.iterdir()) == []


def test_what_compaction_leaves_as_it_is_is_no_fallback(tmp_path: Path) -> None:
    with observed(tmp_path, "single-0", "orders-0") as (held, logs):
        for _ in range(3):
            held.round()
            held.compactor.turn()
        assert [line for line in logs if line["event"] == "archived_without_compaction"] == []
        assert held.waiting.raw.status() == {}


def test_nothing_goes_raw_because_the_process_stops(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0") as (held, logs):
        held.round()
        held.compactor.is_stopping = lambda: True
        assert not held.compactor.turn()
        held.round()
        assert archived_states(held.store) == {}
        assert held.waiting.raw.status() == {}
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
        assert all(isinstance(one, Compacting) for one in work)
        return for_ever(work)

    monkeypatch.setattr(archive_job, "ArchiveJobs", lambda *_: compact)
    with tools_for(log_dir, store, tmp_path / "state", producer_id_expiration_ms=None) as tools:
        running = replace(tools, clock=SystemClock())
        with compaction_in_run(settings, running, LocalEngines(), shown.append, wake=woken.set) as compaction:
            rounds = ArchiveLoop(tools, rounds_scan(log_dir), compaction.before_upload)
            report = rounds.run_once()
            compaction.offer(report.led)
            assert begun.wait(WAIT_S)
            assert woken.wait(WAIT_S)
            rounds.run_once()
            compaction.require_sound()
            ends.set()
        exposed, _ = tools.metrics.exposition()
    generations = [segment.generation for segment in archived_states(store)["compacted-0"].segments]
    assert 1 in generations
    assert re.search(rb'compaction_uncompacted_segments_total\{reason="open_transaction"\} [1-9]', exposed)
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
