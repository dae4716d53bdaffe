"""What an operator gets wrong, or has no right to: one line that says what to do, and the right exit code."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.running import in_this_process, tiered_sidecar
from tests.cli.unprivileged import in_this_process as unprivileged
from tests.golden import golden, golden_copy

TOPIC = "orders"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("refusals")
    outcome = in_this_process(*backfill(golden("3.9.1") / "logs", directory), "--quiet")
    assert outcome.code == 0, outcome
    assert not (directory / "archive" / "_probe").exists()
    return directory / "archive"


def backfill(log_dir: Path, directory: Path, *more: str) -> list[str]:
    return [
        *("backfill", "--log-dir", str(log_dir), "--archive", str(directory / "archive")),
        *("--state-dir", str(directory / "state"), *(more or ("--assume-leader", "--topic", TOPIC))),
    ]


def errors(err: str) -> list[str]:
    """Lines for people; log lines are JSON."""
    assert "Traceback" not in err, err
    return [line for line in err.splitlines() if not line.startswith("{")]


@pytest.fixture
def deny(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "deny"
    (directory / "a").mkdir(parents=True)
    (directory / "00000000000000000000.log").write_bytes(b"")
    directory.chmod(0)
    yield directory
    directory.chmod(0o700)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["backfill", "--archive", "a", "--log-dir", "logs", "--state-dir", ""], "--state-dir"),
        (["backfill", "--archive", "a", "--log-dir", "logs", "--log-dir="], "--log-dir"),
        (["snapshots", "rebuild", "logs", "--out", ""], "--out"),
        (["snapshots", "heal", ""], "LOG_DIR..."),
        (["restore", "--archive", "a", "--topic", "t", "--to", ""], "--to"),
        (["compact", "t-0", "--out", ""], "--out"),
        (["compact", "t-0", "--what-if", "--keys-file", ""], "--keys-file"),
        (["--config", "", "status", "--archive", "a"], "--config"),
        (["status", "--set", "run.state_dir=", "--archive", "a"], "run.state_dir"),
    ],
)
def test_an_empty_path_is_not_the_current_directory(
    arguments: list[str], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = in_this_process(*arguments)
    (line,) = errors(outcome.err)
    assert (outcome.code, list(tmp_path.iterdir())) == (2, [])
    assert option in line
    assert "a path must not be empty" in line


@pytest.mark.parametrize("name", ["no-such-dir", "orders-0"])
def test_compact_says_that_a_directory_does_not_exist(name: str, tmp_path: Path) -> None:
    outcome = in_this_process("compact", tmp_path / name, "--dry-run")
    assert outcome.code == 2
    assert errors(outcome.err) == [f"error: {tmp_path / name}: no such directory; correct the path"]


def test_paths_without_permission_are_one_line(deny: Path, tmp_path: Path) -> None:
    log_dir = golden("3.9.1") / "logs"
    for arguments, code in (
        (["status", "--archive", deny / "a"], 6),
        (["verify", "--archive", deny / "a"], 6),
        (["inspect", "--archive", deny / "a", "c/t/0/0/commits/00000000000000000000.json"], 6),
        (
            [
                "backfill",
                "--archive",
                deny / "a",
                "--log-dir",
                log_dir,
                "--assume-leader",
                "--state-dir",
                tmp_path / "s",
            ],
            6,
        ),
        (["snapshots", "check", deny / "a"], 2),
        (["snapshots", "check", deny], 2),
        (["compact", deny / "a", "--dry-run"], 3),
        (["compact", deny / "t-0", "--dry-run"], 3),
        (["inspect", deny / "00000000000000000000.log"], 2),
        (["backfill", "--archive", tmp_path / "x", "--log-dir", deny / "a", "--assume-leader"], 2),
    ):
        outcome = unprivileged(*arguments)
        assert outcome.code == code, outcome
        if code:
            (line,) = errors(outcome.err)
            assert line.startswith("error: ")
            assert "Permission denied" in line or "is not readable" in line
            assert "is not readable" not in line or "run as the broker's user" in line
            assert "write" not in line or arguments[0] == "backfill"


@pytest.mark.parametrize("out", ["read-only/out", "read-only/new/out", "file/out", "/proc/out"])
def test_a_directory_that_cannot_be_written_for_a_copy_is_a_wrong_option(out: str, tmp_path: Path) -> None:
    (tmp_path / "read-only").mkdir(mode=0o500)
    (tmp_path / "file").touch()
    source = golden("4.3.0") / "logs" / "compacted-0"
    outcome = unprivileged("compact", source, "--out", tmp_path / out)
    assert outcome.code == 2, outcome
    line = errors(outcome.err)[-1]
    assert f"{(tmp_path / out).parent}: cannot be written: " in line
    assert "make it writable, or name another place" in line


def test_a_checkpoint_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    log_dir = golden_copy("3.9.1", tmp_path / "copy") / "logs"
    (log_dir / "replication-offset-checkpoint").chmod(0)
    outcome = unprivileged(*backfill(log_dir, tmp_path))
    assert outcome.code == 3, outcome
    assert "run as the broker's user" in outcome.err
    assert "within a minute" not in outcome.err


def test_a_partition_that_may_not_be_listed_is_a_row(tmp_path: Path) -> None:
    log_dir = golden_copy("3.9.1", tmp_path / "copy") / "logs"
    (log_dir / "orders-0").chmod(0)
    try:
        outcome = unprivileged(*backfill(log_dir, tmp_path), "--json")
    finally:
        (log_dir / "orders-0").chmod(0o755)
    assert outcome.code == 3, outcome
    (report,) = outcome.lines()
    first, second = report["partitions"]
    assert (first["partition"], first["error"], first["segments_uploaded"]) == (0, "PartitionError", 0)
    assert "Permission denied" in first["stopped_because"]
    assert second["segments_uploaded"] > 0


def first_commit_of(archive: Path) -> Path:
    """Of one partition; readers need it, for its checkpoints are removed."""
    for checkpoint in archive.rglob("orders/0/*/checkpoints/*"):
        checkpoint.unlink()
    return min(archive.rglob("orders/0/*/commits/*.json"))


def test_one_unreadable_commit_stops_only_its_own_partition(archive: Path, tmp_path: Path) -> None:
    copy = tmp_path / "archive"
    shutil.copytree(archive, copy)
    commit = first_commit_of(copy)
    commit.chmod(0)
    status = unprivileged("status", "--archive", copy)
    assert status.code == 3, status
    assert "orders-1" in status.out
    (line,) = errors(status.err)
    assert line.startswith("orders-0: ")
    assert line.count(commit.name) == 1
    assert "permission to read there" in line
    verify = unprivileged("verify", "--archive", copy, "--json")
    assert verify.code == 3, verify
    kinds = [[problem["kind"] for problem in row["problems"]] for row in verify.lines()]
    assert kinds == [["unreadable"], []]


ON_AN_ARCHIVE = pytest.mark.parametrize(
    "command",
    [
        "status",
        "verify",
        "gc",
        "gc --dry-run",
        "compact --dry-run",
        "compact --topic .*",
        "compact --topic .* --undo",
        "restore --topic orders --to OUT",
        "snapshots check",
        "snapshots rebuild --out OUT",
    ],
)


@ON_AN_ARCHIVE
def test_uploads_without_a_commit_are_no_archive(command: str, archive: Path, tmp_path: Path) -> None:
    """As `kill -9` leaves it before the first commit."""
    copy = tmp_path / "archive"
    shutil.copytree(archive, copy)
    for folder in (*copy.rglob("commits"), *copy.rglob("checkpoints")):
        shutil.rmtree(folder)
    before = sorted(copy.rglob("*"))
    assert [path for path in before if path.suffix == ".log"]
    outcome = in_this_process(
        *command.replace("OUT", str(tmp_path / "out")).split(), "--archive", copy, "--set", "gc.grace_period_ms=0"
    )
    assert (outcome.code, outcome.out) == (1, "")
    assert errors(outcome.err)[-1].startswith("error: no archive at ")
    if command != "verify":  # It asks the store's clock for the age of uploads.
        assert sorted(copy.rglob("*")) == before


@ON_AN_ARCHIVE
def test_an_archive_that_is_not_there_is_not_an_empty_one(command: str, tmp_path: Path) -> None:
    command_and_flags = command.replace("OUT", str(tmp_path / "out")).split()
    missing = in_this_process(*command_and_flags, "--archive", tmp_path / "typo")
    assert (missing.code, missing.out) == (6, "")
    assert "there is no such directory" in missing.err
    (tmp_path / "empty").mkdir()
    empty = in_this_process(*command_and_flags, "--archive", tmp_path / "empty")
    assert (empty.code, empty.out) == (1, "")
    (line,) = errors(empty.err)
    assert line.startswith("error: no archive at ")
    assert "correct the URL" in line
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "https://127.0.0.1:1/x", "zip:///a.zip"])
def test_protocols_that_can_only_be_read_are_refused_where_objects_may_be_deleted(url: str) -> None:
    outcome = in_this_process("gc", "--archive", url)
    assert outcome.code == 2
    assert "can only be read; use s3://" in outcome.err
    assert in_this_process("status", "--archive", url).code == 6


@pytest.mark.parametrize(
    ("url", "instead"),
    [
        ("http://store.example/b", "http:// can only be read; use s3://bucket/prefix, a directory"),
        ("s3a://bucket/p", "s3a:// is a scheme of Hadoop; write s3://bucket/p"),
        ("memory://b", "is lost when this process ends; use s3://"),
    ],
)
def test_settings_with_a_url_that_no_archive_can_have_are_not_valid(url: str, instead: str) -> None:
    for command in (["config", "validate"], ["gc"]):
        outcome = in_this_process(*command, "--archive", url)
        assert outcome.code == 2
        (line,) = errors(outcome.err)
        assert instead in line
    assert in_this_process("config", "validate", "--archive", "gs://bucket/p").code == 0


def test_other_stores_that_do_not_answer_are_exit_code_6() -> None:
    for url in ("ftp://127.0.0.1:1/x", "webhdfs://127.0.0.1:1/x"):
        outcome = in_this_process("status", "--archive", url)
        assert outcome.code == 6, outcome
        assert len(errors(outcome.err)) == 1


def test_a_forgotten_assume_leader_is_said_once_and_nothing_is_written(tmp_path: Path) -> None:
    for more in (["--quiet"], ["--dry-run"]):
        outcome = in_this_process(*backfill(golden("3.9.1") / "logs", tmp_path, *more))
        assert outcome.code == 3
        (line,) = errors(outcome.err)
        assert "--assume-leader" in line
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("filters", [["--topic", "nosuch"], ["--exclude", ".*"]])
def test_topics_that_match_nothing_are_refused_with_those_there_are(
    filters: list[str], archive: Path, tmp_path: Path
) -> None:
    for arguments in (
        backfill(golden("3.9.1") / "logs", tmp_path, "--assume-leader", *filters),
        ["status", "--archive", str(archive), *filters],
        ["verify", "--archive", str(archive), *filters],
    ):
        outcome = in_this_process(*arguments)
        assert outcome.code == 2, outcome
        (line,) = errors(outcome.err)
        assert "no topic matches; there are: " in line
        assert TOPIC in line


def test_a_dry_run_shows_what_a_plan_can_know(tmp_path: Path) -> None:
    log_dir = golden("2.7.2") / "logs"
    outcome = in_this_process(*backfill(log_dir, tmp_path), "--dry-run")
    assert outcome.code == 0, outcome
    assert "does not read the segments" in outcome.err
    assert "snapshots missing on disk" in outcome.out
    assert "archived" not in outcome.out
    (report,) = in_this_process(*backfill(log_dir, tmp_path), "--dry-run", "--json").lines()
    for row in report["partitions"]:
        planned = report["planned"].get(f"{row['topic']}-{row['partition']}", [])
        directory = log_dir / f"{row['topic']}-{row['partition']}"
        missing = [one for one in planned if not (directory / f"{one['end_offset']:020d}.snapshot").exists()]
        assert row["snapshots_missing"] == len(missing)
    assert sum(row["snapshots_missing"] for row in report["partitions"]) > 0


def test_a_second_back_fill_has_no_progress_to_tell(archive: Path) -> None:
    outcome = in_this_process(*backfill(golden("3.9.1") / "logs", archive.parent))
    assert outcome.code == 0
    assert "progress" not in {json.loads(line).get("event") for line in outcome.err.splitlines() if line[:1] == "{"}


@pytest.mark.leaves_damage("commit_log")
def test_damage_is_reported_once_with_what_to_do(archive: Path, tmp_path: Path) -> None:
    log_dir = golden_copy("3.9.1", tmp_path / "copy") / "logs"
    victim = min((log_dir / "orders-0").glob("*.log"))
    content = bytearray(victim.read_bytes())
    content[200] ^= 0xFF
    victim.write_bytes(content)
    outcome = in_this_process(*backfill(log_dir, tmp_path), "--quiet", "--set", "broker.settle_ms=0")
    assert outcome.code == 3, outcome
    (line,) = (line for line in errors(outcome.err) if line.startswith("orders-0 stopped: "))
    assert (
        errors(outcome.err)[-1]
        == "some partitions stopped: correct what the errors above name, then run backfill again"
    )
    assert line.count(str(victim)) == 1
    assert line.count("restore it from a replica") == 1
    copy = tmp_path / "whole"
    shutil.copytree(archive, copy)
    commit = first_commit_of(copy)
    commit.write_bytes(commit.read_bytes()[:-2])
    for command, code in (("status", 3), ("verify", 4)):
        outcome = in_this_process(command, "--archive", copy)
        assert outcome.code == code
        reported = [line for line in errors(outcome.err) if commit.name in line]
        assert [line.count(commit.name) for line in reported] == [1]
        assert "restore" in reported[0]


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["status", "--nonsense"], ["inspect"], ["inspect", "x", "--base-offset", "-1"], ["config", "x"]],
)
def test_wrong_usage_is_one_line(arguments: list[str]) -> None:
    outcome = in_this_process(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: ")
    assert "--help" in line


def test_help_names_every_exit_code() -> None:
    shown = in_this_process("--help").out
    for code in (0, 1, 2, 3, 4, 5, 6, 130, 141, 143):
        assert f"{code} " in shown


def test_tables_are_as_wide_as_asked_for_and_reasons_stand_below(tmp_path: Path) -> None:
    log_dir = golden_copy("3.9.1", tmp_path / "copy") / "logs"
    min((log_dir / "orders-0").glob("*.log")).touch()
    # However long the program takes to start, the file is not settled.
    settling = ["--set", "broker.settle_ms=3600000"]
    arguments = [*backfill(log_dir, tmp_path, "--assume-leader", "--quiet", "--dry-run"), *settling]
    outcome = tiered_sidecar(*arguments, variables={"COLUMNS": "80"})
    assert outcome.code == 0, outcome
    assert max(len(line) for line in outcome.out.splitlines()) <= 80
    assert "…" not in outcome.out
    assert any(" waits: " in line for line in outcome.err.splitlines())
    archived = in_this_process(*backfill(log_dir, tmp_path, "--assume-leader", "--quiet"), *settling)
    assert errors(archived.err)[-1] == ("segments wait for the reasons above: run backfill again when these are over")


class _Plain(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


def test_tls_to_a_port_without_tls_is_called_by_its_name() -> None:
    server = HTTPServer(("127.0.0.1", 0), _Plain)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        outcome = in_this_process(
            *("status", "--archive", "s3://bucket/x"),
            *("--set", f"store.s3.endpoint_url=https://127.0.0.1:{server.server_port}"),
            variables={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "hunter22hunter22"},
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert outcome.code == 6, outcome
    (line,) = errors(outcome.err)
    assert "does not use TLS" in line


@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        ("status --archive EMPTY", "status", 1),
        ("verify --archive EMPTY/typo", "verify", 6),
        ("gc --archive EMPTY", "gc", 1),
        ("compact --archive EMPTY --topic .*", "compact", 1),
        ("compact", "compact", 2),
        ("inspect EMPTY/typo", "inspect", 2),
        ("backfill --archive EMPTY/archive --state-dir EMPTY/state", "backfill", 2),
        ("backfill --archive EMPTY/archive --log-dir EMPTY/typo", "backfill", 2),
        ("restore --topic t --to EMPTY/out --archive EMPTY", "restore", 1),
        ("snapshots check EMPTY/typo", "snapshots_check", 2),
        ("config show --set run.workers=x", "config_show", 2),
        ("status --no-such-option", "status", 2),
    ],
)
def test_each_refusal_is_one_json_object_where_json_was_asked_for(
    arguments: str, kind: str, code: int, tmp_path: Path
) -> None:
    outcome = in_this_process(*arguments.replace("EMPTY", str(tmp_path)).split(), "--json")
    (line,) = outcome.lines()
    assert outcome.code == code, outcome
    assert (line["kind"], line["version"], line["exit_code"]) == (kind, 1, code)
    assert line["error"]
    assert line["error"].splitlines()[0] in outcome.err
