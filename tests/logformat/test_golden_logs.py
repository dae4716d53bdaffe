"""Segments that real brokers wrote, batch by batch and record by record, against what Kafka's own tool printed of them."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from producer_state.facts import MALFORMED_MARKER
from sidecar.logformat.batches import ScanEnd, scan_file
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.dump import dump_batches, dump_records
from sidecar.logformat.headers import CURRENT_MAGIC
from tests.golden import VERSIONS, dump_text, dumped_paths, golden

LOGS = [(version, path) for version in VERSIONS for path in dumped_paths(version) if path.endswith(".log")]
TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime", -1: "NoTimestampType"}

every_log = pytest.mark.parametrize(("version", "path"), LOGS, ids=[f"{version}/{path}" for version, path in LOGS])


@cache
def ours(version: str, path: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Our batches and records of a file."""
    log, base_offset = golden(version) / path, int(Path(path).stem)
    return list(dump_batches(log, base_offset=base_offset)), list(dump_records(log, base_offset=base_offset))


def kafkas(version: str, path: str) -> tuple[list[str], list[str]]:
    """The tool's lines for batches and for records."""
    lines = [line for line in dump_text(version, path).splitlines() if re.match(r"(\| )?(baseO|o)ffset: ", line)]
    return [line for line in lines if line[0] != "|"], [line[2:] for line in lines if line[0] == "|"]


def batch_in_kafkas_words(batch: dict[str, Any]) -> dict[str, str]:
    """What the tool prints of a batch; of magic 0 and 1 it is little."""
    words = {
        TIMESTAMP_TYPES[batch["timestamp_type"]]: batch["max_timestamp_ms"],
        "position": batch["position"],
        "size": batch["size_bytes"],
        "magic": batch["magic"],
        "compresscodec": batch["codec"],
        "crc": batch["crc"],
        "isvalid": batch["crc_ok"],
    }
    if batch["magic"] < CURRENT_MAGIC:
        return {name: str(value).lower() for name, value in (words | {"offset": batch["last_offset"]}).items()}
    horizon = batch["delete_horizon_ms"]
    words |= {
        "baseOffset": batch["base_offset"],
        "lastOffset": batch["last_offset"],
        "count": batch["record_count"],
        "baseSequence": batch["base_sequence"],
        "lastSequence": batch["last_sequence"],
        "producerId": batch["producer_id"],
        "producerEpoch": batch["producer_epoch"],
        "partitionLeaderEpoch": batch["leader_epoch"],
        "isTransactional": batch["transactional"],
        "isControl": batch["control"],
        "deleteHorizonMs": "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]",
    }
    return {name: str(value).lower() for name, value in words.items()}


def record_in_kafkas_words(record: dict[str, Any], batch: dict[str, Any]) -> str:
    """The line that the tool prints of a record, payload included."""
    key, value = (None if record[name] is None else base64.b64decode(record[name]) for name in ("key", "value"))
    line = f"offset: {record['offset']} {TIMESTAMP_TYPES[record['timestamp_type']]}: {record['timestamp_ms']}"
    line += f" keysize: {-1 if key is None else len(key)} valuesize: {-1 if value is None else len(value)}"
    if batch["magic"] == CURRENT_MAGIC:
        line += f" sequence: {record['sequence']} headerKeys: [{','.join(name for name, _ in record['headers'])}]"
    if record["control"] is not None:
        return f"{line} endTxnMarker: {record['control'].upper()} coordinatorEpoch: {batch['coordinator_epoch']}"
    line += "" if key is None else f" key: {key.decode('utf-8', 'replace')}"
    return line + ("" if value is None else f" payload: {value.decode('utf-8', 'replace')}")


@every_log
def test_every_log_scans_to_its_exact_end(version: str, path: str) -> None:
    scanner = scan_file(golden(version) / path, base_offset=int(Path(path).stem))
    chunks = list(scanner)
    assert (scanner.end, scanner.problem) == (ScanEnd.EXACT, None)
    assert scanner.valid_bytes == (golden(version) / path).stat().st_size
    assert scanner.batch_count == len(kafkas(version, path)[0])
    assert all((chunk.marker_type != MALFORMED_MARKER).all() for chunk in chunks)


@every_log
def test_batches_equal_what_kafka_prints(version: str, path: str) -> None:
    batches, lines = ours(version, path)[0], kafkas(version, path)[0]
    assert batches
    for batch, line in zip(batches, lines, strict=True):
        printed = {name: value.lower() for name, value in re.findall(r"(\w+): (\S+)", line)}
        expected = batch_in_kafkas_words(batch)
        if version == "2.7.2":
            expected.pop("deleteHorizonMs", None)  # later than this version
        assert printed == expected


@every_log
def test_records_equal_what_kafka_prints(version: str, path: str) -> None:
    (batches, records), lines = ours(version, path), kafkas(version, path)[1]
    batch_of = {batch["base_offset"]: batch for batch in batches if batch["record_count"]}
    for record, line in zip(records, lines, strict=True):
        batch = batch_of[record["batch_base_offset"]]
        printed = re.sub(r"(?<=size: )(-?\d+) crc: \d+ isvalid: true", r"\1", line, count=1)
        printed = printed.replace(" keySize: ", " keysize: ", 1).replace(" valueSize: ", " valuesize: ", 1)
        assert printed == record_in_kafkas_words(record, batch)
        for name in ("producer_id", "producer_epoch", "leader_epoch", "transactional"):
            assert record[name] == batch[name]
        assert (record["control"] is not None) == batch["control"]
        assert record["control"] == batch["marker"]


@every_log
def test_batches_count_and_begin_with_their_records(version: str, path: str) -> None:
    batches, records = ours(version, path)
    for batch in batches:
        offsets = [record["offset"] for record in records if record["batch_base_offset"] == batch["base_offset"]]
        assert len(offsets) == batch["record_count"]
        assert all(batch["base_offset"] <= offset <= batch["last_offset"] for offset in offsets)
    json.dumps([batches, records])  # nothing in it that JSON does not know


def test_the_golden_logs_show_every_codec_magic_and_timestamp_type() -> None:
    batches = [batch for version, path in LOGS for batch in ours(version, path)[0]]
    assert {batch["codec"] for batch in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {batch["magic"] for batch in batches} == {0, 1, 2}
    assert {batch["timestamp_type"] for batch in batches} == {-1, 0, 1}
    assert {batch["marker"] for batch in batches} == {None, "abort", "commit"}
    assert any(batch["delete_horizon_ms"] is not None for batch in batches)
    assert any(batch["record_count"] == 0 for batch in batches)


@every_log
def test_uncompressed_batches_are_built_again_byte_for_byte(version: str, path: str) -> None:
    data = (golden(version) / path).read_bytes()
    for batch in ours(version, path)[0]:
        if batch["magic"] < CURRENT_MAGIC or batch["codec"] != "none" or not batch["record_count"]:
            continue
        if batch["timestamp_type"] == 1:
            continue  # there the client's own timestamps stay in the bytes, where no record shows them
        stored = data[batch["position"] : batch["position"] + batch["size_bytes"]]
        built = build_batch(
            read_records(stored),
            base_offset=batch["base_offset"],
            last_offset=batch["last_offset"],
            leader_epoch=batch["leader_epoch"],
            producer_id=batch["producer_id"],
            producer_epoch=batch["producer_epoch"],
            base_sequence=batch["base_sequence"],
            transactional=batch["transactional"],
            control=batch["control"],
            delete_horizon_ms=batch["delete_horizon_ms"],
        )
        assert built == stored
