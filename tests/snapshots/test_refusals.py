"""What `snapshots` says where something is missing, misnamed or not chosen: loudly, with a code, and as JSON where asked."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from tests.cli.running import in_this_process
from tests.snapshots.log_dirs import NOW_MS, data, healed, log_dir_of, snapshots_in


def test_a_segment_that_vanished_from_the_middle_is_named(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=6)
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n0\n")
    (log_dir / "t-0" / f"{4:020d}.log").unlink()
    said = "no batch has the offsets 4 to 5, and the next segment begins above them"
    rebuilt = in_this_process("snapshots", "rebuild", log_dir, "--out", tmp_path / "out")
    assert rebuilt.code == 3
    assert said in rebuilt.out
    done = in_this_process("snapshots", "heal", log_dir)
    assert done.code == 3
    assert said in done.err
    assert "damaged file" not in done.err
    assert snapshots_in(log_dir / "t-0") == snapshots_in(tmp_path / "out" / "t-0") == [2]
    checked = in_this_process("snapshots", "check", log_dir)
    assert checked.code == 3
    assert said in checked.out


@pytest.mark.parametrize("command", ["check", "rebuild"])
@pytest.mark.parametrize(
    ("named", "is_whole"),
    [("t-0 .", True), (". t-0", True), ("t-0 t-0", True), ("t-0 alias", True), ("t-0 .", False), ("t-0 t-0", False)],
)
def test_a_directory_that_is_named_twice_counts_once(
    command: str, named: str, *, is_whole: bool, tmp_path: Path
) -> None:
    log_dir = log_dir_of(tmp_path)
    assert healed(log_dir).exit_code == 0
    (log_dir / "alias").symlink_to(log_dir)
    if not is_whole:
        (log_dir / "t-0" / "partition.metadata").write_bytes(b"damage")
    out = ["--out", tmp_path / "out"] if command == "rebuild" else []
    done = in_this_process("--json", "snapshots", command, *(log_dir / name for name in named.split()), *out)
    assert done.code == (0 if is_whole else 3)
    assert [json.loads(line)["partition"] for line in done.out.splitlines()] == [0] * is_whole
    assert len([line for line in done.err.splitlines() if line.startswith("problem:")]) == (not is_whole)


def test_a_segment_whose_snapshot_stayed_behind_is_named_too(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=6)
    assert healed(log_dir).exit_code == 0
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n0\n")
    (log_dir / "t-0" / f"{4:020d}.log").unlink()
    checked = in_this_process("snapshots", "check", log_dir)
    assert checked.code == 3
    assert "the offsets 4 to 5" in checked.out


@pytest.mark.parametrize(
    ("damage", "said", "made"),
    [
        ("a batch cut out", "no batch has the offsets 2 to 3, before byte ", []),
        ("a record taken out", "the batch of the offsets 2 to 3 at byte ", []),
        ("a batch cut out of the second segment", "no batch has the offsets 8 to 9, before byte ", [6]),
    ],
)
def test_every_gap_is_a_problem_where_the_directory_says_never_compacted(
    damage: str, said: str, made: list[int], tmp_path: Path
) -> None:
    """Also where another lies above it: a first gap must not pass for a cleaner's work, which would excuse the second."""
    log_dir = log_dir_of(tmp_path, segments=0)
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n0\n")
    batches = {offset: data(offset, sequence=offset, count=2) for offset in range(0, 24, 2)}
    if damage == "a record taken out":
        record = Record(3, NOW_MS, b"k", b"v")
        batches[2] = build_batch([record], base_offset=2, producer_id=1, producer_epoch=0, base_sequence=2)
    else:
        del batches[8 if "second" in damage else 2]
    for base in (0, 6, 18):  # the segment of 12 to 17 is gone
        segment = b"".join(batches.get(offset, b"") for offset in range(base, base + 6, 2))
        (log_dir / "t-0" / f"{base:020d}.log").write_bytes(segment)
    for command in (("heal",), ("check",), ("rebuild", "--out", tmp_path / "out")):
        done = in_this_process("snapshots", *command, log_dir)
        assert done.code == 3, done
        for part in (said, "move the partition's directory away", "which `restore` named", "--compacted 't'"):
            assert part in done.out + done.err
    assert snapshots_in(log_dir / "t-0") == made
    done = in_this_process("snapshots", "heal", log_dir, "--compacted", "other", "--compacted", "t")
    assert done.code == 0, done
    assert snapshots_in(log_dir / "t-0") == [6, 18]
    for command in (("check",), ("rebuild", "--out", tmp_path / "out")):
        assert in_this_process("snapshots", *command, log_dir, "--compacted", "t").code == 0


def test_an_archive_needs_no_word_of_what_was_compacted(tmp_path: Path) -> None:
    done = in_this_process("snapshots", "check", "--archive", f"file://{tmp_path}", "--compacted", "t")
    assert done.code == 2
    assert "--compacted is for directories" in done.err


def test_gaps_are_expected_where_the_cleaner_has_been(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=6)
    (log_dir / "t-0" / f"{4:020d}.log").unlink()
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 8\n")
    report = healed(log_dir)
    assert (report.exit_code, report.healings[0].exact) == (0, False)
    assert snapshots_in(log_dir / "t-0") == [2, 6, 8, 10]


def test_check_ends_with_3_where_snapshots_are_missing(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    done = in_this_process("snapshots", "check", log_dir)
    assert done.code == 3
    assert "3 snapshots are missing" in done.err
    assert healed(log_dir).exit_code == 0
    assert in_this_process("snapshots", "check", log_dir).code == 0


def test_check_and_heal_pass_over_internal_topics_alike(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    log_dir_of(tmp_path, topic="__consumer_offsets")
    assert len(healed(log_dir).healings) == 1
    assert in_this_process("snapshots", "check", log_dir).code == 0
    assert in_this_process("snapshots", "check", log_dir / "__consumer_offsets-0").code == 3


@pytest.mark.parametrize("command", ["heal", "check"])
def test_no_partition_is_exit_code_2(command: str, tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    done = in_this_process("--json", "snapshots", command, log_dir, "--topic", "nosuch")
    assert done.code == 2
    answer = json.loads(done.out)
    assert (answer["kind"], answer["exit_code"]) == (f"snapshots_{command}", 2)
    assert str(log_dir) in answer["error"]


@pytest.mark.parametrize(
    "marks", [{".kafka_cleanshutdown", ".lock"}, {".lock"}, set()], ids=["stopped", "killed", "new"]
)
@pytest.mark.parametrize("is_log_dir", [True, False])
def test_without_a_partition_meta_properties_alone_decides(marks: set[str], is_log_dir: bool, tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    shutil.rmtree(log_dir / "t-0")
    for name in {".kafka_cleanshutdown", ".lock"} - marks:
        (log_dir / name).unlink()
    if is_log_dir:
        (log_dir / "meta.properties").touch()
    done = in_this_process("--json", "snapshots", "heal", log_dir)
    assert done.code == (0 if is_log_dir else 1), done
    answer = json.loads(done.out)
    assert answer["counts"]["partitions"] == 0 if is_log_dir else "neither a partition nor meta" in answer["error"]


def test_heal_of_a_partition_directory_names_the_log_directory(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    done = in_this_process("snapshots", "heal", log_dir / "t-0")
    assert done.code == 2
    assert f"give heal its log directory, {log_dir}, with --topic t" in done.err
    assert snapshots_in(log_dir / "t-0") == []


def test_a_refusal_is_json_too(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    (log_dir / ".kafka_cleanshutdown").unlink()
    done = in_this_process("--json", "snapshots", "heal", log_dir)
    assert done.code == 1
    assert "did not shut down cleanly" in json.loads(done.out)["error"]


@pytest.mark.parametrize("command", ["heal", "check"])
def test_badly_named_directories_are_listed(command: str, tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    (log_dir / "t-0").rename(log_dir / "t-00")
    log_dir_of(tmp_path, topic="v")
    (log_dir / "v-0").rename(log_dir / "v-0.restoring")
    log_dir_of(tmp_path, topic="u")
    done = in_this_process("snapshots", command, log_dir)
    assert done.code == 3
    assert f"{log_dir / 't-00'}: holds segments" in done.err
    assert f"{log_dir / 'v-0.restoring'}: an unfinished restore. It was skipped" in done.err
    assert "Run the same restore command again, or remove it" in done.err


def test_a_dry_run_tells_only_what_it_has_read(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    (row,) = healed(log_dir, dry_run=True).as_json()["partitions"]
    assert (row["replayed"], row["exact"], row["verified"], row["mismatches"]) == (False, None, None, None)
    (row,) = healed(log_dir, dry_run=True, replace_empty=True).as_json()["partitions"]
    assert (row["replayed"], row["exact"]) == (True, True)
    done = in_this_process("snapshots", "heal", "--dry-run", log_dir)
    assert "3 snapshots missing; nothing was written" in done.err
    assert "yes" not in done.out


def test_sigterm_leaves_no_half_written_file(tmp_path: Path) -> None:
    for attempt in range(20):
        log_dir = log_dir_of(tmp_path / str(attempt), partitions=200, segments=12)
        command = [sys.executable, "-m", "sidecar", "--quiet", "snapshots", "heal", str(log_dir), "--workers", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            clock = SystemClock()
            deadline_s = clock.monotonic_s() + 300
            while not any(log_dir.glob("t-*/*.snapshot")) and clock.monotonic_s() < deadline_s:
                clock.sleep_s(0.01)
            process.send_signal(signal.SIGTERM)
            code, made = process.wait(300), len(list(log_dir.glob("t-*/*.snapshot")))
        if code != 0:
            break
        assert made == 200 * 11, "it was through before the signal came"
    assert code == 143
    assert 0 < made < 200 * 11
    assert list(log_dir.glob("t-*/*.tmp")) == []
    assert healed(log_dir).exit_code == 0


def test_each_pattern_that_fits_nothing_is_named(tmp_path: Path) -> None:
    """As a warning: another broker may hold the topic."""
    log_dir = log_dir_of(tmp_path)
    given = ("--topic", "ordes", "--topic", "t", "--compacted", "pay.*")
    done = in_this_process("--json", "snapshots", "heal", log_dir, *given)
    assert done.code == 0, done
    warnings = json.loads(done.out)["warnings"]
    assert [warning.split(":")[0] for warning in warnings] == ["--topic ordes", "--compacted pay.*"]
    checked = in_this_process("snapshots", "check", log_dir, *given)
    assert checked.code == 0, checked
    assert "warning: --topic ordes: matches no topic" in checked.err
    assert "--topic t:" not in checked.err


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_log_start_that_cannot_be_read_refuses_the_log_dir(dry_run: bool, tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    (log_dir / "log-start-offset-checkpoint").write_bytes(b"garbage\n")
    done = in_this_process("snapshots", "heal", log_dir, *["--dry-run"] * dry_run)
    assert done.code == 1, done
    assert str(log_dir / "log-start-offset-checkpoint") in done.err
    assert "nothing was written" in done.err
    assert snapshots_in(log_dir / "t-0") == []


def test_a_cleaner_checkpoint_that_cannot_be_read_keeps_its_partitions_from_being_healed(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    (log_dir / "cleaner-offset-checkpoint").write_bytes(b"garbage\n")
    report = healed(log_dir)
    assert (report.exit_code, report.healings[0].created) == (3, [])
    assert "cleaner-offset-checkpoint" in report.healings[0].problem


@pytest.mark.parametrize("command", ["heal", "check"])
def test_a_directory_that_is_not_there_is_exit_code_2(command: str, tmp_path: Path) -> None:
    done = in_this_process("--json", "snapshots", command, tmp_path / "absent")
    assert (done.code, json.loads(done.out)["exit_code"]) == (2, 2)
    assert "no such directory" in done.err


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("snapshots", "heal", "--json", "--nosuch"), "snapshots_heal"),
        (("--json", "snapshots", "heal"), "snapshots_heal"),
        (("--json", "snapshots", "check", ".", "--now-ms", "x"), "snapshots_check"),
        (("--json", "nosuch"), "usage"),
    ],
)
def test_wrong_usage_is_json_too(arguments: tuple[str, ...], kind: str) -> None:
    done = in_this_process(*arguments)
    answer = json.loads(done.out)
    assert (done.code, answer["exit_code"], answer["kind"]) == (2, 2, kind)
    assert f"error: {answer['error']}" in done.err


def test_a_dry_run_ends_with_3_where_something_is_missing(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    assert in_this_process("snapshots", "heal", "--dry-run", log_dir).code == 3
    assert healed(log_dir).exit_code == 0
    assert in_this_process("snapshots", "heal", "--dry-run", log_dir).code == 0


@pytest.mark.parametrize("files", [(), ("notes.txt",)], ids=["empty", "no partition"])
def test_a_directory_without_a_partition_is_not_said_to_have_crashed(files: tuple[str, ...], tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).touch()
    done = in_this_process("--json", "snapshots", "heal", tmp_path)
    assert done.code == 1
    error = json.loads(done.out)["error"]
    assert "neither a partition nor meta.properties: not a Kafka log directory" in error
    assert "cleanly" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)


def test_what_heal_has_to_say_of_a_partition_stands_below_the_table(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    for offset in (2, 4):
        (log_dir / "t-0" / f"{offset:020d}.snapshot").write_bytes(b"no snapshot")
    done = in_this_process("snapshots", "heal", log_dir)
    assert done.code == 4
    assert "t-0: corrupt: 2 4" in done.err.splitlines()
    assert "corrupt" not in done.out


def test_only_a_chosen_topic_is_said_to_be_missing(tmp_path: Path) -> None:
    done = in_this_process("snapshots", "check", tmp_path)
    assert done.code == 2
    assert "contains none (internal topics are skipped)" in done.err
    done = in_this_process("snapshots", "check", tmp_path, "--topic", "t")
    assert "contains none whose topic is selected" in done.err


def test_a_dry_run_shows_no_start_of_a_replay_that_it_does_not_do(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path)
    done = in_this_process("snapshots", "heal", "--dry-run", log_dir)
    (row,) = [line for line in done.out.splitlines() if line.lstrip().startswith("t-0 ")]
    assert row.split() == ["t-0", "2", "4", "6", *["-"] * 5]


@pytest.mark.parametrize("command", [("check",), ("rebuild", "--out", "out")])
def test_the_archive_of_the_settings_is_not_meant(command: tuple[str, ...], tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"store: {{url: {tmp_path / 'archive'}}}\n")
    outcome = in_this_process("snapshots", *command, "--config", settings)
    assert outcome.code == 2
    assert "give either directories or --archive URL; store.url of the settings is not used here" in outcome.err
