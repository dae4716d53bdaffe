"""Segments that we made, in a fresh broker: as if it had written them."""

from __future__ import annotations

import os
import re
import shutil
from functools import cached_property
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.kafka import KafkaBroker

VERSION = "4.3.0"
HEAP_MB = 1024
"""KAFKA_HEAP_OPTS of bin/kafka-server-start.sh."""
_CONFIG = {"segment.bytes": str(1 << 30), "file.delete.delay.ms": "100"}
_CLEANED = re.compile(r"[\d.,]+ MB of log processed in ([\d.,]+) seconds")


class MeasuredBroker(KafkaBroker):
    """On a JVM as in production. Its directory, a fresh one, goes with it."""

    def __init__(self, directory: Path, version: str = VERSION, **properties: str) -> None:
        properties["log.retention.ms"] = "-1"  # what we make has old timestamps
        super().__init__(version, directory, heap_mb=HEAP_MB, as_in_production=True, properties=properties)

    def start(self) -> None:
        """See KafkaBroker. Servers run in sessions of their own, which Linux may schedule as groups: it gets our priority."""
        super().start()
        ours, theirs = Path("/proc/self/autogroup"), Path(f"/proc/{self.process.pid}/autogroup")
        if ours.exists():
            theirs.write_text(ours.read_text().rpartition(" ")[2])

    def close(self) -> None:
        """See KafkaBroker."""
        super().close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def create_topic(self, topic: str, **config: str) -> None:
        """With one partition and one replica."""
        new = NewTopic(topic, 1, 1, config={**_CONFIG, **config})
        client = AdminClient({"bootstrap.servers": self.bootstrap})
        client.create_topics([new])[topic].result(60)

    def take_over(self, partition: Path, **config: str) -> None:
        """Put a partition's files in place of the empty ones of a topic that is created. The broker is stopped before and after.

        Segments are linked: a broker never writes to a rolled one.
        """
        topic = partition.name.rpartition("-")[0]
        self.start()
        self.create_topic(topic, **config)
        self.stop()
        target = self.log_dirs[0] / partition.name
        for file in target.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        for file in partition.iterdir():
            if file.suffix == ".log" and file.stat().st_size:
                os.link(file, target / file.name)
            elif file.name != "partition.metadata":
                shutil.copy(file, target / file.name)
        end = max(int(file.stem) for file in partition.glob("*.log"))
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (target.parent / name).write_text(f"0\n1\n{topic} 0 {end}\n")

    @cached_property
    def _watching(self) -> Consumer:
        return Consumer({"bootstrap.servers": self.bootstrap, "group.id": "watching", "log_level": 0})

    def serves_up_to(self, topic: str, end_offset: int) -> bool:
        """Whether consumers can read partition 0 up to this offset."""
        try:
            return bool(self._watching.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)[1] >= end_offset)
        except KafkaException:
            return False

    @property
    def cleaned_s(self) -> float | None:
        """Seconds that its cleaner took, by its own log line; None until then."""
        found = _CLEANED.search(self.log_text())
        return float(found[1].replace(",", "")) if found else None


def cleaning_broker(partition: Path, directory: Path) -> MeasuredBroker:
    """Not started yet: when it starts, its cleaner compacts these segments."""
    broker = MeasuredBroker(directory, **{"log.cleaner.backoff.ms": "500"})
    broker.take_over(partition, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    return broker
