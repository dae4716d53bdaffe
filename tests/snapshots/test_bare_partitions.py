"""Partitions without any snapshot, and with no segment base that lacks one: a broker that starts would forget their producers.

What it does then, and that it does not with the snapshot made here, is seen on a real one in tests/real/test_snapshot_danger.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from producer_state.snapshot import read_snapshot
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from tests.cli.running import in_this_process
from tests.snapshot_files import write_snapshot
from tests.snapshots.log_dirs import DAY_MS, NOW_MS, data, healed, log_dir_of, snapshots_in, tree


def test_the_state_at_the_logs_end_is_written_once(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=1)
    report = healed(log_dir)
    (healing,) = report.worth_showing
    assert (report.exit_code, healing.plan.missing, healing.created) == (0, (), [2])
    assert report.as_json()["partitions"][0]["log_end"] == 2
    (entry,) = read_snapshot((log_dir / "t-0" / f"{2:020d}.snapshot").read_bytes())
    assert (entry.producer_id, entry.last_sequence, entry.last_offset) == (1, 1, 1)
    again = healed(log_dir)
    assert (again.exit_code, again.worth_showing, again.healings[0].verified) == (0, [], [2])


def test_a_dry_run_says_so_and_reads_nothing(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=1)
    before = tree(log_dir)
    done = in_this_process("--json", "snapshots", "heal", "--dry-run", log_dir)
    assert done.code == 0, done
    (row,) = done.lines()[0]["partitions"]
    assert (row["replayed"], row["log_end"], row["missing"], row["created"]) == (False, None, [], [])
    assert "there is no snapshot" in row["note"]
    assert tree(log_dir) == before


@pytest.mark.parametrize("what", ["no producers", "expired producers", "an empty log"])
def test_where_an_empty_snapshot_is_right_none_is_made(what: str, tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=1)
    log = log_dir / "t-0" / f"{0:020d}.log"
    if what == "no producers":
        log.write_bytes(build_batch([Record(0, NOW_MS, None, b"v")]))
    elif what == "expired producers":
        log.write_bytes(data(0, timestamp_ms=NOW_MS - 9 * DAY_MS) + build_batch([Record(1, NOW_MS, None, b"v")]))
    else:
        log.write_bytes(b"")
    report = healed(log_dir)
    assert (report.exit_code, report.worth_showing, snapshots_in(log_dir / "t-0")) == (0, [], [])


@pytest.mark.parametrize("damage", ["cut short", "a flipped bit"])
def test_a_log_that_is_not_whole_is_a_problem(damage: str, tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=1)
    log = log_dir / "t-0" / f"{0:020d}.log"
    content = log.read_bytes()
    log.write_bytes(content[:-1] if damage == "cut short" else content[:-1] + bytes([content[-1] ^ 1]))
    report = healed(log_dir)
    assert (report.exit_code, snapshots_in(log_dir / "t-0")) == (3, [])
    assert str(log) in report.healings[0].problem


def test_a_log_start_above_every_base(tmp_path: Path) -> None:
    """DeleteRecords: nothing is missing, and a snapshot at or below the start would be deleted."""
    log_dir = log_dir_of(tmp_path, segments=3)
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    (healing,) = healed(log_dir).healings
    assert (healing.plan.missing, healing.created) == ((), [6])


@pytest.mark.parametrize("at_end", [write_snapshot([]), b"no snapshot"])
def test_a_snapshot_that_is_there_is_judged_as_any_other(at_end: bytes, tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=1)
    (log_dir / "t-0" / f"{2:020d}.snapshot").write_bytes(at_end)
    report = healed(log_dir)
    assert (report.exit_code, report.healings[0].created, report.healings[0].plan.bare) == (4, [], False)
