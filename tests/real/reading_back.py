"""What consumers are given by a broker, and what they must be given of a log directory, by a reader of our own."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from sidecar.logformat.batches import scan_file
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.headers import BatchFlag
from tests.servers.kafka import KafkaBroker

TIMEOUT_S = 180.0


class Read(NamedTuple):
    """One record as a client sees it. `timestamp`: type (0: none) and milliseconds."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def expected_reads(directory: Path, end_offset: int) -> tuple[list[Read], list[Read]]:
    """All records below an offset, and those of them that are committed; an open transaction's are not."""
    everything: list[Read] = []
    hidden: set[int] = set()
    running: dict[int, set[int]] = {}
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for columns in scan_file(path):
            for row in range(len(columns)):
                begin, producer_id = int(columns.position[row]), int(columns.producer_id[row])
                if columns.base_offset[row] >= end_offset:
                    continue
                if columns.marker_type[row] >= 0:
                    # 0 is ABORT. A marker ends its producer's transaction, and no other.
                    ended = running.pop(producer_id, set())
                    hidden |= ended if columns.marker_type[row] == 0 else set()
                    continue
                records = list(read_records(data[begin : begin + int(columns.size_bytes[row])]))
                if columns.magic[row] >= 2 and columns.attributes[row] & BatchFlag.TRANSACTIONAL:
                    running.setdefault(producer_id, set()).update(record.offset for record in records)
                for record in records:
                    kind = record.timestamp_type + 1
                    timestamp = (kind, record.timestamp_ms) if kind else (0, 0)
                    everything.append(Read(record.offset, timestamp, record.key, record.value, record.headers))
    hidden = hidden.union(*running.values())
    return everything, [read for read in everything if read.offset not in hidden]


def reads(
    broker: KafkaBroker, partitions: Iterable[tuple[str, int]], isolation: str
) -> dict[tuple[str, int], list[Read]]:
    """All records of these partitions, from each log's start to its end, by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader-{isolation}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    found: dict[tuple[str, int], list[Read]] = {partition: [] for partition in partitions}
    waiting = set(found)
    deadline_s = time.monotonic() + TIMEOUT_S  # noqa: TID251 - a real broker has no other clock
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in found])
        while waiting:
            if time.monotonic() > deadline_s:  # noqa: TID251
                raise TimeoutError(f"no end of {sorted(waiting)} within {TIMEOUT_S:.0f} s")
            for message in consumer.consume(500, 1.0):
                name = (str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is None:
                    found[name].append(_as_read(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(name)
                else:
                    raise RuntimeError(f"reading {name}: {error}")
    finally:
        consumer.close()
    return found


def _as_read(message: Any) -> Read:
    kind, timestamp_ms = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Read(message.offset(), (kind, timestamp_ms) if kind else (0, 0), message.key(), message.value(), headers)
