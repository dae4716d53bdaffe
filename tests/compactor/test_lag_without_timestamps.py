"""`min.compaction.lag.ms` of records without a timestamp: their file's last write counts, as in Kafka's cleaner."""

from __future__ import annotations

from pathlib import Path

from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from tests.compactor.before_upload_rig import rig
from tests.segment.made_logs import LEADER_EPOCH, NOW_MS, roll


def batch(offset: int, timestamp_ms: int) -> bytes:
    return build_batch([Record(offset, timestamp_ms, b"k", b"v%d" % offset, ())], leader_epoch=LEADER_EPOCH)


def generations(tmp_path: Path, timestamp_ms: int) -> set[int]:
    with rig(tmp_path, "orders-0", min_compaction_lag_ms=3_600_000) as site:
        # `roll` says that the files were written a minute ago: an hour has not passed.
        segments = {0: [batch(0, timestamp_ms), batch(1, timestamp_ms)], 2: [batch(2, timestamp_ms)], 3: []}
        roll(site.log_dir, segments, 3)
        site.round()
        site.compactor.cycle()
        site.round()
        return set(site.generations("orders-0"))


def test_young_records_with_a_timestamp_stay(tmp_path: Path) -> None:
    assert generations(tmp_path, NOW_MS - 60_000) == {0}


def test_young_records_without_a_timestamp_stay(tmp_path: Path) -> None:
    """Source: LogSegment.largestTimestamp, LogCleanerManager.cleanableOffsets."""
    assert generations(tmp_path, -1) == {0}
