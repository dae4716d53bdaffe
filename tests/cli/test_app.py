"""The command line as such: help, options before and after the name, exit codes, streams."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar import __version__
from tests.cli.running import ROOT, command, environment, in_this_process, tiered_sidecar
from tests.golden import golden

HEAVY = (
    "numba",
    "numpy",
    "pyspark",
    "boto3",
    "botocore",
    "fsspec",
    "s3fs",
    "kafka",
    "prometheus_client",
)


def test_help_loads_nothing_heavy() -> None:
    listing = f"import sys; print(sorted(set(sys.modules) & set({HEAVY!r})))"
    script = (
        "import sys; sys.argv = ['tiered-sidecar', 'backfill', '--help']\n"
        "from sidecar.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n" + listing
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True, env=environment())
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--log-dir" in done.stdout


def test_no_command_shows_help() -> None:
    outcome = tiered_sidecar()
    assert "backfill" in outcome.out
    assert outcome.code == 2


@pytest.mark.parametrize("arguments", [["version", "--json"], ["--json", "version"]])
def test_options_stand_before_or_after_the_command(arguments: list[str]) -> None:
    outcome = in_this_process(*arguments)
    assert outcome.code == 0
    assert outcome.lines()[0]["tiered_sidecar"] == __version__


def test_options_before_and_after_add_up() -> None:
    outcome = in_this_process(
        "--set", "run.workers=3", "config", "show", "--json", "--archive", "/a", "--set", "run.max_queue=7"
    )
    settings = outcome.lines()[0]["settings"]
    assert (settings["run.workers"]["value"], settings["run.max_queue"]["value"]) == (3, 7)


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["nonsense"],
        ["status", "--nonsense"],
        ["inspect"],
        ["inspect", "/nowhere/00000000000000000000.log"],
        ["inspect", "/etc/hostname"],
        ["backfill", "--archive", "/tmp/archive"],
        ["run", "--archive", "/tmp/archive"],
        ["backfill", "--archive", "/tmp/archive", "--log-dir", "/nowhere"],
        ["verify", "--archive", "s3://user:password@bucket"],
        ["verify", "--archive", "gopher://bucket"],
        ["config", "validate", "--config", "/nowhere.yaml"],
        ["config", "validate", "--archive", "/a", "--set", "log.level=loud"],
        ["status", "--archive", "/a", "--log-level", "loud"],
        ["status", "--archive", "/a", "--log-level", "info", "--set", "log.level=info"],
        ["status", "--archive", "/a", "--topic", "("],
        ["inspect", "--archive", "/tmp", "not/a/lineage"],
    ],
)
def test_wrong_usage_and_wrong_settings_are_exit_code_2_and_no_traceback(arguments: list[str]) -> None:
    outcome = in_this_process(*arguments)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert "rror" in outcome.err


def test_a_store_that_is_not_there_is_exit_code_6(tmp_path: Path) -> None:
    variables = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "hunter22hunter22"}
    outcome = in_this_process(
        *("status", "--archive", "s3://bucket/x", "--set", "store.s3.endpoint_url=http://127.0.0.1:9"),
        *("--set", "store.retry.attempts=1", "--set", "store.s3.connect_timeout_s=2"),
        variables=variables,
    )
    assert outcome.code == 6, outcome
    assert "127.0.0.1:9" in outcome.err
    assert "hunter22" not in outcome.err
    assert "Traceback" not in outcome.err


def test_settings_come_from_a_file_that_the_environment_names(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("store: {url: /archive, s3: {access_key_id: AKIAEXAMPLE, secret_access_key: hunter22}}\n")
    shown = tiered_sidecar("config", "show", variables={"TIERED_SIDECAR_CONFIG": str(file), "COLUMNS": "400"})
    assert shown.code == 0
    assert "hunter22" not in shown.out + shown.err
    assert "AKIAEXAMPLE" not in shown.out + shown.err
    assert str(file) in shown.out
    assert in_this_process("config", "validate", "--config", file).code == 0


def test_the_schema_is_json_schema() -> None:
    outcome = in_this_process("config", "schema")
    schema = json.loads(outcome.out)
    assert schema["properties"]["store"]
    assert schema["required"] == ["store"]
    assert json.loads(in_this_process("config", "schema", "--json").out) == schema


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "replication-offset-checkpoint"
    log.write_text("0\n50000\n" + "".join(f"topic {partition} 0\n" for partition in range(50_000)))
    with subprocess.Popen(
        command("inspect", log, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline()) == {"topic": "topic", "partition": 0, "offset": 0}
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("arguments", "code"), [(["version"], 1), (["version", "--json"], 1), (["--help"], 1), (["status", "--json"], 2)]
)
def test_a_full_disk_behind_stdout_is_one_plain_line(arguments: list[str], code: int) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command(*arguments),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            cwd=ROOT,
            check=False,
            text=True,
        )
    line = "error: cannot write the output (No space left on device)"
    assert done.stderr.splitlines()[-1] == (line if code == 2 else f"{line}; the work was done")
    assert "Traceback" not in done.stderr
    assert done.returncode == code


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["status", "--help"], []])
def test_a_small_answer_to_a_reader_that_has_gone_is_no_error(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command(*arguments), stdout=writer, stderr=subprocess.PIPE, env=environment(), cwd=ROOT, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(("closed", "code"), [(">&-", 1), ("2>&-", 0), (">&- 2>&-", 1)])
def test_only_a_closed_log_is_thrown_away(closed: str, code: int) -> None:
    line = f"{shlex.join(command('config', 'show', '--archive', '/archive'))} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, env=environment(), cwd=ROOT, check=False, text=True)
    assert done.returncode == code
    error = "error: cannot write the output (Bad file descriptor); the work was done\n"
    assert done.stderr == (error if closed == ">&-" else "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_no_file_gets_the_number_of_a_closed_stream(closed: str) -> None:
    program = (
        "import os; from sidecar.cli.streams import Streams; Streams(); os._exit(os.open(os.devnull, os.O_RDONLY))"
    )
    line = f"{shlex.join([sys.executable, '-c', program])} {closed}"
    done = subprocess.run(["sh", "-c", line], env=environment(), cwd=ROOT, check=False)
    assert done.returncode > 2


@pytest.mark.parametrize(("variables", "colored"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colors_are_for_terminals_that_want_them(variables: dict[str, str], colored: bool, tmp_path: Path) -> None:
    outside, inside = pty.openpty()
    try:
        done = subprocess.run(
            command("config", "show", "--archive", tmp_path),
            stdout=inside,
            check=True,
            env=environment(TERM="xterm-256color", **variables),
            cwd=ROOT,
        )
        assert done.returncode == 0
        shown = os.read(outside, 65536)
    finally:
        os.close(inside)
        os.close(outside)
    assert (b"\x1b[" in shown) is colored
    assert b"\x1b[" not in in_this_process("config", "show", "--archive", tmp_path).out.encode()


def test_what_holds_for_a_topic_is_shown_without_an_archive_and_only_for_topics_that_are_there() -> None:
    there = ["config", "show", "--topic", "orders", "--log-dir", str(golden("4.3.0") / "logs")]
    assert in_this_process(*there).code == 0
    asked = in_this_process(*there[:3], "order", *there[4:], "--bootstrap-server", "127.0.0.1:1")
    assert asked.code == 2
    assert "no partition of topic order; there are:" in asked.err
    assert "orders" in asked.err


@pytest.mark.parametrize("arguments", [["doctor", "--area", "moon"], ["k8s", "render", "--for", "moon"]])
def test_a_value_that_is_none_of_a_few_is_reported_in_our_words(arguments: list[str]) -> None:
    outcome = in_this_process(*arguments)
    assert outcome.code == 2
    assert f"invalid value for '{arguments[-2]}': 'moon' is not one of" in outcome.err
