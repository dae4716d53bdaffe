"""The lines of `inspect X.log`: their fields, and what happens to files that are damaged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.errors import CorruptFile, PartitionError, SegmentChanged
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.legacy import build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.dump import dump_batches, dump_records
from sidecar.logformat.headers import Codec
from tests.logformat.golden_bytes import ABORT_MARKER, COMMIT_MARKER, EMPTIED, MESSAGE_V0, THREE_RECORDS


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "00000000000000000100.log"
    path.write_bytes(data)
    return path


def test_a_batch_is_one_object(tmp_path: Path) -> None:
    first, second = dump_batches(written(tmp_path, THREE_RECORDS + COMMIT_MARKER), base_offset=100)
    assert first == {
        "position": 0,
        "size_bytes": 97,
        "base_offset": 100,
        "last_offset": 102,
        "record_count": 3,
        "magic": 2,
        "codec": "none",
        "timestamp_type": 0,
        "leader_epoch": 7,
        "base_timestamp_ms": 1_700_000_000_000,
        "max_timestamp_ms": 1_700_000_000_005,
        "delete_horizon_ms": None,
        "producer_id": 4242,
        "producer_epoch": 3,
        "base_sequence": 11,
        "last_sequence": 13,
        "transactional": False,
        "control": False,
        "marker": None,
        "coordinator_epoch": -1,
        "crc": 2327926296,
        "crc_ok": True,
    }
    assert (second["transactional"], second["control"], second["marker"], second["coordinator_epoch"]) == (
        True,
        True,
        "commit",
        9,
    )
    assert json.loads(json.dumps(first)) == first


def test_a_record_is_one_object(tmp_path: Path) -> None:
    *_, third, marker = dump_records(written(tmp_path, THREE_RECORDS + ABORT_MARKER))
    assert third == {
        "offset": 102,
        "batch_base_offset": 100,
        "timestamp_ms": 1_699_999_999_997,
        "timestamp_type": 0,
        "key": None,
        "value": "eA==",
        "headers": [["v", "AAAAAAAAACo="]],
        "producer_id": 4242,
        "producer_epoch": 3,
        "sequence": 13,
        "leader_epoch": 7,
        "transactional": False,
        "control": None,
    }
    assert (marker["control"], marker["offset"], marker["sequence"], marker["transactional"]) == (
        "abort",
        103,
        -1,
        True,
    )


def test_unknown_control_types_are_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, build_batch([Record(0, 5, b"\x00\x00\x00\x06", b"")], control=True))
    assert [record["control"] for record in dump_records(path)] == [6]
    assert [batch["marker"] for batch in dump_batches(path)] == [6]


def test_a_horizon_takes_the_place_of_the_base_timestamp(tmp_path: Path) -> None:
    (batch,) = dump_batches(written(tmp_path, build_batch([Record(0, 5)], delete_horizon_ms=900)))
    assert (batch["base_timestamp_ms"], batch["delete_horizon_ms"]) == (None, 900)


def test_a_wrapper_shows_what_only_decompression_tells(tmp_path: Path) -> None:
    records = [Record(70, 1), Record(72, 2), Record(75, 3)]
    path = written(tmp_path, MESSAGE_V0 + build_legacy_wrapper(records, codec=Codec.SNAPPY))
    plain, wrapper = dump_batches(path)
    assert (plain["base_offset"], plain["record_count"], plain["timestamp_type"]) == (0, 1, -1)
    assert (wrapper["base_offset"], wrapper["last_offset"], wrapper["record_count"]) == (70, 75, 3)
    assert wrapper["codec"] == "snappy"
    assert [record["batch_base_offset"] for record in dump_records(path)] == [0, 70, 70, 70]


def test_header_names_that_are_no_utf_8_can_be_printed(tmp_path: Path) -> None:
    path = written(tmp_path, build_batch([Record(0, 0, headers=(("k\udcff", None),))]))
    (record,) = dump_records(path)
    assert record["headers"] == [["k\ufffd", None]]


def test_emptied_batches_are_shown_and_have_no_records(tmp_path: Path) -> None:
    path = written(tmp_path, EMPTIED)
    assert [batch["record_count"] for batch in dump_batches(path)] == [0]
    assert list(dump_records(path)) == []


def until_corrupt(lines: Iterator[dict[str, Any]]) -> tuple[list[dict[str, Any]], CorruptFile | None]:
    """What came before the error, and the error."""
    found: list[dict[str, Any]] = []
    try:
        for line in lines:
            found.append(line)  # noqa: PERF402 - a comprehension would lose them with the error
    except CorruptFile as error:
        return found, error
    return found, None


def test_batches_behind_a_wrong_checksum_are_still_shown(tmp_path: Path) -> None:
    path = written(tmp_path, THREE_RECORDS[:-1] + b"\x2b" + COMMIT_MARKER)
    batches, error = until_corrupt(dump_batches(path))
    assert [(batch["base_offset"], batch["crc_ok"]) for batch in batches] == [(100, False), (103, True)]
    assert "log, at byte 0, offset 100: checksum" in str(error)
    records, error = until_corrupt(dump_records(path))
    assert records == []
    assert "log, at byte 0, offset 100: checksum" in str(error)


@pytest.mark.parametrize("tail", [b"\x00" * 30, COMMIT_MARKER[:50], b"\x01" * 80])
def test_what_does_not_end_well_is_reported_behind_what_is_good(tmp_path: Path, tail: bytes) -> None:
    path = written(tmp_path, THREE_RECORDS + tail)
    for lines, count in ((dump_batches(path), 1), (dump_records(path), 3)):
        found, error = until_corrupt(lines)
        assert len(found) == count
        assert "at byte 97" in str(error)


def test_a_batch_that_does_not_decode_names_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, build_legacy_wrapper([Record(3)], codec=Codec.GZIP) * 2)
    with pytest.raises(CorruptFile, match=r"log, at byte \d+, offset 3: offset 3, expected at least 4"):
        list(dump_records(path))


@pytest.mark.parametrize("dump", [dump_batches, dump_records])
def test_files_that_cannot_be_read(tmp_path: Path, dump: Callable[[Path], Iterator[dict[str, Any]]]) -> None:
    with pytest.raises(SegmentChanged):
        list(dump(tmp_path / "00000000000000000000.log"))
    with pytest.raises(PartitionError):
        list(dump(tmp_path))
