"""Transactions of version 2 (KIP-890), of Kafka's own client: a broker's cleaner takes their markers before they are archived."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from producer_state.facts import MARKER_ABORT, MARKER_COMMIT, NO_MARKER
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.headers import BatchFlag
from sidecar.logformat.metadata_files import read_partition_metadata
from sidecar.logformat.names import PARTITION_METADATA
from tests.real.product import json_lines, run_program
from tests.real.reading_back import Read, reads
from tests.real.topics import create_topic, end_offset, set_topic, wait_until, write
from tests.servers.kafka import KafkaBroker

pytestmark = [pytest.mark.real, pytest.mark.apart]

TOPIC = "changes"
PARTITION = (TOPIC, 0)
PROPERTIES = {"log.retention.ms": "-1", "log.cleaner.backoff.ms": "100", "auto.create.topics.enable": "false"}
CLEANED, NOT_CLEANED = {"min.compaction.lag.ms": "0"}, {"min.compaction.lag.ms": "3600000"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"}
OPEN_AT_THE_ROLL = ["aborted", "superseded", "newest", "aborts-again", "silent"]
SCRIPT = [
    *(f"producer {name} transactional.id={name}" for name in OPEN_AT_THE_ROLL),
    "producer filler",
    "producer gate max.block.ms=170000",
    "begin silent",
    f"send silent {TOPIC} 0 2 keys=5",
    "commit silent",
    f"send filler {TOPIC} 0 20 keys=20",
    *(f"begin {name}" for name in OPEN_AT_THE_ROLL),
    f"send aborted {TOPIC} 0 3 keys=5",
    f"send superseded {TOPIC} 0 3 keys=5",
    f"send newest {TOPIC} 0 3 keys=100000",
    f"send aborts-again {TOPIC} 0 3 keys=100000",
    f"send silent {TOPIC} 0 2 keys=5",
    f"send filler {TOPIC} 0 60 keys=20",
    "abort aborted",
    "commit superseded",
    "commit newest",
    "abort aborts-again",
    "abort silent",
    "send gate reached 0 1",
    "send gate opened 0 1",
    "begin aborted",
    f"send aborted {TOPIC} 0 2 keys=5",
    "commit aborted",
    "begin superseded",
    f"send superseded {TOPIC} 0 2 keys=5",
    "commit superseded",
    "begin newest",
    f"send newest {TOPIC} 0 2 keys=100000",
    "commit newest",
    "begin aborts-again",
    f"send aborts-again {TOPIC} 0 2 keys=100000",
    "abort aborts-again",
    "begin aborts-again",
    f"send aborts-again {TOPIC} 0 2 keys=100000",
    "commit aborts-again",
    f"send filler {TOPIC} 0 60 keys=20",
]
"""The gate's first record says that the script waits until a topic `opened` is created."""


def numbers_of(script: Iterable[str], ended_by: str) -> Iterator[int]:
    """Numbers of the records in transactions with this end. `Produce` counts all records."""
    number, running = 0, dict[str, list[int]]()
    for command, name, *rest in (line.split() for line in script):
        if command == "begin":
            running[name] = []
        elif command == "send":
            running.setdefault(name, []).extend(range(number, number := number + int(rest[2])))
        elif command == ended_by:
            yield from running[name]


def number_of(value: bytes | None) -> int:
    found = re.match(rb"record-(\d+)", value or b"")
    return -1 if found is None else int(found[1])


def batches(directory: Path) -> list[tuple[int, int, int, int]]:
    """Of the transactions in a log: offset, producer id, epoch and marker type. An emptied marker has none.

    What the cleaner replaces meanwhile is read again.
    """
    while True:
        files = sorted(directory.iterdir())
        if any(path.suffix == ".swap" for path in files):
            continue
        try:
            contents = [path.read_bytes() for path in files if path.suffix == ".log"]
        except FileNotFoundError:
            continue
        return [
            (int(columns.base_offset[row]), *(int(column[row]) for column in facts))
            for content in contents
            for columns in scan_bytes(content)
            for facts in [(columns.producer_id, columns.producer_epoch, columns.marker_type)]
            for row in range(len(columns))
            if columns.attributes[row] & BatchFlag.TRANSACTIONAL
        ]


def newest(found: Iterable[Read]) -> dict[bytes | None, bytes | None]:
    return {read.key: read.value for read in found}


def fill(broker: KafkaBroker, keys: Sequence[bytes], count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "batch.num.messages": 5})
    for number in range(count):
        producer.produce(TOPIC, b"filler-%d " % number + b"y" * 150, keys[number % len(keys)], partition=0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("retention_ms", [0, 3_600_000], ids=["markers are gone", "markers are left"])
def test_aborted_records_of_transactions_of_version_2_stay_hidden(retention_ms: int, tmp_path: Path) -> None:
    with KafkaBroker("4.3.0", tmp_path / "kafka", properties=PROPERTIES) as broker:
        for topic in (TOPIC, "reached"):
            create_topic(broker, topic, segment_bytes=4096)
        set_topic(broker, TOPIC, COMPACTED | NOT_CLEANED | {"delete.retention.ms": str(retention_ms)})
        (log_dir,) = broker.log_dirs
        directory = log_dir / f"{TOPIC}-0"
        settings = {
            "store.url": (tmp_path / "archive").as_uri(),
            "broker.log_dirs": str(log_dir),
            "broker.settle_ms": "0",
            "broker.snapshot_grace_ms": "0",
            "broker.connection.bootstrap_servers": broker.bootstrap,
            "run.state_dir": str(tmp_path / "state"),
            "topics.include": TOPIC,
        }

        def archived_end() -> tuple[int, str]:
            done = run_program(settings, "backfill", "--json")
            (row,) = json_lines(done)[0]["partitions"]
            assert row["error"] is None
            return row["end_offset"], done.stderr

        with ThreadPoolExecutor(1) as pool:
            script = pool.submit(write, broker, "\n".join(SCRIPT), tmp_path)
            wait_until("the script is at its gate", lambda: end_offset(broker, "reached") > 0)
            first_end, _ = archived_end()
            create_topic(broker, "opened", segment_bytes=4096)
            script.result()
        written = batches(directory)
        data = {
            number: epoch for offset, number, epoch, marker in written if marker == NO_MARKER and offset < first_end
        }
        open_at_end = {
            number: next(b for b in written if b[1] == number and b[0] >= first_end and b[3] != NO_MARKER)
            for number in data
        }
        # Version 2: a marker has the epoch after that of its data.
        assert [open_at_end[number][2] for number in data] == [epoch + 1 for epoch in data.values()]
        ends = [open_at_end[number][3] for number in data]
        assert (ends.count(MARKER_ABORT), ends.count(MARKER_COMMIT)) == (3, 2)
        aborted = {batch for batch in open_at_end.values() if batch[3] == MARKER_ABORT}
        before = end_offset(broker, TOPIC)
        set_topic(broker, TOPIC, CLEANED)

        def is_cleaned() -> bool:
            fill(broker, [b"f0", b"f1", b"f2"], 40)
            left = batches(directory)
            has_data = {batch[1:] for batch in left} & {
                (number, epoch - 1, NO_MARKER) for _, number, epoch, _ in aborted
            }
            return not has_data and (retention_ms > 0 or not aborted & set(left))

        wait_until("the cleaner took what was aborted", is_cleaned)
        set_topic(broker, TOPIC, NOT_CLEANED)
        fill(broker, [b"f0", b"f1", b"f2"], 40)
        last_end, log = archived_end()
        assert last_end > before
        assert ("abort_marker_added" in log) == (retention_ms == 0)
        live = [read for read in reads(broker, [PARTITION], "read_committed")[PARTITION] if read.offset < last_end]
        topic_id = read_partition_metadata((directory / PARTITION_METADATA).read_bytes())
    assert run_program(settings, "verify", "--deep").returncode == 0
    shutil.rmtree(directory)
    arguments = ("--topic", TOPIC, "--to", str(log_dir), "--topic-id", topic_id, "--leader-epochs", "flatten")
    restored = run_program(settings, "restore", *arguments)
    assert restored.returncode == 0, restored.stderr
    with KafkaBroker("4.3.0", tmp_path / "kafka", properties=PROPERTIES) as broker:
        found = reads(broker, [PARTITION], "read_committed")[PARTITION]
    aborted = set(numbers_of(SCRIPT, "abort"))
    assert not [read for read in found if number_of(read.value) in aborted]
    assert newest(found) == newest(live)
