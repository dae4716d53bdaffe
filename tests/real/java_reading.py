"""What Kafka's own Java consumer is given: `Consume.java`, which must agree with what librdkafka is given."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.real.reading_back import Read
from tests.servers.kafka import KafkaBroker
from tests.servers.kafka_java import run_java

UNCOMMITTED, COMMITTED, FIRST_LIFE, SECOND_LIFE = "read_uncommitted", "read_committed", "first", "second"


def java_reads(broker: KafkaBroker, *topics: str) -> dict[tuple[str, str], list[Read]]:
    """By reader and topic: everything at both isolation levels, and what a group got before and after it was restarted."""
    found: dict[tuple[str, str], list[Read]] = {}
    for line in run_java(
        Path(__file__).with_name("Consume.java"), broker.version, broker.bootstrap, *topics
    ).splitlines():
        reader, topic, offset, kind, timestamp_ms, key, value, *headers = line.split(" ")
        pairs = zip(headers[::2], headers[1::2], strict=True)
        named = tuple(((_decoded(name) or b"").decode(), _decoded(content)) for name, content in pairs)
        read = Read(int(offset), (int(kind), int(timestamp_ms)), _decoded(key), _decoded(value), named)
        found.setdefault((reader, topic), []).append(read)
    return found


def _decoded(word: str) -> bytes | None:
    return None if word == "-" else base64.b64decode(word[1:])
