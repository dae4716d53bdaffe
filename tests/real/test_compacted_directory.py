"""A broker loads what `compact` wrote, its consumer reads it, and producers go on where they were."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sidecar.logformat.batches import scan_file
from sidecar.logformat.bodies.records import read_records
from tests.real.product import json_lines, run_installed
from tests.real.stored_batches import last_data_batch, send_again, stored_batches
from tests.real.topics import committed_offsets, create_topic, end_offset, write
from tests.servers.kafka import KafkaBroker

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOPIC = "accounts"
SCRIPT = f"""
producer a
producer z compression.type=zstd
producer t transactional.id=t
send a {TOPIC} 0 150 keys=20 tombstones=7
begin t
send t {TOPIC} 0 40 keys=20
abort t
send z {TOPIC} 0 400 keys=30
begin t
send t {TOPIC} 0 60 keys=40
commit t
send z {TOPIC} 0 300 keys=30
"""


def keys_by_offset(directory: Path) -> dict[int, bytes]:
    """Keys of all records that are no markers."""
    found: dict[int, bytes] = {}
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for columns in scan_file(path):
            for row in range(len(columns)):
                begin = int(columns.position[row])
                if columns.marker_type[row] < 0:
                    records = read_records(data[begin : begin + int(columns.size_bytes[row])])
                    found |= {record.offset: record.key or b"" for record in records}
    return found


def test_a_broker_loads_a_compacted_directory(tmp_path: Path) -> None:
    broker = KafkaBroker("4.3.0", tmp_path / "kafka")
    with broker:
        create_topic(broker, TOPIC, segment_bytes=16384)
        write(broker, SCRIPT, tmp_path)
        before = committed_offsets(broker, TOPIC)
        log_end = end_offset(broker, TOPIC)
    partition = broker.log_dirs[0] / f"{TOPIC}-0"
    keys = keys_by_offset(partition)
    retried = last_data_batch(stored_batches(partition), stored_batches(partition)[0].producer_id)

    out = tmp_path / "out" / partition.name
    done = run_installed({}, "compact", str(partition), "--out", str(out), "--engine", "local", "--json")
    assert done.returncode == 0, done.stderr
    (report,) = json_lines(done)
    assert report["records_after"] < report["records_before"] / 4
    shutil.rmtree(partition)
    shutil.copytree(out, partition, copy_function=shutil.copy2)
    active = report["left_alone"][0]
    with KafkaBroker("4.3.0", tmp_path / "kafka") as again:
        after = committed_offsets(again, TOPIC)
        latest = {keys[offset]: offset for offset in before if offset < active}
        # One committed record per key, the latest; behind it the active segment as it was.
        assert after == sorted(latest.values()) + [offset for offset in before if offset >= active]
        assert end_offset(again, TOPIC) == end_offset(again, TOPIC, committed=True) == log_end
        # An offset whose record is gone is a position still: whoever begins there is given the next record.
        removed = next(offset for offset in before if offset not in after and offset + 1 not in after)
        assert committed_offsets(again, TOPIC, removed) == [offset for offset in after if offset > removed]
        # A late retry of a producer whose last batch lost all its records is still known for one.
        answer = send_again(again.port, TOPIC, 0, retried)
        assert (answer.error_code, answer.base_offset) == (0, retried.base_offset)
        write(again, f"producer n\nsend n {TOPIC} 0 5", tmp_path)
        assert end_offset(again, TOPIC) == log_end + 5
