"""Directories that cannot be compacted, and strange ones that can: the source stays, and nothing half done is left."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.errors import CorruptFile, PartitionError, SegmentChanged, SettingsError
from sidecar.logformat.batches import scan_file
from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting.survey import Survey, survey
from tests.cli.running import ROOT, command, environment, in_this_process
from tests.compaction.directories import DAY_MS, check_against_reference, compacted
from tests.golden import golden

NOW_MS = 1_700_000_000_000
RULES = CompactionRules(NOW_MS)
SOURCE = ("4.3.0", "compacted-0")


def damaged(directory: Path, name: str, position: int) -> Path:
    """A copy of a golden directory with one bit of a log turned around; returns the log."""
    path = shutil.copytree(golden(SOURCE[0]) / "logs" / SOURCE[1], directory / SOURCE[1])
    log = path / name
    data = bytearray(log.read_bytes())
    data[position] ^= 1
    log.write_bytes(data)
    return log


def directory_of(parent: Path, segments: Sequence[Sequence[bytes]]) -> Path:
    """A partition directory with these batches; bases are those of the first batches."""
    path = parent / "topic-0"
    path.mkdir(parents=True)
    for batches in segments:
        base = int.from_bytes(batches[0][:8])
        (path / f"{base:020d}.log").write_bytes(b"".join(batches))
    return path


def one(offset: int, key: bytes | None, value: bytes | None = b"v") -> bytes:
    return build_batch([Record(offset, NOW_MS + offset, key, value)], leader_epoch=0)


@pytest.mark.parametrize(
    ("is_gone", "text"), [(True, "vanished while it was read"), (False, "10 bytes, 70 when it was listed; run again")]
)
@pytest.mark.parametrize("flag", ["--dry-run", "--what-if"])
def test_a_directory_that_a_broker_writes_to_is_reported_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, text: str, *, is_gone: bool
) -> None:
    path = directory_of(tmp_path, [[one(0, b"a")], [one(1, b"b")]])
    log = path / f"{0:020d}.log"

    def survey_while_it_changes(*arguments: Any, **others: Any) -> Survey:
        if is_gone:
            log.unlink()
        found = survey(*arguments, **others)
        os.truncate(log, 10)
        return found

    monkeypatch.setattr("sidecar.rewriting.directory.survey", survey_while_it_changes)
    found = in_this_process("compact", path, flag, "--quiet", "--engine", "local")
    advice = "If a broker uses this directory, stop it first, or compact a copy"
    assert (found.code, found.err) == (3, f"error: {log}: {text}. {advice}\n")


@pytest.mark.parametrize("position", [70, 300])
def test_a_damaged_batch_is_reported_with_its_place_and_nothing_is_left(tmp_path: Path, position: int) -> None:
    log = damaged(tmp_path / "logs", f"{0:020d}.log", position)
    before = log.read_bytes()
    with pytest.raises(CorruptFile, match="checksum") as caught:
        compacted(log.parent, tmp_path / "out" / "topic-0", RULES)
    where = [
        int(start)
        for columns in scan_file(log, check_crc=False)
        for start, size in zip(columns.position, columns.size_bytes, strict=True)
        if start <= position < start + size
    ]
    assert (caught.value.file, [caught.value.position]) == (str(log), where)
    assert list((tmp_path / "out").iterdir()) == []
    assert log.read_bytes() == before


def test_damage_above_an_open_transaction_is_not_copied(tmp_path: Path) -> None:
    """Rolled segments there are no work of the stages, which check checksums, and are not the active one either."""
    opened = build_batch(
        [Record(1, NOW_MS, b"k")], transactional=True, producer_id=7, producer_epoch=0, base_sequence=0
    )
    path = directory_of(tmp_path, [[one(0, b"a")], [opened], [one(2, b"b")], [one(3, b"c")]])
    log = path / f"{2:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptFile, match="checksum") as caught:
        compacted(path, tmp_path / "out" / "topic-0", RULES)
    assert str(log) in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []


def test_damage_in_a_producer_field_is_reported_as_damage(tmp_path: Path) -> None:
    """Replay looks at headers before their checksums are: what it stumbles over is explained."""
    log = damaged(tmp_path / "logs", f"{0:020d}.log", 12 + 8 + 40)
    with pytest.raises(CorruptFile):
        compacted(log.parent, tmp_path / "out", RULES)
    outcome = in_this_process("compact", log.parent, "--out", tmp_path / "out")
    assert (outcome.code, outcome.out) == (3, "")
    assert str(log) in outcome.err
    assert "at byte" in outcome.err
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    source = golden(SOURCE[0]) / "logs" / SOURCE[1]
    # Compiled kernels are kept on disk, too: the limit is to hit the output, so they must be there already.
    with tempfile.TemporaryDirectory() as elsewhere:
        warm_up = command("compact", source, "--out", f"{elsewhere}/out", "--engine", "local")
        subprocess.run(warm_up, env=environment(), cwd=ROOT, capture_output=True, timeout=300, check=True)
    done = subprocess.run(
        command("compact", source, "--out", tmp_path / "out", "--engine", "local"),
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        # No file of this process may become larger: the system says so where a disk would be full.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert done.returncode == 3
    assert "cannot be written: File too large; free some space there" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_keys_of_no_bytes_and_of_a_mebibyte(tmp_path: Path) -> None:
    large = b"k" * 1024**2
    keys = [b"", large, b"", large[:-1], large, b"a"]
    source = directory_of(tmp_path, [[one(offset, key) for offset, key in enumerate(keys)], [one(6, b"active")]])
    for exact in (False, True):
        rules = CompactionRules(NOW_MS, exact_keys=exact)
        compaction = compacted(source, tmp_path / f"out-{exact}", rules)
        check_against_reference(source, compaction, rules)
        assert (compaction.records_before, compaction.records_after) == (6, 4)


@pytest.mark.parametrize("strategy", [Strategy.OFFSET, Strategy.TIMESTAMP])
def test_a_log_of_nothing_but_tombstones(tmp_path: Path, strategy: Strategy) -> None:
    keys = [b"%d" % (offset % 5) for offset in range(20)]
    source = directory_of(tmp_path, [[one(offset, key, None) for offset, key in enumerate(keys)], [one(20, b"active")]])
    rules = CompactionRules(NOW_MS, strategy=strategy)
    first = compacted(source, tmp_path / "1" / "topic-0", rules)
    check_against_reference(source, first, rules)
    assert first.records_after == 5
    assert first.out is not None
    later = CompactionRules(NOW_MS + DAY_MS, strategy=strategy)
    second = compacted(first.out, tmp_path / "2" / "topic-0", later)
    check_against_reference(first.out, second, later)
    assert second.records_after == 0
    # The end of the range stays, as a batch without records.
    assert second.bytes_after == 61


def test_a_log_of_nothing_but_markers(tmp_path: Path) -> None:
    markers = [
        build_marker(
            offset,
            commit=offset % 2 == 0,
            producer_id=7,
            producer_epoch=offset,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
            leader_epoch=0,
        )
        for offset in range(6)
    ]
    source = directory_of(tmp_path, [markers[:3], markers[3:5], markers[5:]])
    turns = [source, *(tmp_path / str(turn) / "topic-0" for turn in range(3))]
    for turn, (before, after) in enumerate(pairwise(turns)):
        rules = CompactionRules(NOW_MS + turn * DAY_MS)
        compaction = compacted(before, after, rules)
        check_against_reference(before, compaction, rules)
    assert compaction.records_after == 0


def test_records_without_key_go_and_are_counted(tmp_path: Path) -> None:
    keys = [None, b"a", None, b"b"]
    source = directory_of(tmp_path, [[one(offset, key) for offset, key in enumerate(keys)], [one(4, b"active")]])
    outcome = in_this_process("compact", source, "--dry-run", "--json")
    assert outcome.code == 0
    (report,) = outcome.lines()
    assert (report["unkeyed_records"], report["records_before"], report["records_after"]) == (2, 4, 2)
    assert "2 records have no key" in in_this_process("compact", source, "--dry-run").err


def test_the_torn_tail_of_the_active_segment_is_left_out_with_a_note(tmp_path: Path) -> None:
    source = directory_of(tmp_path, [[one(0, b"a")], [one(1, b"a"), one(2, b"b")[:-5]]])
    compaction = compacted(source, tmp_path / "out", RULES)
    assert (tmp_path / "out" / f"{1:020d}.log").read_bytes() == one(1, b"a")
    assert len(compaction.survey.remarks) == 1
    assert "is cut" in compaction.survey.remarks[0]


@pytest.mark.parametrize("tail", [one(2, b"b")[:-5], bytes(512)], ids=["cut", "zeros"])
@pytest.mark.parametrize("recovery_point", [None, 2, 3])
def test_a_torn_tail_that_the_broker_had_flushed_is_damage(
    recovery_point: int | None, tail: bytes, tmp_path: Path
) -> None:
    """None: the broker shut down cleanly, so that its next start does not recover the log."""
    source = directory_of(tmp_path, [[one(0, b"a")], [one(1, b"a"), tail]])
    if recovery_point is None:
        (tmp_path / ".kafka_cleanshutdown").touch()
    else:
        (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n1\ntopic 0 {recovery_point}\n")
    outcome = in_this_process("compact", source, "--out", tmp_path / "out")
    if recovery_point == 2:
        assert (outcome.code, (tmp_path / "out").is_dir()) == (0, True)
    else:
        assert (outcome.code, (tmp_path / "out").exists()) == (3, False)
        assert f"{source / f'{1:020d}.log'}, at byte {len(one(1, b'a'))}" in outcome.err


@pytest.mark.parametrize("is_gone", [False, True])
def test_missing_offsets_are_reported_unless_the_log_is_known_to_be_cleaned(is_gone: bool, tmp_path: Path) -> None:
    source = directory_of(tmp_path, [[one(0, b"a")], [one(1, b"a")], [one(2, b"c")], [one(3, b"active")]])
    log = source / f"{1:020d}.log"
    if is_gone:
        log.unlink()
    else:
        log.write_bytes(b"")
    outcome = in_this_process("compact", source, "--dry-run")
    assert outcome.code == 0
    found = [line for line in outcome.err.splitlines() if "offsets [1, 2) are missing" in line]
    assert len(found) == 1
    assert found[0].endswith(f"a .log file is missing in {source}, or has lost its content")
    (source.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\n{source.name.replace('-', ' ')} 3\n")
    assert "are missing" not in in_this_process("compact", source, "--dry-run").err


def test_a_damaged_active_segment_is_refused(tmp_path: Path) -> None:
    active = bytearray(one(1, b"a") + one(2, b"b"))
    active[66] ^= 1
    source = directory_of(tmp_path, [[one(0, b"a")], [bytes(active)]])
    with pytest.raises(CorruptFile, match="checksum"):
        compacted(source, tmp_path / "out", RULES)


def test_directories_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty-0").mkdir()
    with pytest.raises(PartitionError, match="no segments"):
        compacted(tmp_path / "empty-0", None, RULES)
    for name in ("absent-0", "no partition"):
        with pytest.raises(SettingsError):
            compacted(tmp_path / name, None, RULES)
    source = directory_of(tmp_path, [[one(0, b"a")], [one(1, b"a")]])
    (source / f"{0:020d}.log.swap").touch()
    with pytest.raises(SegmentChanged, match="in progress"):
        compacted(source, None, RULES)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--out", "out", "--dry-run"],
        ["--out", "out", "--header", "v"],
        ["--out", "out", "--segment-bytes", "13"],
        ["--out", "out", "--segment-bytes", "2147483648"],
        ["--out", "out", "--strategy", "largest"],
    ],
)
def test_wrong_usage_is_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    source = directory_of(tmp_path, [[one(0, b"a")], [one(1, b"a")]])
    placed = [str(tmp_path / "out") if argument == "out" else argument for argument in arguments]
    assert in_this_process("compact", source, *placed).code == 2
    assert not (tmp_path / "out").exists()


def test_out_is_neither_a_file_nor_a_directory_with_files(tmp_path: Path) -> None:
    source = directory_of(tmp_path, [[one(0, b"a")], [one(1, b"a")]])
    file, full = tmp_path / "file", tmp_path / "full"
    full.mkdir()
    for path in (file, full / "file"):
        path.touch()
    for out in (file, full):
        outcome = in_this_process("compact", source, "--out", out)
        assert outcome.code == 2
        assert f"--out {out} exists and is not an empty directory" in outcome.err
