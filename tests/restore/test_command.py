"""The command: its flags, what it prints, and how signals end it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.running import Outcome, in_this_process
from tests.golden import golden
from tests.real.product import PROGRAM
from tests.restore.archives import archived, batches_of, files_of, golden_topic_id, own_log_dir
from tests.restore.test_interruptions import HANGS_AT_THE_THIRD_SEGMENT

ID = str(golden_topic_id("orders"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden archive in a directory."""
    root = tmp_path_factory.mktemp("archive")
    for key, body in archived().objects.items():
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(body)
    return root


def restoring(archive: Path, log_dir: Path, *arguments: str) -> Outcome:
    return in_this_process(
        "restore", "--archive", archive, "--to", log_dir, "--topic", "orders", "--topic-id", ID, *arguments
    )


def test_a_partition_in_another_log_dir_of_the_broker_is_refused(archive: Path, tmp_path: Path) -> None:
    log_dir, other = own_log_dir(tmp_path), tmp_path / "other"
    (other / "orders-1").mkdir(parents=True)
    (tmp_path / "link").symlink_to(log_dir)
    log_dirs = f"broker.log_dirs={json.dumps([str(tmp_path / 'link'), str(other)])}"
    refused = restoring(archive, log_dir, "--set", log_dirs)
    assert refused.code == 1
    assert f"{other / 'orders-1'}: the partition is in this log dir of the broker" in refused.err
    assert f"--to {other}" in refused.err
    assert [path.name for path in log_dir.iterdir()] == ["meta.properties"]
    assert restoring(archive, log_dir, "--set", log_dirs, "--partition", "0").code == 0
    # Settings of another broker say nothing of this one.
    elsewhere = restoring(archive, log_dir, "--set", f'broker.log_dirs=["{other}"]', "--partition", "1")
    assert elsewhere.code == 0, elsewhere.err


def test_another_log_dir_that_cannot_be_read_is_named(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk may have failed, and be why the partition is restored. What it has is unknown."""
    log_dir, other, stat = own_log_dir(tmp_path), tmp_path / "other", Path.stat

    def failing(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path == other / "orders-0":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", failing)
    log_dirs = f"broker.log_dirs={json.dumps([str(log_dir), str(other)])}"
    refused = restoring(archive, log_dir, "--set", log_dirs)
    assert refused.code == 3
    assert f"{other / 'orders-0'}: cannot be read: Input/output error" in refused.err
    assert [path.name for path in log_dir.iterdir()] == ["meta.properties"]


def test_a_table_for_people_and_json_for_programs(archive: Path, tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    plan = restoring(archive, log_dir, "--dry-run")
    assert plan.code == 0
    assert "nothing was done" in plan.out
    assert [path.name for path in log_dir.iterdir()] == ["meta.properties"]
    done = restoring(archive, log_dir, "--partition", "1", "--quiet")
    assert done.code == 0
    (reported,) = done.err.splitlines()
    assert "retention of orders is not known here" in reported
    assert "orders-1" in done.out
    assert "orders-0" not in done.out
    done = restoring(archive, log_dir, "--partition", "0", "--json")
    (report,) = done.lines()
    assert (report["kind"], report["version"], report["dry_run"]) == ("restore", 1, False)
    (row,) = report["partitions"]
    expected = {
        "state": "restored",
        "start_offset": 0,
        "end_offset": 964,
        "segments": 8,
        "topic_id": ID,
        "problem": None,
    }
    assert {name: row[name] for name in expected} == expected


def test_a_plan_reports_a_lack_of_room_as_the_run_does(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, usage = own_log_dir(tmp_path), shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    run, plan = restoring(archive, log_dir), restoring(archive, log_dir, "--dry-run")
    assert (run.code, plan.code) == (3, 3)
    assert run.err.startswith(f"error: {log_dir}: the restore needs ")
    assert plan.err.endswith(run.err)
    assert "Plan for" in plan.out
    (failed,) = restoring(archive, log_dir, "--json").lines()
    (planned,) = restoring(archive, log_dir, "--dry-run", "--json").lines()
    assert planned.items() >= failed.items()
    assert [row["state"] for row in planned["partitions"]] == ["planned", "planned"]
    assert not list(log_dir.glob("orders*"))


def test_times_and_ranges_are_read(archive: Path, tmp_path: Path) -> None:
    source = batches_of(golden("4.3.0") / "logs" / "orders-0")
    until_ms = source[len(source) // 2].max_timestamp_ms
    ends = []
    for number, text in enumerate([str(until_ms), f"{_iso(until_ms)}Z", f"{_iso(until_ms)}+00:00"]):
        (tmp_path / str(number)).mkdir()
        done = restoring(
            archive, own_log_dir(tmp_path / str(number)), "--partition", "0", "--until-timestamp", text, "--json"
        )
        ends.append(done.lines()[0]["partitions"][0]["end_offset"])
    assert len(set(ends)) == 1
    assert 0 < ends[0] < 964
    done = restoring(archive, own_log_dir(tmp_path), "--partition", "0", "--offset-range", "300:", "--json")
    row = done.lines()[0]["partitions"][0]
    assert (row["start_offset"], row["end_offset"]) == (300, 964)


def _iso(milliseconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--offset-range", "5:5", "--partition", "0"], "FROM below TO"),
        (["--offset-range", "a:b", "--partition", "0"], "FROM below TO"),
        (["--offset-range", "5:9"], "needs exactly one --partition"),
        (["--until-timestamp", "2026-11-21T12:00:00"], "time zone missing"),
        (["--until-timestamp", "yesterday"], "milliseconds since 1970"),
        (["--until-timestamp", "1", "--offset-range", "1:2", "--partition", "0"], "give only one of"),
        (["--until-timestamp", "9" * 26], "not a time in milliseconds"),
        (["--until-timestamp", "1795252800000000"], "are these microseconds?"),
        (["--partition", "9"], "has no match for"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], reported: str, archive: Path, tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    done = restoring(archive, log_dir, *arguments, "--json")
    assert done.code == 2
    assert reported in done.err
    assert reported in done.lines()[0]["error"]
    assert not list(log_dir.glob("orders*"))


def test_a_mistyped_topic_is_looked_for_in_the_archive_before_a_cluster_is_asked(archive: Path, tmp_path: Path) -> None:
    done = restoring(
        archive, own_log_dir(tmp_path), "--topic", "odrers", "--bootstrap-server", "127.0.0.1:1", "--dry-run"
    )
    assert done.code == 2, done.err
    assert "has no topic odrers" in done.err
    assert "did you mean orders" in done.err


@pytest.mark.leaves_damage("size_mismatch")
def test_a_partition_that_stopped_is_reported(archive: Path, tmp_path: Path) -> None:
    copy = tmp_path / "archive"
    for path in archive.rglob("*"):
        if path.is_file():
            target = copy / path.relative_to(archive)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    damaged = sorted(copy.glob("*/orders/0/*/segments/*.log"))[2]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    done = restoring(copy, own_log_dir(tmp_path))
    assert done.code == 3
    assert f"{damaged.relative_to(copy)}, at byte" in done.err
    assert "orders-0.restoring stays, and no broker starts while it is there" in done.err


@pytest.mark.parametrize(
    ("number", "code", "flags"),
    [(signal.SIGTERM, 143, []), (signal.SIGINT, 130, ["--json"]), (signal.SIGTERM, 143, ["--json"])],
)
def test_a_signal_ends_it_tidily(
    number: signal.Signals, code: int, flags: list[str], archive: Path, tmp_path: Path
) -> None:
    log_dir = own_log_dir(tmp_path)
    arguments = [
        *flags,
        "restore",
        "--archive",
        str(archive),
        "--to",
        str(log_dir),
        "--topic",
        "orders",
        "--topic-id",
        ID,
    ]
    # A suite that a shell runs in the background passes on that SIGINT is ignored.
    hears_interrupts = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", hears_interrupts + HANGS_AT_THE_THIRD_SEGMENT, *arguments, "--workers", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"third\n"
        process.send_signal(number)
        output, errors = process.communicate()
    assert process.returncode == code, errors
    assert b"Traceback" not in errors
    reported = errors.decode()
    assert (
        f"interrupted: orders-0.restoring, orders-1.restoring in {log_dir} stay, and no broker starts in a log dir with "
        "unfinished directories" in reported
    )
    assert "Run the same command again" in reported
    assert not list(log_dir.rglob("*.part"))
    # The third may have come to its end before the signal was heard.
    whole = list(log_dir.glob("orders-0.restoring/*.log"))
    assert 2 <= len(whole) < 8
    if flags:
        answer = json.loads(output)
        assert (answer["kind"], answer["interrupted"], answer["exit_code"]) == ("restore", True, code)
        assert (answer["resumable"], answer["finished"]) == (True, [])
        fetched = {"segments": len(whole), "log_bytes": sum(path.stat().st_size for path in whole)}
        assert answer["unfinished"][0] == {"partition": 0, "directory": "orders-0.restoring", **fetched}
    else:
        assert output == b""
    assert not (log_dir / "orders-0").exists()
    assert restoring(archive, log_dir).code == 0
    assert f"{964:020d}.log" in files_of(log_dir / "orders-0")


def test_on_a_terminal_a_bar_tells_how_far_it_is(archive: Path, tmp_path: Path) -> None:
    reading, terminal = os.openpty()
    arguments = ["restore", "--archive", archive, "--to", own_log_dir(tmp_path), "--topic", "orders", "--topic-id", ID]
    with subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        # The last one who writes closes a terminal: reading it fails then.
        with suppress(OSError):
            while chunk := os.read(reading, 4096):
                shown += chunk
    os.close(reading)
    assert process.returncode == 0, shown
    assert b"12/12 segments" in shown
    assert b"\xe2\x94\x81" in shown  # the bar
