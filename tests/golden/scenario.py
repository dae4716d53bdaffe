"""What is written into the golden log directories: the topics, and one script per leader epoch for `Produce.java`.

A change here changes nothing until `python -m tests.golden.generate` runs again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEGACY_CODECS = ("none", "gzip", "snappy", "lz4")


@dataclass(frozen=True)
class Topic:
    name: str
    description: str
    partitions: int = 1
    segment_bytes: int = 16384
    settings: Mapping[str, str] = field(default_factory=dict)


TOPICS = (
    Topic(
        "orders",
        "three idempotent producers (two Java, one librdkafka) in turn, headers (null value, duplicate, empty and "
        "non-ASCII names), tombstones, null keys, timestamps out of order, three leader epochs",
        partitions=2,
    ),
    Topic(
        "codecs-java",
        "every codec as the Java client writes it (snappy: xerial framing); one batch of 80 KB (unpacked) per codec",
        segment_bytes=49152,
    ),
    Topic("codecs-librdkafka", "every codec as librdkafka writes it (snappy: raw)", segment_bytes=49152),
    Topic(
        "transactions",
        "commits, aborts, interleaved and empty transactions, an aborted one across segments, producer epoch bumps, "
        "Java and librdkafka; one transaction is left open, in partition 0 across segments",
        partitions=2,
    ),
    Topic("append-time", "LogAppendTime, lz4 and none", settings={"message.timestamp.type": "LogAppendTime"}),
    Topic("trimmed", "DeleteRecords moved the log start into the middle of a segment; older segments are deleted"),
    Topic("single", "one record, one (active) segment"),
    Topic("empty", "never written"),
    Topic(
        "compacted",
        "written under cleanup.policy=delete: few keys, tombstones, commits, aborts, every codec; partition 1 has an "
        "open transaction in its middle. `logs` holds the state before, `compacted` the state after the real cleaner",
        partitions=2,
    ),
)

LEGACY_TOPICS = (
    Topic("legacy-v0", "magic 0, every old codec", settings={"message.format.version": "0.9.0"}),
    Topic("legacy-v1", "magic 1, every old codec; librdkafka too", settings={"message.format.version": "0.10.0"}),
    Topic(
        "legacy-v1-append-time",
        "magic 1 with LogAppendTime",
        settings={"message.format.version": "0.10.0", "message.timestamp.type": "LogAppendTime"},
    ),
    Topic("legacy-mixed", "magic 0, then 1, then 2 in one partition", settings={"message.format.version": "0.9.0"}),
)

_IDEMPOTENT_PRODUCERS = """
producer a
producer b compression.type=lz4
"""

# The open transactions of the last script live until the broker stops; 15 minutes is what a broker allows.
_TRANSACTIONAL_PRODUCERS = """
producer t1 transactional.id=t1 transaction.timeout.ms=900000
producer t2 transactional.id=t2 transaction.timeout.ms=900000 compression.type=gzip
"""


def scripts(legacy: bool) -> list[str]:
    """One script per leader epoch."""
    first = [_IDEMPOTENT_PRODUCERS, _orders(), _codecs(), _transactions(), _append_time(), _compacted(0)]
    second = [_IDEMPOTENT_PRODUCERS, _orders(), _TRANSACTIONAL_PRODUCERS, _interleaved(), _trimmed(), _compacted(1)]
    third = [_IDEMPOTENT_PRODUCERS, _orders(), _TRANSACTIONAL_PRODUCERS, _compacted(2), _left_open()]
    if legacy:
        first.append(_legacy("legacy-v0", "legacy-v1", "legacy-v1-append-time", "legacy-mixed"))
        second.append(_legacy("legacy-mixed"))
        third.insert(0, _legacy("legacy-mixed"))
    return ["\n".join(parts) for parts in (first, second, third)]


def empty_transaction_script() -> str:
    """For a client before 4.0: from 4.0 on a broker learns of a partition only by data."""
    return """
producer e transactional.id=e
begin e
add e transactions 0
add e transactions 1
commit e
begin e
add e transactions 0
abort e
"""


def _orders() -> str:
    return """
send a orders 0 60 headers=1
send b orders 0 80 tombstones=9
send a orders 0 40 keys=0
send b orders 1 60 headers=1 tombstones=4
send a orders 0 60 disorder=1
send a orders 1 1
send b orders 0 50 bytes=400 disorder=1
send a orders 1 90 disorder=1
send b orders 1 40 keys=0 bytes=300
"""


def _codecs() -> str:
    lines = []
    for codec in CODECS:
        producer = f"java-{codec}"
        lines.append(f"producer {producer} compression.type={codec}")
        lines.append(f"send {producer} codecs-java 0 90 headers=1 tombstones=13")
    # One batch above 64 KiB once unpacked: more than one block or chunk of each codec's framing.
    for codec in CODECS[1:]:
        producer = f"java-large-{codec}"
        lines.append(f"producer {producer} compression.type={codec} batch.size=300000 linger.ms=300")
        lines.append(f"send {producer} codecs-java 0 400 bytes=200")
    return "\n".join(lines)


def _transactions() -> str:
    return f"""
{_TRANSACTIONAL_PRODUCERS}
begin t1
send t1 transactions 0 30
send t1 transactions 1 10
commit t1
begin t2
send t2 transactions 0 20
abort t2
send a transactions 0 25
begin t1
send t1 transactions 0 220
send a transactions 0 10
send t1 transactions 1 20
abort t1
begin t2
send t2 transactions 1 40
commit t2
"""


def _interleaved() -> str:
    return """
begin t1
begin t2
send t1 transactions 0 12
send t2 transactions 0 90
send t1 transactions 0 70
abort t2
send b transactions 0 30
begin t2
send t2 transactions 0 15
send t2 transactions 1 70
commit t1
abort t2
begin t1
send t1 transactions 0 1
commit t1
begin t1
send t1 transactions 1 150
commit t1
"""


def _append_time() -> str:
    return """
producer plain acks=all enable.idempotence=false
send plain append-time 0 120
send b append-time 0 200
send a append-time 0 40
"""


def _trimmed() -> str:
    return "\n".join(["send a trimmed 0 80"] * 4)


def _compacted(turn: int) -> str:
    codecs = (CODECS[turn], CODECS[turn + 2])
    lines = [f"producer k{codec} compression.type={codec}" for codec in codecs]
    lines.append(f"producer kt transactional.id=kt compression.type={codecs[0]}")
    if turn == 1:
        # Everything from here on in partition 1 is above the last stable offset, for ever out of the cleaner's reach.
        lines += ["producer ko transactional.id=ko transaction.timeout.ms=900000", "begin ko"]
        lines += ["send ko compacted 1 30 keys=20"]
    for codec in codecs:
        lines.append(f"send k{codec} compacted 0 130 keys=40 tombstones=6")
        lines.append(f"send k{codec} compacted 1 90 keys=30 tombstones=7 headers=1")
        for end in ("commit", "abort", "commit"):
            lines += ["begin kt", "send kt compacted 0 25 keys=40 tombstones=8", "send kt compacted 1 20 keys=30"]
            lines.append(f"{end} kt")
    return "\n".join(lines)


def _left_open() -> str:
    return """
send a single 0 1
begin t1
send t1 transactions 0 60
begin t2
send t2 transactions 0 10
send t2 transactions 1 10
commit t2
send t1 transactions 0 140
send a transactions 0 60
send a transactions 1 20
"""


def _legacy(*topics: str) -> str:
    lines = []
    for codec in LEGACY_CODECS:
        producer = f"old-{codec}"
        lines.append(f"producer {producer} compression.type={codec} enable.idempotence=false batch.size=3000")
        lines += [f"send {producer} {topic} 0 70 tombstones=11 disorder=1" for topic in topics]
        lines += [f"send {producer} {topic} 0 30 keys=0" for topic in topics]
    return "\n".join(lines)
