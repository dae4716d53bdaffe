"""What docs/reference/iam.md allows is enough for every command it names, and no more than these ask for."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Outcome, in_this_process
from tests.golden import golden
from tests.iam.server import PAGE, GuardedGateway, actions, policies
from tests.real.product import PROGRAM, environment
from tests.servers.process import ServerProcess, free_port, port_answers

pytestmark = pytest.mark.real

URL = "s3://bucket/prefix"
LOGS = golden("2.7.2") / "logs"
AS_IT_WAS = ("--topic-id", "none", "--leader-epochs", "keep", "--producer-state", "keep")
USERS = {"archiver": ["Archiver"], "reader": ["Reader"], "nurse": ["Archiver", "Bucket rules"], "stranger": []}


@pytest.fixture(name="guarded", scope="module")
def _guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedGateway]:
    found = GuardedGateway(tmp_path_factory.mktemp("iam"))
    with found.gateway:
        found.allow(USERS)
        broker = {"log_dirs": [str(LOGS)], "assume_leader": True}
        for user in USERS:
            run = {"state_dir": str(tmp_path_factory.mktemp(f"state-{user}"))}
            found.settings(user, broker=broker, run=run, topics={"include": ["orders", "compacted"]})
        # What everyone below reads.
        assert as_user(found, "archiver", "backfill", "--quiet").code == 0
        yield found


def as_user(guarded: GuardedGateway, user: str, *arguments: str | Path) -> Outcome:
    """A command with the settings of a user."""
    return in_this_process("--config", guarded.gateway.objects.parent / f"{user}.yaml", *arguments)


def test_the_archiver_may_do_its_work_and_nothing_it_does_not_do(guarded: GuardedGateway, tmp_path: Path) -> None:
    settings = guarded.gateway.objects.parent / "archiver.yaml"
    http = f"127.0.0.1:{free_port()}"
    process = ServerProcess(
        "tiered-sidecar",
        [str(PROGRAM), "run", "--config", str(settings), "--http-bind", http],
        tmp_path / "run.log",
        environment({}),
    )
    process.launch()
    try:
        process.wait_until(lambda: port_answers(int(http.rpartition(":")[2])), 120)
        for command in (
            ("compact", "--archive", URL, "--topic", "compacted", "--engine", "local", "--quiet"),
            ("gc", "--grace-ms", "0"),
            ("doctor", "--area", "store"),
            ("verify", "--deep", "--engine", "local"),
        ):
            found = as_user(guarded, "archiver", *command)
            assert found.code == 0, found.err + found.out
        process.wait_until(lambda: "s3:ListBucketMultipartUploads" in guarded.asked("archiver"), 60)
    finally:
        process.kill()
    asked = guarded.asked("archiver")
    rules = actions(policies()["Bucket rules"])
    assert set(asked) - rules == actions(policies()["Archiver"])
    # This server guards only the first of them.
    assert {action for action, statuses in asked.items() if 403 in statuses} == {"s3:GetBucketVersioning"}


def test_a_reader_reads_and_nothing_else(guarded: GuardedGateway, tmp_path: Path) -> None:
    commands: list[tuple[str | Path, ...]] = [
        ("status",),
        ("verify", "--deep", "--engine", "local"),
        ("restore", "--topic", "orders", "--to", tmp_path / "restored", *AS_IT_WAS),
        (
            "snapshots",
            "rebuild",
            "--archive",
            "s3://bucket/prefix",
            "--out",
            tmp_path / "snapshots",
            "--engine",
            "local",
        ),
        ("compact", "--archive", URL, "--what-if", "--topic", "compacted", "--engine", "local", "--quiet"),
    ]
    for command in commands:
        found = as_user(guarded, "reader", *command)
        assert found.code == 0, f"{command}: {found.err}{found.out}"
    asked = guarded.asked("reader")
    assert set(asked) == actions(policies()["Reader"])
    assert not any(403 in statuses for statuses in asked.values())
    refused = as_user(guarded, "reader", "backfill", "--quiet")
    assert refused.code == 6
    assert 403 in guarded.asked("reader")["s3:PutObject"]


def test_doctor_tells_more_with_the_rules_of_the_bucket(guarded: GuardedGateway) -> None:
    reported = as_user(guarded, "nurse", "doctor", "--area", "store")
    assert reported.code == 0, reported.err
    unreported = as_user(guarded, "archiver", "doctor", "--area", "store")
    # This server has no encryption and no life-cycle rules to tell of.
    assert ["GetBucketVersioning" in found.out for found in (reported, unreported)] == [False, True]
    asked = guarded.asked("nurse")
    assert actions(policies()["Bucket rules"]) <= set(asked)
    assert not any(403 in statuses for statuses in asked.values())


def test_the_server_refuses_what_no_policy_allows(guarded: GuardedGateway) -> None:
    assert as_user(guarded, "stranger", "status").code == 6
    assert guarded.asked("stranger")["s3:ListBucket"] == {403}


def test_the_page_names_the_commands_that_were_tried() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for command in ("run", "backfill", "compact --archive", "gc", "status", "verify", "restore", "doctor"):
        assert f"`{command}`" in page
    done = subprocess.run([str(PROGRAM), "--help"], capture_output=True, text=True, check=True)
    assert "doctor" in done.stdout
