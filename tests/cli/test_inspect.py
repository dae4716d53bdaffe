"""`inspect` of local files: the JSON that tools rely on, tables for people, and damaged input."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from tests.cli.running import in_this_process as tiered_sidecar
from tests.golden import golden

BATCH_KEYS = {"position", "size_bytes", "base_offset", "last_offset", "record_count", "magic", "codec", "crc", "crc_ok"}
RECORD_KEYS = [
    *("offset", "batch_base_offset", "timestamp_ms", "timestamp_type", "key", "value", "headers", "producer_id"),
    *("producer_epoch", "sequence", "leader_epoch", "transactional", "control"),
]
ENTRY_KEYS = [
    *("producer_id", "producer_epoch", "last_sequence", "last_offset", "offset_delta", "last_timestamp_ms"),
    *("coordinator_epoch", "current_txn_first_offset"),
]


@pytest.fixture(scope="module")
def partition() -> Path:
    return golden("3.9.1") / "logs" / "transactions-0"


def test_a_snapshot_is_one_object(partition: Path) -> None:
    (shown,) = tiered_sidecar("inspect", max(partition.glob("*.snapshot")), "--json").lines()
    assert list(shown) == ["kind", "version", "entries"]
    assert (shown["kind"], shown["version"]) == ("snapshot", 1)
    assert [list(entry) for entry in shown["entries"]] == [ENTRY_KEYS] * len(shown["entries"])
    transactions = {entry["current_txn_first_offset"] for entry in shown["entries"]}
    assert None in transactions


def test_a_log_is_one_line_per_batch_or_per_record(partition: Path) -> None:
    log = min(partition.glob("*.log"))
    batches = tiered_sidecar("inspect", log, "--json").lines()
    assert all(batch.keys() >= BATCH_KEYS for batch in batches)
    assert sum(batch["size_bytes"] for batch in batches) == log.stat().st_size
    records = tiered_sidecar("inspect", log, "--records", "--json").lines()
    assert all(list(record) == RECORD_KEYS for record in records)
    assert len(records) == sum(batch["record_count"] for batch in batches)
    assert {record["control"] for record in records} >= {None, "abort"}
    assert base64.b64decode(next(record["value"] for record in records if record["value"]))


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        ("*.index", ["offset", "position"]),
        ("*.timeindex", ["timestamp_ms", "offset"]),
        ("*.txnindex", ["producer_id", "first_offset", "last_offset", "last_stable_offset"]),
        ("leader-epoch-checkpoint", ["epoch", "start_offset"]),
        ("../replication-offset-checkpoint", ["topic", "partition", "offset"]),
    ],
)
def test_indexes_and_checkpoints_are_one_line_per_entry(partition: Path, pattern: str, keys: list[str]) -> None:
    file = min(partition.parent.glob(f"transactions-0/{pattern}")) if ".." not in pattern else partition / pattern
    rows = tiered_sidecar("inspect", file, "--json").lines()
    assert rows
    assert [list(row) for row in rows] == [keys] * len(rows)
    table = tiered_sidecar("inspect", file).out.splitlines()
    assert table[0].split() == keys
    assert len(table) == len(rows) + 1


def test_the_ids_of_broker_and_topic(partition: Path) -> None:
    (meta,) = tiered_sidecar("inspect", partition.parent / "meta.properties", "--json").lines()
    assert (meta["kind"], meta["version"], meta["broker_id"]) == ("meta_properties", 1, 1)
    (metadata,) = tiered_sidecar("inspect", partition / "partition.metadata", "--json").lines()
    assert len(metadata["topic_id"]) == 22
    assert metadata["topic_id"] in tiered_sidecar("inspect", partition / "partition.metadata").out


def test_a_cut_log_prints_what_is_good_and_says_where_it_ends(partition: Path, tmp_path: Path) -> None:
    log = min(partition.glob("*.log"))
    cut = tmp_path / log.name
    whole = tiered_sidecar("inspect", log, "--json").lines()
    cut.write_bytes(log.read_bytes()[:-1])
    for records in ([], ["--records"]):
        outcome = tiered_sidecar("inspect", cut, "--json", *records)
        assert outcome.code == 3
        (line,) = outcome.err.splitlines()
        assert str(cut) in line
        assert f"at byte {whole[-1]['position']}" in line
        if not records:
            *rows, error = outcome.lines()
            assert rows == whole[:-1]
            assert (error["kind"], error["exit_code"]) == ("inspect", 3)


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "txnindex", "snapshot"])
@pytest.mark.parametrize(
    "content", [b"\xff" * 1000, b"\xff" * 408, bytes(range(256)) * 3, b"\x00" * 999, b"\x00" * 408]
)
def test_garbage_is_one_line_with_the_file(suffix: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / f"00000000000000000007.{suffix}"
    file.write_bytes(content)
    outcome = tiered_sidecar("inspect", file, "--json")
    assert outcome.code == 3, outcome
    (line,) = outcome.err.splitlines()
    assert str(file) in line
    for row in outcome.out.splitlines():
        json.loads(row)


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "log-start-offset-checkpoint", "partition.metadata", "meta.properties"]
)
def test_garbled_text_is_one_line_with_the_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"version=7\n\xff\xfe")
    outcome = tiered_sidecar("inspect", tmp_path / name)
    assert (outcome.code, outcome.out) == (3, "")
    assert len(outcome.err.splitlines()) == 1
    assert str(tmp_path / name) in outcome.err


def test_renamed_files_and_free_names(partition: Path, tmp_path: Path) -> None:
    index = max(partition.glob("*.index"))
    expected = tiered_sidecar("inspect", index, "--json").out
    shutil.copy(index, tmp_path / f"{index.name}.deleted")
    assert tiered_sidecar("inspect", tmp_path / f"{index.name}.deleted", "--json").out == expected
    shutil.copy(index, tmp_path / "mine.index")
    assert "--base-offset" in tiered_sidecar("inspect", tmp_path / "mine.index").err
    base_offset = str(int(index.name[:20]))
    assert tiered_sidecar("inspect", tmp_path / "mine.index", "--base-offset", base_offset, "--json").out == expected
    shutil.copy(min(partition.glob("*.log")), tmp_path / "mine.log")
    assert tiered_sidecar("inspect", tmp_path / "mine.log", "--json").code == 0


def test_control_characters_of_records_do_not_reach_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    record = Record(offset=0, timestamp_ms=0, key=b"\x1b[31m\x07key", value=b"\x9b\xff" + b"v" * 100)
    log.write_bytes(build_batch([record], base_offset=0, last_offset=0))
    shown = tiered_sidecar("inspect", log, "--records").out
    assert "key" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_what_is_good_before_a_damaged_entry_is_printed(partition: Path, tmp_path: Path) -> None:
    for pattern, entry_bytes in (("*.index", 8), ("*.timeindex", 12), ("*.txnindex", 34)):
        index = max(partition.glob(pattern), key=lambda path: path.stat().st_size)
        whole = tiered_sidecar("inspect", index, "--json").out
        damaged = tmp_path / index.name
        for tail in (
            b"x",
            b"\x7f" * entry_bytes + b"\x00" * entry_bytes + b"\x7f" * entry_bytes,
            b"\x00" * entry_bytes,
        ):
            damaged.write_bytes(index.read_bytes() + tail)
            outcome = tiered_sidecar("inspect", damaged, "--json")
            assert outcome.code == 3, (pattern, tail)
            assert outcome.out.startswith(whole)
            assert str(damaged) in outcome.err
            assert "stop the broker and delete it" in outcome.err


def test_only_the_newest_segment_s_index_may_end_in_zeros(partition: Path, tmp_path: Path) -> None:
    index = max(partition.glob("*.index"), key=lambda path: path.stat().st_size)
    untrimmed = tmp_path / index.name
    untrimmed.write_bytes(index.read_bytes() + bytes(8000))
    assert tiered_sidecar("inspect", untrimmed).code == 3
    untrimmed.with_suffix(".log").write_bytes(b"")
    outcome = tiered_sidecar("inspect", untrimmed, "--json")
    assert (outcome.code, outcome.out) == (0, tiered_sidecar("inspect", index, "--json").out)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("meta.properties", b""),
        ("meta.properties", b"\x93\x00\xfe random"),
        ("meta.properties", b"#only a comment\n"),
        ("partition.metadata", b""),
        ("leader-epoch-checkpoint", b""),
        ("leader-epoch-checkpoint", b"0\n1\n-1 0\n"),
        ("replication-offset-checkpoint", b""),
        ("recovery-point-offset-checkpoint", b"0\n1\norders 0 -3\n"),
        ("log-start-offset-checkpoint", b"0\n1\norders -1 3\n"),
    ],
)
def test_small_files_without_sense_are_refused_with_advice(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    outcome = tiered_sidecar("inspect", tmp_path / name)
    assert outcome.code == 3, outcome
    (line,) = outcome.err.splitlines()
    assert line.count(str(tmp_path / name)) == 1
    assert "restore it from" in line


def test_what_is_no_file_is_named_for_what_it_is(tmp_path: Path) -> None:
    expected = {str(tmp_path): "is a directory", "/dev/null": "is a device", str(tmp_path / "x"): "no such file"}
    for target, words in expected.items():
        outcome = tiered_sidecar("inspect", target)
        assert outcome.code == 2
        assert words in outcome.err


def test_a_name_above_the_largest_offset_is_no_base_offset(partition: Path, tmp_path: Path) -> None:
    log, beyond = min(partition.glob("*.log")), tmp_path / "99999999999999999999.log"
    shutil.copy(log, beyond)
    outcome = tiered_sidecar("inspect", beyond)
    assert outcome.code == 2
    assert "above 2^63-1: give --base-offset" in outcome.err
    assert tiered_sidecar("inspect", beyond, "--base-offset", str(int(log.name[:20]))).code == 0
    assert tiered_sidecar("inspect", beyond, "--base-offset", "99999999999999999999").code == 2
