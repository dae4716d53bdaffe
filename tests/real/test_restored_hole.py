"""Offsets inside of a log are lost; what brokers make of the markers that a restore writes there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.metadata_files import read_partition_metadata
from sidecar.logformat.names import CLEANER_CHECKPOINT, PARTITION_METADATA
from sidecar.model import TopicPartition
from sidecar.restore.request import LeaderEpochMode, OpenTransactionMode, RestoreRequest
from sidecar.restore.restore import restore
from tests.real.reading_back import reads
from tests.real.topics import create_topic, set_topic, wait_until
from tests.restore.hole_log import COMMITTED, COMMITTED_OFFSET, END, KEY, archived_with_hole
from tests.servers.kafka import KafkaBroker

pytestmark = [pytest.mark.real, pytest.mark.slow]

PARTITION = ("t", 0)
PROPERTIES = {"log.retention.ms": "-1", "log.cleaner.backoff.ms": "300"}


@pytest.mark.parametrize(
    "version", [*(pytest.param(version, marks=pytest.mark.apart) for version in ("2.7.2", "3.9.1")), "4.3.0"]
)
def test_a_cleaner_keeps_what_was_committed_and_nothing_aborted(version: str, tmp_path: Path) -> None:
    """It goes by the indexes of all segments in one pass, unlike a fetch: both must see the same transactions end."""
    store = archived_with_hole(tmp_path)
    with KafkaBroker(version, tmp_path / "kafka", properties=PROPERTIES) as broker:
        create_topic(broker, "t", segment_bytes=1 << 20)
        log_dir = broker.log_dirs[0]
    metadata = log_dir / "t-0" / PARTITION_METADATA
    topic_id = read_partition_metadata(metadata.read_bytes()) if metadata.exists() else "none"
    if topic_id == "none":
        shutil.rmtree(log_dir / "t-0")
    request = RestoreRequest(
        "t",
        log_dir,
        topic_id=topic_id,
        leader_epochs=LeaderEpochMode.FLATTEN,
        open_transactions=OpenTransactionMode.ABORT,
    )
    report = restore(store, SystemClock(), request)
    assert report.exit_code == 0, [outcome.problem for outcome in report.outcomes]
    with KafkaBroker(version, tmp_path / "kafka", properties=PROPERTIES) as broker:
        assert {read.offset for read in reads(broker, [PARTITION], "read_committed")[PARTITION]} == COMMITTED
        set_topic(broker, "t", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"})
        checkpoint = log_dir / CLEANER_CHECKPOINT
        wait_until(
            "the cleaner went through all of it",
            lambda: (
                checkpoint.exists()
                and read_offset_checkpoint(checkpoint.read_bytes()).get(TopicPartition(*PARTITION), 0) >= END
            ),
        )
        for isolation in ("read_uncommitted", "read_committed"):
            left = [read.offset for read in reads(broker, [PARTITION], isolation)[PARTITION] if read.key == KEY]
            assert left == [COMMITTED_OFFSET]
