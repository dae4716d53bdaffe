"""The broker's cleaner took a tombstone before it was archived: the archive has a key that the topic has deleted, and says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from sidecar.broker.files import FileBrokerFacts
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archive, archived_states, copy_partitions, ranges, tools_for
from tests.segment.made_logs import LEADER_EPOCH, NOW_MS, roll

DELETE_RETENTION_MS = 80_000
"""The files are a minute old when the sidecar goes away."""


def batch(offset: int, key: bytes, value: bytes) -> bytes:
    return build_batch([Record(offset, NOW_MS - 90_000, key, value, ())], leader_epoch=LEADER_EPOCH)


def test_a_deleted_key_that_stays_in_the_archive_is_reported(tmp_path: Path) -> None:
    assert reported(tmp_path, away_ms=DELETE_RETENTION_MS + 1) == ["deletes_may_be_missing"] * 2


@pytest.mark.parametrize("retention_ms", [DELETE_RETENTION_MS, None])
def test_a_sidecar_that_was_away_for_less_has_seen_all_tombstones(tmp_path: Path, retention_ms: int | None) -> None:
    away_ms = DELETE_RETENTION_MS if retention_ms else 24 * 60 * 60 * 1000
    assert reported(tmp_path, away_ms, retention_ms) == []


def test_the_first_archive_of_a_cleaned_log_misses_no_tombstone(tmp_path: Path) -> None:
    assert reported(tmp_path, away_ms=DELETE_RETENTION_MS + 1, is_first=True) == []


def reported(
    tmp_path: Path, away_ms: int, retention_ms: int | None = DELETE_RETENTION_MS, *, is_first: bool = False
) -> list[str]:
    """Warnings about two cleaned segments, of which the first had the tombstone of a key that is archived."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    policies = [TopicPolicySettings(pattern="orders", cleanup_policy="compact", delete_retention_ms=retention_ms)]
    with tools_for(log_dir, store, tmp_path / "state") as context:
        context = replace(context, facts=FileBrokerFacts([log_dir], assume_leader=True, policies=policies))
        if not is_first:
            roll(log_dir, {0: [batch(0, b"k", b"alive")], 1: [batch(1, b"x", b"1")]}, 2)
            archive(context, log_dir, "orders")
        # The sidecar was away. k was deleted at offset 2, the cleaner took record 0, and after delete.retention.ms the tombstone.
        roll(log_dir, {0: [batch(1, b"x", b"1"), batch(3, b"y", b"2")], 4: [batch(5, b"z", b"3")], 6: []}, 6)
        (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 4\n")
        assert isinstance(context.clock, ManualClock)
        context.clock.advance_ms(away_ms)
        with structlog.testing.capture_logs() as logs:
            assert archive(context, log_dir, "orders").errors == []
            assert archive(context, log_dir, "orders").errors == []
    expected = [(0, 4), (4, 6)] if is_first else [(0, 1), (1, 4), (4, 6)]
    assert ranges(archived_states(store)["orders-0"]) == expected
    return [entry["event"] for entry in logs if entry["log_level"] == "warning"]
