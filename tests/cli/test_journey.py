"""Back-fill, status, verify and inspect on what a real broker wrote, through the command line."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.running import ROOT, command, environment, in_this_process, tiered_sidecar
from tests.daemon.looping import eventually
from tests.golden import golden

ONE_TOPIC = "orders"


@pytest.fixture(scope="module")
def log_dir() -> Path:
    return golden("3.9.1") / "logs"


@pytest.fixture(scope="module")
def archive(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("journey")
    outcome = tiered_sidecar(*backfill(log_dir, directory), "--json")
    assert outcome.code == 0, outcome.err
    (report,) = outcome.lines()
    assert report["kind"] == "backfill"
    assert {row["topic"] for row in report["partitions"]} == {ONE_TOPIC}
    assert all(row["segments_uploaded"] == row["segments_planned"] > 0 for row in report["partitions"])
    return directory / "archive"


def backfill(log_dir: Path, directory: Path) -> list[str]:
    return [
        *("backfill", "--log-dir", str(log_dir), "--archive", str(directory / "archive"), "--assume-leader"),
        *("--state-dir", str(directory / "state"), "--topic", ONE_TOPIC),
    ]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(log_dir: Path, tmp_path: Path) -> None:
    outcome = tiered_sidecar(*backfill(log_dir, tmp_path), "--dry-run", "--json")
    (report,) = outcome.lines()
    assert report["dry_run"] is True
    assert report["planned"]["orders-0"][0]["base_offset"] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_has_the_end_of_what_is_archived(log_dir: Path, tmp_path: Path) -> None:
    (before,) = in_this_process(*backfill(log_dir, tmp_path), "--dry-run", "--json").lines()
    assert {row["end_offset"] for row in before["partitions"]} == {None}
    (done,) = in_this_process(*backfill(log_dir, tmp_path), "--json").lines()
    (after,) = in_this_process(*backfill(log_dir, tmp_path), "--dry-run", "--json").lines()
    ends = [[row["end_offset"] for row in report["partitions"]] for report in (done, after)]
    assert ends[0] == ends[1]
    assert None not in ends[1]


def test_a_new_archive_is_named_before_the_first_upload(log_dir: Path, tmp_path: Path) -> None:
    def events(directory: Path, *arguments: str) -> list[str]:
        outcome = in_this_process(*backfill(log_dir, directory), *arguments)
        return [json.loads(line)["event"] for line in outcome.err.splitlines() if line.startswith("{")]

    first = events(tmp_path)
    assert first.index("archive_is_new") < first.index("segment_committed")
    assert "archive_is_new" not in events(tmp_path)
    assert "archive_is_new" in events(tmp_path / "mistyped", "--dry-run")
    assert not (tmp_path / "mistyped").exists()


@pytest.mark.parametrize(("limit_mib", "waits_s"), [(4, [1.3]), (16, [])])
def test_a_start_says_that_its_probe_waits_for_the_upload_limit(
    limit_mib: int, waits_s: list[float], log_dir: Path, tmp_path: Path
) -> None:
    outcome = in_this_process(*backfill(log_dir, tmp_path), "--set", f"store.bandwidth_bytes_per_s={limit_mib << 20}")
    lines = [json.loads(line) for line in outcome.err.splitlines() if line.startswith("{")]
    assert [line["about_s"] for line in lines if line["event"] == "store_probe_limited"] == waits_s


def test_progress_is_logged_where_there_is_no_terminal_and_quiet_silences_it(log_dir: Path, tmp_path: Path) -> None:
    events = [json.loads(line) for line in tiered_sidecar(*backfill(log_dir, tmp_path)).err.splitlines()]
    assert {"progress", "segment_committed"} <= {event["event"] for event in events}
    for left in ("archive", "state"):
        shutil.rmtree(tmp_path / left)
    quiet = tiered_sidecar(*backfill(log_dir, tmp_path), "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    assert "orders-0" in quiet.out


def _read_to_the_end(terminal: int) -> str:
    found = b""
    with suppress(OSError):  # EIO: the other side is closed.
        while piece := os.read(terminal, 65536):
            found += piece
    return found.decode(errors="replace")


def test_a_terminal_gets_a_bar_and_stdout_stays_clean(log_dir: Path, tmp_path: Path) -> None:
    outside, inside = pty.openpty()
    with ThreadPoolExecutor(1) as pool:
        try:
            # While it runs: on a busy machine the bar is drawn so often that the terminal's buffer would fill.
            shown = pool.submit(_read_to_the_end, outside)
            done = subprocess.run(
                command(*backfill(log_dir, tmp_path), "--json"),
                stdout=subprocess.PIPE,
                stderr=inside,
                check=True,
                cwd=ROOT,
                env=environment(TERM="xterm-256color"),
            )
        finally:
            os.close(inside)
        text = shown.result()
    os.close(outside)
    assert json.loads(done.stdout)["exit_code"] == 0
    assert "segments" in text
    assert "segment_committed" not in text


def test_status_has_one_line_per_partition(archive: Path) -> None:
    outcome = in_this_process("status", "--archive", archive, "--json")
    assert outcome.code == 0
    rows = outcome.lines()
    assert [(row["topic"], row["partition"]) for row in rows] == [(ONE_TOPIC, 0), (ONE_TOPIC, 1)]
    wanted = {
        "topic",
        "partition",
        "topic_id",
        "start_offset",
        "end_offset",
        "segments",
        "bytes",
        "leader_epoch",
        "holes",
    }
    for row in rows:
        assert wanted <= row.keys()
        assert row["version"] == 1
        assert row["start_offset"] == 0
        assert row["segments"] > 0
    table = in_this_process("status", "--archive", f"file://{archive}")
    assert "orders-1" in table.out
    assert in_this_process("status", "--archive", archive, "--topic", "other").out == ""


@pytest.mark.parametrize("deep", [[], ["--deep"]])
def test_a_whole_archive_verifies(archive: Path, deep: list[str]) -> None:
    outcome = in_this_process("verify", "--archive", archive, "--json", *deep)
    assert outcome.code == 0
    for row in outcome.lines():
        assert row["problems"] == []
        assert {segment["state"] for segment in row["segments"]} == {"FOUND"}
        assert row["size_only_objects"] == (0 if deep else len(row["segments"]))
    said = in_this_process("verify", "--archive", archive, *deep).err
    assert ("only the size was compared, because the store has no CRC-32C" in said) == (not deep)


@pytest.mark.leaves_damage("size_mismatch")
def test_a_damaged_archive_is_exit_code_4(archive: Path, tmp_path: Path) -> None:
    copy = tmp_path / "archive"
    shutil.copytree(archive, copy)
    victim = min(copy.rglob("*.log"))
    victim.write_bytes(victim.read_bytes()[:-1])
    outcome = in_this_process("verify", "--archive", copy, "--json")
    assert outcome.code == 4
    problems = [problem for row in outcome.lines() for problem in row["problems"]]
    assert [problem["key"] for problem in problems] == [victim.relative_to(copy).as_posix()]
    table = in_this_process("verify", "--archive", copy)
    assert table.code == 4
    assert victim.name in table.err
    assert "1 problem\n" in table.out


def test_an_archived_object_is_inspected_by_key_or_by_path(archive: Path, log_dir: Path) -> None:
    key = min(archive.rglob("*.log")).relative_to(archive).as_posix()
    by_key = in_this_process("inspect", "--archive", archive, key, "--json")
    by_path = in_this_process("inspect", archive / key, "--json")
    source = in_this_process("inspect", log_dir / "orders-0" / f"{Path(key).name[:20]}.log", "--json")
    assert by_key.code == by_path.code == source.code == 0
    assert by_key.out == by_path.out == source.out != ""
    assert in_this_process("inspect", archive / key).code == 0


def test_an_indexes_object_is_cut_into_its_parts(archive: Path, log_dir: Path) -> None:
    key = min(archive.rglob("*.indexes")).relative_to(archive).as_posix()
    outcome = in_this_process("inspect", "--archive", archive, key, "--json")
    assert outcome.code == 0, outcome.err
    rows = outcome.lines()
    base_offset = Path(key).name[:20]
    for part, name in (("offset_index", "index"), ("time_index", "timeindex")):
        original = in_this_process("inspect", log_dir / "orders-0" / f"{base_offset}.{name}", "--json").lines()
        assert [row for row in rows if row["part"] == part] == [{"part": part, **row} for row in original]
    assert outcome.out == in_this_process("inspect", archive / key, "--json").out
    assert "[producer_snapshot]" in in_this_process("inspect", archive / key).out


@pytest.mark.leaves_damage("commit_log")
def test_commits_are_inspected_and_a_damaged_one_is_refused(archive: Path, tmp_path: Path) -> None:
    commit = min(archive.rglob("commits/*.json"))
    (shown,) = in_this_process("inspect", commit, "--json").lines()
    assert shown["number"] == 0
    copy = tmp_path / "archive"
    shutil.copytree(archive, copy)
    damaged = copy / commit.relative_to(archive)
    damaged.write_bytes(damaged.read_bytes()[:-2])
    outcome = in_this_process("inspect", damaged)
    assert outcome.code == 3
    assert damaged.name in outcome.err
    for checkpoint in damaged.parent.parent.glob("checkpoints/*"):
        checkpoint.unlink()  # Else nobody reads the commit.
    status = in_this_process("status", "--archive", copy, "--json")
    assert status.code == 3
    assert [row["problem"] is None for row in status.lines()].count(False) == 1
    (bad,) = [f"{row['topic']}-{row['partition']}" for row in status.lines() if row["problem"]]
    (cells,) = [
        row.split() for row in in_this_process("status", "--archive", copy).out.splitlines() if row.split()[:1] == [bad]
    ]
    assert not {"0", "-1"} & set(cells)


def test_a_missing_object_is_exit_code_6(archive: Path, tmp_path: Path) -> None:
    key = min(archive.rglob("*.log")).relative_to(archive).as_posix()
    missing = key.replace(Path(key).name[21:43], "AAAAAAAAAAAAAAAAAAAAAA")
    assert in_this_process("inspect", "--archive", archive, missing).code == 6
    assert "a key has the form" in in_this_process("inspect", "--archive", archive, missing).err
    copy = tmp_path / "archive"
    shutil.copytree(archive, copy)
    orphan = missing.replace(".log", ".indexes")
    (copy / orphan).write_bytes(b"")
    outcome = in_this_process("inspect", "--archive", copy, orphan)
    assert outcome.code == 3
    assert "no live commit" in outcome.err


def test_an_interrupted_back_fill_is_exit_code_130_and_goes_on_where_it_was(log_dir: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        command(*backfill(log_dir, tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment(),
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if json.loads(line)["event"] == "segment_committed":
                break
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=300)
    assert b"Traceback" not in rest
    assert process.returncode in {130, 0}  # 0 if it was through before the signal came
    assert tiered_sidecar(*backfill(log_dir, tmp_path)).code == 0
    (found, *_) = in_this_process("verify", "--archive", tmp_path / "archive", "--json").lines()
    assert found["problems"] == []
    assert found["orphans"] == []


def test_run_serves_its_state_and_ends_cleanly_on_sigterm(log_dir: Path, tmp_path: Path) -> None:
    arguments = ["run", *backfill(log_dir, tmp_path)[1:], "--http-bind", "127.0.0.1:0"]
    with subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, cwd=ROOT, env=environment()) as process:
        assert process.stderr is not None
        events: dict[str, dict[str, object]] = {}
        for line in process.stderr:
            event = json.loads(line)
            events[event["event"]] = event
            if {"http_listening", "segment_committed"} <= events.keys():
                break
        with urllib.request.urlopen(
            f"http://127.0.0.1:{events['http_listening']['port']}/status", timeout=30
        ) as answer:
            assert json.load(answer)["version"] == 1
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=300)
    assert process.returncode == 0, rest


def test_a_log_that_cannot_be_written_does_not_end_a_run(log_dir: Path, tmp_path: Path) -> None:
    arguments = ["run", *backfill(log_dir, tmp_path)[1:], "--http-bind", "127.0.0.1:0"]
    with (
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(command(*arguments), stderr=full, cwd=ROOT, env=environment()) as process,
    ):
        commits = "archive/*/orders/*/*/commits/*.json"
        eventually(lambda: process.poll() is not None or any(tmp_path.glob(commits)))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert process.returncode == 0


def test_offsets_that_were_recorded_as_lost_are_named_by_verify_each_time(log_dir: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(log_dir, tmp_path / "logs")
    bases = sorted(int(path.name[:20]) for path in (copy / "orders-0").glob("*.log"))
    (copy / "orders-0" / f"{bases[2]:020d}.log").unlink()
    recording = {"TIERED_SIDECAR__RUN__RECORD_LOST": "true"}
    assert tiered_sidecar(*backfill(copy, tmp_path), variables=recording).code == 0
    outcome = tiered_sidecar("verify", "--archive", str(tmp_path / "archive"))
    assert outcome.code == 0
    assert "1 recorded gap" in outcome.out
    assert f"recorded as lost: orders-0 [{bases[2]}, {bases[3]}): " in outcome.err
    assert "orders-1" not in outcome.err
