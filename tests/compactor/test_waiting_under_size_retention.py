"""`before_upload`: what the broker deletes soon waits for no compaction, whatever it is deleted for; what waits is not pinned.

Source: UnifiedLog.deleteRetentionSizeBreachedSegments, deleteRetentionMsBreachedSegments.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.compactor.topic_counts import RawReason
from sidecar.model import SegmentFiles
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.segment.local_disk import LocalDisk
from sidecar.topic_policy import TopicPolicy
from tests.compactor.before_upload_rig import DELAY_MS, NOW_MS, Rig, rounds_scan
from tests.compactor.test_raw_uploads import observed, require
from tests.fakes.manual_clock import ManualClock
from tests.runner.rig import rolled_ranges


def loop_with(site: Rig, **limits: int) -> ArchiveLoop:
    class Limited(FileBrokerFacts):
        def policy(self, topic: str) -> TopicPolicy:
            return TopicPolicy(cleanup_policy=frozenset({"compact", "delete"}), **limits)  # type: ignore[arg-type]

    facts = Limited([site.log_dir], assume_leader=True, clock=site.context.clock)
    return ArchiveLoop(replace(site.context, facts=facts), rounds_scan(site.log_dir), site.waiting)


def test_segments_that_the_broker_deletes_because_the_log_is_too_large(tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0") as (site, logs):
        loop_with(site, retention_bytes=1).run_once()
        require(site, logs, "compacted", RawReason.RETENTION_NEAR, len(rolled_ranges(site.log_dir, "compacted-0")))


def test_segments_that_the_broker_deletes_because_their_records_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files are new: records were copied with their timestamps."""
    monkeypatch.setattr(LocalDisk, "largest_timestamp_ms", lambda *_: NOW_MS - 1_000_000)
    with observed(tmp_path, "compacted-0") as (site, logs):
        loop_with(site, retention_ms=900_000).run_once()
        require(site, logs, "compacted", RawReason.RETENTION_NEAR, len(rolled_ranges(site.log_dir, "compacted-0")))


def test_a_plan_is_made_again_when_half_of_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalDisk, "largest_timestamp_ms", lambda _, segment: segment.log.mtime_ms)
    with observed(tmp_path, "compacted-0", max_upload_delay_ms=100 * DELAY_MS) as (site, logs):
        clock = site.context.clock
        assert isinstance(clock, ManualClock)
        for path in (site.log_dir / "compacted-0").iterdir():
            os.utime(path, ns=((clock.now_ms() - 60_000) * 1_000_000,) * 2)
        loop = loop_with(site, retention_ms=2 * DELAY_MS)
        (outcome,) = loop.run_once().outcomes
        assert (outcome.recheck_in_ms, site.waiting.raw.status()) == (DELAY_MS - 60_000, {})
        clock.advance_ms(DELAY_MS - 60_000)
        loop.run_once()
        require(site, logs, "compacted", RawReason.RETENTION_NEAR, len(rolled_ranges(site.log_dir, "compacted-0")))


@pytest.mark.parametrize("at_risk", [0, 1, 700, 1000])
def test_few_deadlines_are_asked_for_in_a_long_backlog(at_risk: int, tmp_path: Path) -> None:
    with observed(tmp_path, "compacted-0") as (site, _):
        segment, asked = rounds_scan(site.log_dir)().partitions[0].segments[0], list[int]()
        backlog = [replace(segment, base_offset=offset, end_offset=offset + 1) for offset in range(1000)]

        def deadline_of(found: SegmentFiles) -> int:
            asked.append(found.base_offset)
            return 0 if found.base_offset < at_risk else 2 * site.context.clock.now_ms()

        end_offset, _ = site.waiting._at_risk(backlog, deadline_of)
    assert end_offset == (at_risk or -1)
    assert len(asked) < 15
