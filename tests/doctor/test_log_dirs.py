"""What `doctor` says of log directories."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar.broker import live_facts
from sidecar.clock import SystemClock
from sidecar.doctor import log_dirs
from sidecar.doctor.doctor import doctor
from sidecar.doctor.findings import Area, Finding, Verdict
from sidecar.logformat.names import RECOVERY_POINT_CHECKPOINT
from tests.cli import unprivileged
from tests.cli.running import in_this_process
from tests.doctor.examined import found_in, settings_for, troubles


def _gone(log_dir: Path) -> None:
    shutil.rmtree(log_dir)


def _of_something_else(log_dir: Path) -> None:
    _gone(log_dir)
    (log_dir / "photos").mkdir(parents=True)


def _empty_log_dir(log_dir: Path, name: str) -> Path:
    """A second one of the same broker."""
    (log_dir.parent / name).mkdir()
    return Path(shutil.copy(log_dir / "meta.properties", log_dir.parent / name)).parent


def _of_two_clusters(log_dir: Path) -> None:
    second = _empty_log_dir(log_dir, "second")
    text = (second / "meta.properties").read_text()
    (second / "meta.properties").write_text(text.replace("cluster.id=", "cluster.id=x"))


@pytest.mark.parametrize(
    ("spoil", "check", "words"),
    [
        (_gone, "logs", "No such file"),
        (_of_something_else, "logs", "not a Kafka log directory"),
        (_of_two_clusters, "ids in meta.properties", "different brokers or clusters"),
    ],
)
def test_log_dirs_that_are_none_are_reported_and_the_store_is_looked_at_all_the_same(
    spoil: Callable[[Path], None], check: str, words: str, log_dir: Path
) -> None:
    spoil(log_dir)
    second = log_dir.parent / "second"
    log_dirs = [log_dir, second] if second.exists() else [log_dir]
    report = doctor(settings_for(log_dir, broker={"log_dirs": log_dirs}))
    (name, detail) = next((name, text) for name, text in troubles(report).items() if Path(name).name == check)
    assert words in detail
    assert found_in(report, name).outcome.verdict is Verdict.PROBLEM
    assert report.exit_code == 2
    assert found_in(report, "write").outcome.verdict is Verdict.OK


def test_what_is_worth_knowing_of_log_dirs_is_a_warning(log_dir: Path) -> None:
    for snapshot in sorted(log_dir.glob("plain-0/*.snapshot")) or sorted(log_dir.glob("*/*.snapshot")):
        snapshot.unlink()
    (log_dir / "somebody-s").mkdir()
    other = _empty_log_dir(log_dir, "other")
    future_s = SystemClock().now_ms() / 1000 + 3600
    os.utime(max(log_dir.glob("append-time-0/*.log")), (future_s, future_s))
    report = doctor(settings_for(log_dir, broker={"log_dirs": [log_dir, other]}), areas=[Area.LOG_DIRS])
    found = troubles(report)
    assert set(found) == {str(log_dir), "disks", "producer snapshots", "times of files"}
    assert "somebody-s" in found[str(log_dir)]
    assert "lie on one disk" in found["disks"]
    assert report.exit_code == 0


def test_a_meta_properties_with_other_content_is_a_warning_that_names_it(log_dir: Path) -> None:
    other = _empty_log_dir(log_dir, "other")
    (other / "meta.properties").write_bytes(b"\x93\x00\xfe random")
    report = doctor(settings_for(log_dir, broker={"log_dirs": [log_dir, other]}), areas=[Area.LOG_DIRS])
    assert f"no id in {other / 'meta.properties'}" in troubles(report)["ids in meta.properties"]
    assert report.exit_code == 0


def test_a_copy_without_the_checkpoint_files_is_a_problem_unless_the_leader_is_asked(log_dir: Path) -> None:
    (log_dir / RECOVERY_POINT_CHECKPOINT).unlink()
    report = doctor(settings_for(log_dir), areas=[Area.LOG_DIRS])
    assert "copy its checkpoint files, too" in troubles(report)["stable offsets"]
    assert report.exit_code == 3


def test_patterns_that_match_no_topic_that_lies_here_are_a_warning(log_dir: Path) -> None:
    """Another broker may have the topic."""
    report = doctor(settings_for(log_dir, topics={"include": ["payments"]}), areas=[Area.LOG_DIRS])
    (reported,) = (text for text in troubles(report).values() if "no topic matches" in text)
    assert "append-time" in reported
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("in_cluster", "exit_code", "words"),
    [
        (["orders", "append-time"], 2, "of the cluster's topics no topic matches"),
        (["orders", "payments"], 0, "no replica of a selected topic"),
    ],
)
def test_patterns_that_match_no_topic_of_the_cluster_are_a_problem_as_run_and_backfill_find(
    in_cluster: list[str], exit_code: int, words: str, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_facts, "all_topics", lambda _: frozenset(in_cluster))
    connection = {"bootstrap_servers": ["127.0.0.1:9"]}
    broker = {"assume_leader": False, "connection": connection}
    settings = settings_for(log_dir, topics={"include": ["payments"]}, broker=broker)
    report = doctor(settings, areas=[Area.LOG_DIRS])
    assert words in troubles(report)["partitions"]
    assert report.exit_code == exit_code


def test_a_cluster_that_does_not_answer_makes_no_problem_of_it(log_dir: Path) -> None:
    """That the broker is away another area tells."""
    broker = {"assume_leader": False, "connection": {"bootstrap_servers": ["127.0.0.1:9"]}}
    settings = settings_for(log_dir, topics={"include": ["payments"]}, broker=broker)
    report = doctor(settings, areas=[Area.LOG_DIRS])
    assert "the cluster's topics are unknown: " in troubles(report)["partitions"]
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("flags", "verdict", "words"),
    [
        (["--topic", "orders"], "ok", "2 of the accepted topics"),
        (["--topic", "orders", "--topic", "trimmed", "--exclude", "ord.*"], "ok", "1 of the accepted topics"),
        (["--topic", "odrers"], "warning", "no topic matches; there are: append-time"),
        (["--exclude", ".*"], "warning", "no topic matches; there are: append-time"),
    ],
)
def test_topics_are_chosen_by_flags_as_backfill_takes_them(
    flags: list[str], verdict: str, words: str, log_dir: Path
) -> None:
    arguments = ["--log-dir", log_dir, "--archive", log_dir.parent, "--assume-leader", "--area", "log_dirs"]
    (report,) = in_this_process("--json", "doctor", *arguments, *flags).lines()
    (found,) = [check for check in report["checks"] if check["check"] == "partitions"]
    assert (found["verdict"], words in found["detail"]) == (verdict, True), found


def test_files_that_may_not_be_read_are_reported_with_what_to_do(log_dir: Path) -> None:
    arguments = ["doctor", "--json", "--area", "log_dirs", "--log-dir", str(log_dir)]
    arguments += ["--archive", str(log_dir.parent / "archive")]
    segment = min(log_dir.glob("append-time-0/*.log"))
    segment.chmod(0)
    active = max(log_dir.glob("append-time-0/*.log"))
    active.chmod(0)
    (answer,) = unprivileged.tiered_sidecar(*arguments).lines()
    (denied,) = [check for check in answer["checks"] if check["verdict"] == "problem"]
    assert (denied["check"], answer["exit_code"]) == ("files can be read", 3)
    assert "append-time-0" in denied["detail"]
    assert "broker's user" in denied["advice"]
    log_dir.chmod(0)
    try:
        (answer,) = unprivileged.tiered_sidecar(*arguments).lines()
    finally:
        log_dir.chmod(0o755)
    assert [check["verdict"] for check in answer["checks"]] == ["problem", *["not_checked"] * 9]


def test_a_partition_that_may_not_be_listed_is_reported_with_what_to_do(log_dir: Path) -> None:
    arguments = ["doctor", "--json", "--area", "log_dirs", "--log-dir", str(log_dir)]
    (log_dir / "orders-0").chmod(0)
    try:
        (answer,) = unprivileged.tiered_sidecar(*arguments).lines()
        healed = unprivileged.tiered_sidecar("snapshots", "heal", "--dry-run", str(log_dir))
    finally:
        (log_dir / "orders-0").chmod(0o755)
    (denied,) = [check for check in answer["checks"] if check["verdict"] == "problem"]
    assert denied["check"] == "partitions"
    assert "broker's user" in denied["advice"]
    (said,) = [line for line in healed.err.splitlines() if line.startswith("problem: orders-0: ")]
    assert "broker's user" in said


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "snapshot"])
def test_one_file_of_a_rolled_segment_that_may_not_be_read_is_found(log_dir: Path, suffix: str) -> None:
    """Also where it is not the newest segment of its partition."""
    files = sorted(log_dir.glob(f"orders-0/*.{suffix}"))
    assert len(files) > 3
    files[1].chmod(0)
    arguments = ["doctor", "--json", "--area", "log_dirs", "--log-dir", str(log_dir)]
    (answer,) = unprivileged.tiered_sidecar(*arguments, "--archive", str(log_dir.parent / "archive")).lines()
    (denied,) = [check for check in answer["checks"] if check["verdict"] == "problem"]
    assert (denied["check"], answer["exit_code"]) == ("files can be read", 3)
    assert str(files[1]) in denied["detail"]


def test_one_partition_that_cannot_be_looked_at_hides_nothing_of_the_others(log_dir: Path) -> None:
    (log_dir / "odd-0").mkdir()
    os.mkfifo(log_dir / "odd-0" / "00000000000000000000.log")
    for snapshot in log_dir.glob("*/*.snapshot"):
        snapshot.unlink()
    report = doctor(settings_for(log_dir), areas=[Area.LOG_DIRS])
    assert set(troubles(report)) == {"partitions", "producer snapshots"}
    assert "odd-0" in troubles(report)["partitions"]
    assert found_in(report, "files can be read").outcome.verdict is Verdict.OK


@pytest.mark.parametrize(
    ("left_ms", "reported"),
    [
        (-5, "any moment"),
        (0, "any moment"),
        (1, "in 1 min"),
        (60_001, "in 2 min"),
        (119 * 60_000, "in 119 min"),
        (7_200_000, "in 2.0 h"),
    ],
)
def test_what_goes_soon_is_reported_in_minutes(left_ms: int, reported: str) -> None:
    assert log_dirs._left(left_ms) == reported


def test_logs_that_are_idle_and_never_roll_are_a_warning_before_retention_deletes_them(log_dir: Path) -> None:
    def finding(**sections: Any) -> Finding:
        return found_in(doctor(settings_for(log_dir, **sections), areas=[Area.LOG_DIRS]), "idle logs")

    def policy(retention_ms: int) -> dict[str, Any]:
        return {"policies": [{"pattern": ".*", "retention_ms": retention_ms}]}

    assert finding().outcome.verdict is Verdict.NOT_CHECKED
    assert finding(topics=policy(10**15)).outcome.verdict is Verdict.OK
    found = finding(topics=policy(1_000))
    assert found.outcome.verdict is Verdict.WARNING
    assert "which do not roll: 11. `run` archives such a segment only when retention deletes it" in found.outcome.detail
    assert found.outcome.detail.endswith("any moment")
    assert found.outcome.advice.startswith("write a record to the partition now: this delays it by retention.ms")
    assert "set segment.ms of the topic well below its retention.ms" in found.outcome.advice
    led = finding(topics=policy(1_000), broker={"assume_leader": False})
    assert led.outcome.verdict is Verdict.OK


@pytest.mark.parametrize("which", ["first", "active"])
def test_a_symbolic_link_in_the_place_of_a_log_is_found(which: str, log_dir: Path) -> None:
    """`run` and `backfill` refuse to follow it, so the check of the files must not."""
    logs = sorted((log_dir / "orders-0").glob("*.log"))
    log = logs[0] if which == "first" else logs[-1]
    elsewhere = log.rename(log_dir.parent / log.name)
    log.symlink_to(elsewhere)
    detail = troubles(doctor(settings_for(log_dir), areas=[Area.LOG_DIRS]))["files can be read"]
    assert f"{log}: a symbolic link; a segment's files must be regular files" in detail
    assert "run as the broker's user" not in detail
