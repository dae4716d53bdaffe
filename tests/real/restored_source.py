"""What a source broker is made to hold before it is archived, and what it has acknowledged of that."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import TopicPartition

from sidecar.broker.cluster_view import LiveProducer
from tests.real.acknowledged import AcknowledgingProducer
from tests.real.reading_back import Read, reads
from tests.real.stored_batches import StoredBatch, segment_bases, stored_batches
from tests.real.topics import TIMEOUT_S, admin_of, create_topic, write
from tests.servers.kafka import KafkaBroker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LIVE, OPEN, ACCOUNTS, TRIMMED = TOPICS = "live", "open", "accounts", "trimmed"
SEGMENT_BYTES = 12_000
FILLER = 400


@dataclass
class Written:
    """What a broker has acknowledged, by topic, which offsets of it were aborted, and all that it served to librdkafka.

    `producers`, `batches`: of `LIVE`. `open_since`, `open_until`: a transaction of `OPEN`, and where the restored range cuts it.
    `deleted_before_offset`: of `TRIMMED`.
    """

    acknowledged: dict[str, list[Read]] = field(default_factory=dict)
    aborted: dict[str, set[int]] = field(default_factory=dict)
    served: dict[tuple[str, int], list[Read]] = field(default_factory=dict)
    producers: set[LiveProducer] | None = None
    batches: list[StoredBatch] = field(default_factory=list)
    open_since: int = 0
    open_until: int = 0
    deleted_before_offset: int = 0

    def live(self, end_offset: int, *, committed: bool) -> list[Read]:
        """What a consumer of `LIVE` is to be given below an offset."""
        hidden = self.aborted[LIVE] if committed else set()
        return [read for read in self.served[LIVE, 0] if read.offset < end_offset and read.offset not in hidden]

    def trimmed(self, end_offset: int) -> list[Read]:
        """What is left of `TRIMMED` after DeleteRecords."""
        return [read for read in self.served[TRIMMED, 0] if self.deleted_before_offset <= read.offset < end_offset]

    def accounts(self, end_offset: int) -> list[Read]:
        """What compaction promises of `ACCOUNTS`: per key the last committed record."""
        latest: dict[bytes | None, Read] = {}
        for read in self.served[ACCOUNTS, 0]:
            if read.offset < end_offset and read.offset not in self.aborted[ACCOUNTS]:
                latest[read.key] = read
        return sorted(latest.values())


def write_everything(broker: KafkaBroker, scratch: Path) -> Written:
    """All codecs, headers, tombstones, transactions of both ends, a Java client, and a restart of the broker in between."""
    written = Written()
    for topic in TOPICS:
        create_topic(broker, topic, SEGMENT_BYTES)
        written.acknowledged[topic], written.aborted[topic] = [], set()
    begin_ms = int(time.time() * 1000) - 600_000  # noqa: TID251 - producers expire by the broker's clock
    for turn in range(2):
        for codec in CODECS:
            producer = AcknowledgingProducer(broker, LIVE, compression_type=codec)
            written.acknowledged[LIVE] += producer.send(60, first_timestamp_ms=begin_ms + turn * 60_000)
        for topic, codec in ((LIVE, "lz4"), (ACCOUNTS, "none"), (ACCOUNTS, "zstd")):
            transact(broker, topic, codec, begin_ms + turn * 60_000 + 30_000, written)
        if turn == 0:
            broker.stop()
            broker.start()
    long = AcknowledgingProducer(broker, OPEN, transactional_id="long")
    before = AcknowledgingProducer(broker, OPEN).send(30, first_timestamp_ms=begin_ms)
    with long.transaction(commit=True):
        inside = long.send(600, first_timestamp_ms=begin_ms)
    written.acknowledged[OPEN] += [*before, *inside]
    written.open_since, written.open_until = inside[0].offset, inside[450].offset
    java = f"producer java\nsend java {LIVE} 0 120 headers=1 tombstones=9\n"
    fillers = "".join(f"producer {topic}\nsend {topic} {topic} 0 {FILLER}\n" for topic in written.acknowledged)
    write(broker, java + fillers, scratch)
    written.served = reads(broker, [(topic, 0) for topic in written.acknowledged], "read_uncommitted")
    for topic, acknowledged in written.acknowledged.items():
        by_offset = {read.offset: read for read in written.served[topic, 0]}
        assert [by_offset[read.offset] for read in acknowledged] == acknowledged, topic
    # No commit notes a deletion up to where a segment begins, and the producer decides where that is.
    bases = segment_bases(broker.log_dirs[0] / f"{TRIMMED}-0")
    written.deleted_before_offset = next(offset for offset in range(FILLER // 3, FILLER) if offset not in bases)
    admin = admin_of(broker)
    (done,) = admin.delete_records([TopicPartition(TRIMMED, 0, written.deleted_before_offset)]).values()
    done.result(TIMEOUT_S)
    written.batches = stored_batches(broker.log_dirs[0] / f"{LIVE}-0")
    return written


def transact(broker: KafkaBroker, topic: str, codec: str, first_timestamp_ms: int, written: Written) -> None:
    """One transaction that is committed and one that is aborted."""
    producer = AcknowledgingProducer(
        broker, topic, compression_type=codec, transactional_id=f"{topic}-{codec}-{first_timestamp_ms}"
    )
    for commit in (True, False):
        with producer.transaction(commit=commit):
            sent = producer.send(70, keys=20, first_timestamp_ms=first_timestamp_ms)
        written.acknowledged[topic] += sent
        if not commit:
            written.aborted[topic] |= {read.offset for read in sent}
