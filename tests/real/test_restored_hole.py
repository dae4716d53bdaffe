"""Offsets inside of a log are lost; what brokers make of the markers that a restore writes there.

4.3.0: tests/real/test_restore.py.
"""

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

TOPIC = "t"
PROPERTIES = {"log.retention.ms": "-1", "log.cleaner.backoff.ms": "300"}


@pytest.mark.apart
@pytest.mark.parametrize("version", ["2.7.2", "3.9.1"])
def test_a_cleaner_keeps_what_was_committed_and_nothing_aborted(version: str, tmp_path: Path) -> None:
    with KafkaBroker(version, tmp_path / "kafka", properties=PROPERTIES) as broker:
        create_topic(broker, TOPIC, segment_bytes=1 << 20)
        broker.stop()
        restore_hole(broker, tmp_path)
        broker.start()
        assert_a_cleaner_keeps_what_was_committed(broker)


def restore_hole(broker: KafkaBroker, scratch: Path) -> None:
    """Into the directory of a broker that is stopped, and has the topic."""
    (log_dir,) = broker.log_dirs
    metadata = log_dir / f"{TOPIC}-0" / PARTITION_METADATA
    topic_id = read_partition_metadata(metadata.read_bytes()) if metadata.exists() else "none"
    if topic_id == "none":
        shutil.rmtree(log_dir / f"{TOPIC}-0")
    request = RestoreRequest(
        TOPIC,
        log_dir,
        topic_id=topic_id,
        leader_epochs=LeaderEpochMode.FLATTEN,
        open_transactions=OpenTransactionMode.ABORT,
    )
    report = restore(archived_with_hole(scratch), SystemClock(), request)
    assert report.exit_code == 0, [outcome.problem for outcome in report.outcomes]


def assert_a_cleaner_keeps_what_was_committed(broker: KafkaBroker) -> None:
    """And nothing aborted. It goes by the indexes of all segments in one pass, unlike a fetch: both must see the same ends."""
    partition, checkpoint = (TOPIC, 0), broker.log_dirs[0] / CLEANER_CHECKPOINT
    assert {read.offset for read in reads(broker, [partition], "read_committed")[partition]} == COMMITTED
    set_topic(broker, TOPIC, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"})
    wait_until(
        "the cleaner went through all of it",
        lambda: (
            checkpoint.exists()
            and read_offset_checkpoint(checkpoint.read_bytes()).get(TopicPartition(*partition), 0) >= END
        ),
    )
    for isolation in ("read_uncommitted", "read_committed"):
        left = [read.offset for read in reads(broker, [partition], isolation)[partition] if read.key == KEY]
        assert left == [COMMITTED_OFFSET]
