"""`doctor` as a whole: every trouble is one line with what to do, the other lines stand, and nothing hangs it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from sidecar.doctor.doctor import doctor, examine
from sidecar.doctor.findings import Area, Check, Verdict, fine, problem
from tests.cli.running import in_this_process, tiered_sidecar
from tests.doctor.examined import found_in, settings_for, troubles
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore


def test_an_installation_without_fault_is_all_green(log_dir: Path) -> None:
    report = doctor(settings_for(log_dir))
    assert troubles(report) == {}
    assert report.exit_code == 0
    assert not report.has_hung
    assert not (log_dir.parent / "archive").exists()
    assert not (log_dir.parent / "state").exists()


def test_the_command_says_the_same_in_a_table_and_in_json(log_dir: Path) -> None:
    arguments = ["doctor", "--log-dir", log_dir, "--archive", log_dir.parent / "archive", "--assume-leader"]
    arguments += ["--state-dir", log_dir.parent / "state"]
    shown = in_this_process(*arguments)
    assert (shown.code, "problems: 0, warnings: 0" in shown.err) == (0, True)
    assert "create-only put under a race" in shown.out
    (answer,) = in_this_process("--json", *arguments).lines()
    assert (answer["kind"], answer["version"], answer["exit_code"]) == ("doctor", 1, 0)
    assert {check["area"] for check in answer["checks"]} == set(Area)
    assert answer["counts"]["ok"] == sum(check["verdict"] == "ok" for check in answer["checks"])


def test_settings_that_cannot_be_read_are_a_finding_and_nothing_else_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("store: {url: s3://bucket}\nrun: {scan_intervall_s: 3}\n")
    outcome = in_this_process("doctor", "--json", "--config", tmp_path / "settings.yaml")
    (answer,) = outcome.lines()
    assert (outcome.code, answer["exit_code"]) == (2, 2)
    assert "did you mean run.scan_interval_s" in answer["checks"][0]["detail"]
    assert {check["verdict"] for check in answer["checks"][1:]} == {"not_checked"}


def test_an_area_can_be_asked_for_alone(log_dir: Path) -> None:
    report = doctor(settings_for(log_dir), areas=[Area.MACHINE])
    assert {found.area for found in report.findings} == {Area.MACHINE}


def test_an_area_without_the_store_needs_no_url_of_it(log_dir: Path) -> None:
    arguments = ["--log-dir", log_dir, "--assume-leader", "--json"]
    for area in ("log_dirs", "broker"):
        (answer,) = in_this_process("doctor", "--area", area, *arguments).lines()
        assert answer["exit_code"] == 0, answer
        assert {check["area"] for check in answer["checks"]} == {area}
    (answer,) = in_this_process("doctor", "--area", "log_dirs", "--area", "store", *arguments).lines()
    assert "store.url: not set" in answer["checks"][0]["detail"]


def test_settings_that_are_valid_and_dangerous_are_warnings(log_dir: Path) -> None:
    s3 = {"endpoint_url": "http://s3.example:9000", "checksum": "none", "storage_class": "GLACIER"}
    sections: dict[str, Any] = {
        "store": {"url": "s3://bucket/archive", "single_writer": True, "s3": s3},
        "gc": {"grace_period_ms": 1000},
        "run": {"record_lost": True},
    }
    report = doctor(settings_for(log_dir, **sections), areas=[Area.SETTINGS])
    assert set(troubles(report)) == {
        "store.single_writer",
        "store.s3.endpoint_url",
        "store.s3.checksum",
        "store.s3.storage_class",
        "gc.grace_period_ms",
        "run.record_lost",
    }
    nobody = doctor(settings_for(log_dir, broker={"assume_leader": False}), areas=[Area.SETTINGS])
    assert (list(troubles(nobody)), nobody.exit_code) == (["leadership"], 2)


def test_a_check_that_hangs_costs_its_time_and_no_more(log_dir: Path, memory: MemoryStore) -> None:
    released = threading.Event()
    memory.before = lambda operation, _key: operation == "put_if_absent" and released.wait(60) and None
    try:
        report = doctor(settings_for(log_dir), timeout_s=8.0)
    finally:
        released.set()
    assert report.has_hung
    assert "no answer within 8 s" in found_in(report, "write").outcome.detail
    assert found_in(report, "read").outcome.detail == "it needs 'write'"
    assert found_in(report, "partitions").outcome.verdict is Verdict.OK


def test_a_process_whose_check_hangs_ends_with_its_report(log_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        arguments = ["--log-dir", log_dir, "--archive", log_dir.parent / "archive", "--bootstrap-server", server]
        patient = ["--set", "broker.connection.request_timeout_s=300"]
        outcome = tiered_sidecar("doctor", "--json", "--area", "broker", "--timeout", "8", *arguments, *patient)
    (answer,) = outcome.lines()
    assert (outcome.code, answer["exit_code"]) == (1, 1)
    assert [check["verdict"] for check in answer["checks"]] == ["ok", "problem", *["not_checked"] * 5]
    assert "no answer within 8 s" in answer["checks"][1]["detail"]


def test_a_fault_of_our_own_is_no_finding() -> None:
    def fail() -> Any:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        examine({Area.MACHINE: [Check("odd", fail)]}, ManualClock(), timeout_s=120)


def test_problems_of_several_kinds_end_with_3() -> None:
    checks = [Check("one", lambda: problem("", exit_code=2)), Check("two", lambda: problem("", exit_code=6))]
    assert examine({Area.STORE: checks}, ManualClock(), timeout_s=120).exit_code == 3
    assert examine({Area.STORE: [Check("ok", lambda: fine(""))]}, ManualClock(), timeout_s=120).exit_code == 0
