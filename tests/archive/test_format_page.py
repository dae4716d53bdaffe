"""docs/reference/archive-format.md is true, and enough: the reader below was written from the page, without the product's code."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import pytest

from tests.archive.format_page import page_blocks, true_blocks


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def read_commits(commits: list[bytes]) -> dict[str, Any]:
    """Sections 3 and 5: the state that these commits add up to."""
    segments: dict[str, Any] = {}
    holes: list[dict[str, Any]] = []
    end = epoch = None
    previous = None
    for number, data in enumerate(commits):
        commit = json.loads(data)["commit"]
        inner = data[10:-77]
        assert data == b'{"commit":' + inner + b',"sha256":"' + hashlib.sha256(inner).hexdigest().encode() + b'"}'
        assert (commit["format"], commit["version"], commit["number"]) == ("tiered-sidecar-commit", 1, number)
        assert commit["previous_sha256"] == previous
        assert epoch is None or commit["writer"]["leader_epoch"] >= epoch
        previous, epoch = hashlib.sha256(data).hexdigest(), commit["writer"]["leader_epoch"]
        for action in commit["actions"]:
            kind = action.pop("type")
            assert kind in {"add", "lost"}, "the example has no other kind"
            span = action["segment"] if kind == "add" else action
            assert end is None or span["base_offset"] == end
            end = span["end_offset"]
            if kind == "add":
                segments[span["segment_id"]] = span
            else:
                holes.append(span)
    return {
        "segments": sorted(segments.values(), key=lambda s: s["base_offset"]),
        "holes": holes,
        "end_offset": end,
        "commit_sha256": previous,
        "highest_leader_epoch": epoch,
    }


@pytest.fixture(scope="module")
def page() -> dict[str, str]:
    """The blocks of the page."""
    return page_blocks()


def line(page: dict[str, str], name: str) -> bytes:
    """The exact bytes of an object that the page shows as one line."""
    return page[name].removesuffix("\n").encode()


def test_the_examples_are_what_the_code_writes(page: dict[str, str]) -> None:
    assert page == true_blocks(), "run: python -m tests.archive.format_page"


def test_a_reader_written_from_the_page_gets_the_state_that_the_checkpoint_has(page: dict[str, str]) -> None:
    state = read_commits([line(page, f"commit {number}") for number in range(3)])
    data = line(page, "checkpoint 2")
    inner = data[14:-77]
    assert data == b'{"checkpoint":' + inner + b',"sha256":"' + hashlib.sha256(inner).hexdigest().encode() + b'"}'
    checkpoint = json.loads(inner)
    assert {name: checkpoint[name] for name in state} == state
    assert (state["end_offset"], len(state["segments"]), len(state["holes"])) == (9, 2, 1)


def test_a_reader_written_from_the_page_cuts_the_parts_out(page: dict[str, str]) -> None:
    segment = read_commits([line(page, "commit 0")])["segments"][0]
    objects = {name: bytes.fromhex(page[name]) for name in ("log", "indexes")}
    parts = {}
    for name, part in segment["parts"].items():
        source = objects["log" if name == "log" else "indexes"]
        parts[name] = source[part["position"] : part["position"] + part["size_bytes"]]
        assert f"{crc32c(parts[name]):08x}" == part["crc32c"], name
    assert parts["offset_index"] == b""
    assert struct.unpack(">qi", parts["time_index"]) == (segment["max_timestamp_ms"], 4)
    assert parts["leader_epochs"] == b"0\n2\n0 0\n5 4\n"
    assert parts["empty_snapshot"].hex() == "000148674bc700000000"
    assert parts["flat_leader_epochs"] == b"0\n1\n0 0\n"
    version, _, entries, producer_id = struct.unpack_from(">hIiq", parts["producer_snapshot"])
    assert (version, entries, producer_id) == (1, 1, 4000)
    assert len(objects["indexes"]) == sum(
        part["size_bytes"] for name, part in segment["parts"].items() if name != "log"
    )


def test_the_log_holds_the_batches_that_the_page_names(page: dict[str, str]) -> None:
    log, position, offsets = bytes.fromhex(page["log"]), 0, []
    while position < len(log):
        base, length, epoch, magic, crc, attributes, delta = struct.unpack_from(">qiibIhi", log, position)
        assert (magic, attributes) == (2, 0)
        assert crc32c(log[position + 21 : position + 12 + length]) == crc
        offsets.append((base, base + delta, epoch))
        position += 12 + length
    assert offsets == [(0, 2, 0), (3, 3, 0), (4, 4, 5)]
