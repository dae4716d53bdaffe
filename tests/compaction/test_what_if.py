"""`--what-if` against a dictionary: which keys keep another record than by offset, and what would be saved."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.cli.compact import directory_compaction
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.discovery.partition_directory import named_partition
from sidecar.errors import StagingFull
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting import work_files
from sidecar.rewriting.directory import forecast
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.what_if import KeptRecord, OtherWinners
from sidecar.snapshots.jobs import Forgetting
from tests.cli.running import in_this_process
from tests.compaction.directories import DAY_MS, HASH_KEY, compacted
from tests.compaction.partitions import partition_in
from tests.compaction.reference.batches import decode_segment
from tests.compaction.reference.ranks import sort_key
from tests.compaction.reference.transactions import TransactionTracker
from tests.golden import VERSIONS, partitions, wall_clock_ms

VERSION_HEADER = "version"


def winners(source: Path, count: int, rules: CompactionRules) -> dict[bytes, Record]:
    """The best record of each key in the first segments, as a reader would find it."""
    partition = partition_in(source)
    tracker = TransactionTracker(partition.aborted, partition.segments[0].base_offset)
    best: dict[bytes, Record] = {}
    for segment in partition.segments[:count]:
        for batch in decode_segment(segment.log):
            if batch.is_control:
                tracker.marker_is_idle(batch.last_offset, batch.producer_id, batch.marker_type, len(batch.records))
            elif not tracker.data_is_aborted(
                batch.last_offset, batch.producer_id, transactional=batch.is_transactional
            ):
                for record in batch.records:
                    if record.key is not None:
                        other = best.get(record.key, record)
                        best[record.key] = max(record, other, key=lambda found: sort_key(found, rules))
    return best


@pytest.mark.parametrize(("version", "split_bytes"), [*zip(VERSIONS, (3000, 1 << 26, 3000), strict=True)])
def test_other_winners_are_those_of_a_dictionary(version: str, split_bytes: int) -> None:
    rules = CompactionRules(wall_clock_ms(version))
    by_time = replace(rules, strategy=Strategy.TIMESTAMP)
    total = 0
    for path in partitions(version):
        outlooks = forecast(
            named_partition(path),
            [Strategy.TIMESTAMP],
            rules,
            LocalEngine(),
            Forgetting(rules.now_ms, DAY_MS),
            hash_key=HASH_KEY,
            split_bytes=split_bytes,
        )
        if not outlooks:
            continue
        first, second = outlooks
        count = sum(len(output.sources) for output in first.outputs)
        by_offset, by_timestamp = winners(path, count, rules), winners(path, count, by_time)
        differing = {key for key in by_offset if by_offset[key].offset != by_timestamp[key].offset}
        assert {other.key: (other.by_offset.offset, other.by_strategy.offset) for other in second.others} == {
            key: (by_offset[key].offset, by_timestamp[key].offset) for key in differing
        }
        assert list(first.others) == []
        total += len(differing)
        for outlook, wanted in ((first, rules), (second, by_time)):
            dry = compacted(path, None, wanted)
            assert (outlook.bytes_before, outlook.bytes_after) == (dry.bytes_before, dry.bytes_after)
            assert (outlook.records_before, outlook.records_after) == (dry.records_before, dry.records_after)
    assert total > 20


def test_any_number_of_keys_is_paired_in_order_of_the_winner() -> None:
    """Half of them without partner; what was found can be read again."""
    others = OtherWinners(CompactionRules(0))
    for number in range(2000):
        others.put(Record(number, 7, b"k%d" % number, b"old"), wins=False)
    for number in reversed(range(0, 4000, 2)):
        others.put(Record(9000 - number, 5, b"k%d" % number, None), wins=True)
    assert len(others) == 1000
    assert [other.by_strategy.offset for other in others] == [9000 - number for number in reversed(range(0, 2000, 2))]
    assert all(other.key == b"k%d" % other.by_offset.offset for other in others)
    assert next(iter(others)).by_strategy == KeptRecord(7002, 5, None, True)
    assert len(list(OtherWinners(CompactionRules(0)))) == 0


def test_the_collector_may_close_the_file_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    others = [OtherWinners(CompactionRules(0))]
    closing = threading.Thread(target=others.clear)
    closing.start()
    closing.join()
    assert ignored == []


def test_the_command_tells_counts_samples_and_writes_all_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty keys, of which every second one was overtaken by an older version."""
    records = [Record(key, 0, b"k%02d" % key, b"new", ((VERSION_HEADER, (9).to_bytes(8)),)) for key in range(20)]
    late = [
        Record(
            20 + key,
            0,
            b"k%02d" % key,
            b"old" if key % 2 else b"newer",
            ((VERSION_HEADER, (8 + 3 * (key % 2 == 0)).to_bytes(8)),),
        )
        for key in range(20)
    ]
    source = tmp_path / "cdc-0"
    source.mkdir()
    for base, batch in ((0, build_batch([*records, *late])), (40, build_batch([Record(40, 0, b"active")]))):
        (source / f"{base:020d}.log").write_bytes(batch)
    arguments: list[str | Path] = [
        "compact",
        source,
        "--what-if",
        "--header",
        VERSION_HEADER,
        "--keys-file",
        tmp_path / "keys",
    ]
    outcome = in_this_process(*arguments, "--json")
    assert outcome.code == 0
    found = {line["strategy"]: line for line in outcome.lines()}
    assert list(found) == ["offset", "timestamp", "header"]
    assert [line["keys_with_another_winner"] for line in found.values()] == [0, 0, 10]
    assert [line["records_saved"] for line in found.values()] == [20, 20, 20]
    assert len(found["header"]["samples"]) == 10
    keys = [json.loads(line) for line in (tmp_path / "keys").read_text().splitlines()]
    assert [key["key"] for key in keys] == [f"k{number:02d}" for number in range(1, 20, 2)]
    assert keys[0]["by_offset"] == {"offset": 21, "timestamp_ms": 0, "version": 8, "tombstone": False}
    assert keys[0]["by_strategy"] == {"offset": 1, "timestamp_ms": 0, "version": 9, "tombstone": False}
    table = in_this_process(*arguments)
    assert "k01" in table.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cdc-0", "keys"]

    writes = work_files.WorkFile.write_at

    def full(self: work_files.WorkFile, position: int, piece: bytes | memoryview) -> None:
        if self.place.name == "keys" and position:
            raise StagingFull(f"{self.place}: cannot be written: {os.strerror(errno.ENOSPC)}")
        writes(self, position, piece)

    monkeypatch.setattr(work_files.WorkFile, "write_at", full)
    assert in_this_process(*arguments).code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["cdc-0"]
    unlinks = Path.unlink

    def read_only(self: Path, missing_ok: bool = False) -> None:
        if self.name == "keys":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        unlinks(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", read_only)
    assert "keys: cannot be written: No space left on device" in in_this_process(*arguments).err


def test_a_keys_file_that_cannot_be_written_is_found_before_the_analysis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "t-0"
    source.mkdir()
    (source / f"{0:020d}.log").write_bytes(build_batch([Record(0, 0, b"k")]))
    monkeypatch.setattr(directory_compaction, "forecast", lambda *_arguments, **_options: pytest.fail("it has begun"))
    outcome = in_this_process("compact", source, "--what-if", "--keys-file", tmp_path / "none" / "keys")
    assert (outcome.code, outcome.out) == (3, "")
    assert "keys: cannot be written: No such file or directory" in outcome.err


@pytest.mark.parametrize("arguments", [["--what-if", "--dry-run"], ["--dry-run", "--keys-file", "keys"]])
def test_contradictions_are_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "t-0").mkdir()
    assert in_this_process("compact", tmp_path / "t-0", *arguments).code == 2
