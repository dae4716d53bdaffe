"""`run` beside a directory that grows: what it archives and when, how it ends, and what it does when things go away."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.segments import MIB, write_log_dir
from sidecar.model import ObjectKey
from sidecar.storage.directory_store import TEMPORARY_SUFFIX
from tests.fakes.manual_clock import ManualClock
from tests.golden import golden, golden_copy
from tests.real.daemon import FAST, Daemon, GrowingLog, eventually, now_s
from tests.real.product import (
    PROGRAM,
    SHORT_RACE_PROGRAM,
    environment,
    json_lines,
    run_installed,
    run_program,
    s3_settings,
    store_of,
)
from tests.runner.rig import archived_states, ranges, rolled_ranges
from tests.servers.process import ServerProcess
from tests.servers.versitygw import VersityGateway
from tests.verifying import verify_partition

pytestmark = pytest.mark.real

LOGS = golden("4.3.0") / "logs"
ROLLED_LONG_AGO = {**FAST, "broker.settle_ms": "0", "broker.snapshot_grace_ms": "0"}
"""`backfill` leaves segments that have rolled just now to its next run."""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[VersityGateway]:
    with VersityGateway(tmp_path / "versitygw", options=["--quiet"]) as server:
        yield server


def s3(gateway: VersityGateway, log_dir: Path) -> dict[str, str]:
    return {**s3_settings(gateway), "store.url": f"s3://{gateway.bucket}/archive", "broker.log_dirs": str(log_dir)}


def directory(tmp_path: Path, log_dir: Path) -> dict[str, str]:
    return {"store.url": (tmp_path / "archive").as_uri(), "broker.log_dirs": str(log_dir)}


def assert_whole(settings: Mapping[str, str], expected: Mapping[str, list[tuple[int, int]]]) -> None:
    """The archive has these ranges, all of it can be read back, and nothing lies beside it."""
    with store_of(settings) as store:
        states = archived_states(store)
        assert {name: ranges(state) for name, state in states.items()} == expected
        for state in states.values():
            found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
            assert (found.problems, found.orphans, found.unfinished_uploads) == ((), (), 0)


def all_rolled(log_dir: Path) -> dict[str, list[tuple[int, int]]]:
    """What must be archived of the topics that have no open transaction and no trimmed start."""
    return {name: rolled_ranges(log_dir, name) for name in ("orders-0", "orders-1")}


def test_segments_are_archived_soon_after_they_rolled_without_a_jvm_and_sigterm_drains(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    log = GrowingLog(LOGS, log_dir, "orders-0")
    trap = tmp_path / "trap" / "pyspark"
    trap.mkdir(parents=True)
    (trap / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    settings = directory(tmp_path, log_dir)
    took_s = []
    with Daemon(tmp_path, settings, variables={"PYTHONPATH": str(trap.parent)}, program=[str(PROGRAM)]) as daemon:
        eventually(daemon.is_settled)
        while log.remaining:
            rolled_end = log.roll()
            # Until then it may not be archived: 400 ms for a missing snapshot, else 200 ms.
            took_s.append(eventually(lambda: daemon.archived_end("orders-0") == rolled_end))  # noqa: B023
        assert daemon.get("/healthz") == (200, "ok\n")
        assert daemon.metric("segments_total", stage="committed", result="ok") == len(took_s)
        assert daemon.metric("pending_segments") == 0
        assert daemon.metric("last_success_timestamp_seconds") > 0
        maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert "libjvm" not in maps
        assert "pyspark" not in maps
        assert psutil.Process(daemon.process.pid).children() == []
        assert daemon.process.stop() == 0
        assert [event["event"] for event in daemon.events()][-2:] == ["draining", "stopped"]
    assert not (tmp_path / "imported").exists()
    # The scan comes every 30 s: without the file-system's hint most of these would take longer.
    print("seconds until archived:", [round(seconds, 2) for seconds in took_s])
    assert sorted(took_s)[len(took_s) // 2] < 10, took_s
    assert_whole(settings, {"orders-0": rolled_ranges(LOGS, "orders-0")})


def test_a_restart_uploads_nothing_again_and_an_idle_scan_asks_the_store_for_nothing(
    tmp_path: Path, gateway: VersityGateway
) -> None:
    settings = {**s3(gateway, LOGS), "topics.include": "orders", "run.scan_interval_s": "0.1"}
    with Daemon(tmp_path, settings) as daemon:
        eventually(daemon.is_settled)
        assert daemon.process.stop() == 0
    expected = all_rolled(LOGS)
    assert_whole(settings, expected)
    with store_of(settings) as store:
        before = [(facts.key, facts.modified_ms) for facts in store.list("") if "_probe" not in facts.key]
    with daemon:
        eventually(daemon.is_settled)
        asked = daemon.metric("store_requests_total")
        ended_ms = json.loads(daemon.get("/status")[1])["round_ended_ms"]
        eventually(lambda: json.loads(daemon.get("/status")[1])["round_ended_ms"] > ended_ms + 1500)
        assert daemon.metric("store_requests_total") == asked
        assert daemon.metric("segments_total", stage="uploaded") == 0
        assert daemon.process.stop() == 0
    with store_of(settings) as store:
        after = [(facts.key, facts.modified_ms) for facts in store.list("") if "_probe" not in facts.key]
    assert after == before


def test_a_store_that_is_not_there_at_the_start_is_waited_for(tmp_path: Path, gateway: VersityGateway) -> None:
    gateway.process.kill()
    settings = {**s3(gateway, LOGS), "topics.include": "orders"}
    with Daemon(tmp_path, settings) as daemon:
        eventually(lambda: "store_not_usable" in daemon.process.output())
        assert daemon.get("/healthz")[0] == 200
        status, body = daemon.get("/readyz")
        assert status == 503
        assert "store: " in body
        assert "check store.s3.endpoint_url" in body
        gateway.start()
        eventually(daemon.is_settled)
        assert daemon.process.stop() == 0
    assert_whole(settings, all_rolled(LOGS))


def test_a_store_that_goes_away_in_the_middle_costs_nothing_but_time(tmp_path: Path, gateway: VersityGateway) -> None:
    log_dir = tmp_path / "logs"
    log = GrowingLog(LOGS, log_dir, "orders-0")
    settings = {**s3(gateway, log_dir), "run.scan_interval_s": "1"}
    with Daemon(tmp_path, settings) as daemon:
        for _ in range(3):
            end = log.roll()
        eventually(lambda: daemon.archived_end("orders-0") == end)
        # What is archived is reported before the first round ends: until then it is not ready in any case.
        eventually(daemon.is_ready)
        gateway.process.kill()
        for _ in range(3):
            end = log.roll()
        eventually(lambda: not daemon.is_ready())
        # A partition that rests after its failure is still shown, and still counts as pending.
        for _ in range(5):
            started_ms = json.loads(daemon.get("/status")[1])["round_ended_ms"]
            eventually(lambda: json.loads(daemon.get("/status")[1])["round_ended_ms"] > started_ms)  # noqa: B023
            assert daemon.get("/readyz")[0] == 503
            # Not while it is tried again, which takes a moment every second.
            eventually(lambda: daemon.partitions()["orders-0"]["error"] == "StoreUnavailable")
            assert daemon.metric("pending_segments") == 3
            assert daemon.metric("oldest_pending_segment_age_seconds") > 0
        assert daemon.get("/healthz")[0] == 200
        gateway.start()
        eventually(lambda: daemon.archived_end("orders-0") == end)
        eventually(daemon.is_settled)
        assert daemon.process.stop() == 0
    bases = sorted(int(path.name[:20]) for path in (log_dir / "orders-0").glob("*.log"))
    assert_whole(settings, {"orders-0": list(pairwise(bases))})


def test_keys_of_the_store_are_rotated_without_a_restart(tmp_path: Path, gateway: VersityGateway) -> None:
    log_dir = tmp_path / "logs"
    log = GrowingLog(LOGS, log_dir, "orders-0")
    given = {**s3(gateway, log_dir), "run.scan_interval_s": "1"}
    names = ("store.s3.access_key_id", "store.s3.secret_access_key")
    files = {f"{name}_file": tmp_path / name for name in names}
    for name in names:
        (tmp_path / name).write_text(given.pop(name))
    settings = {**given, **{name: str(file) for name, file in files.items()}}
    with Daemon(tmp_path, settings) as daemon:
        end = log.roll()
        eventually(lambda: daemon.archived_end("orders-0") == end)
        gateway.change_keys("another-access-key", "another-secret-key")
        end = log.roll()
        eventually(lambda: daemon.partitions()["orders-0"]["error"] == "StoreDenied")
        for file, text in zip(files.values(), (gateway.access_key, gateway.secret_key), strict=True):
            file.write_text(text)
        eventually(lambda: daemon.archived_end("orders-0") == end)
        assert daemon.process.stop() == 0
        assert "another-secret-key" not in daemon.process.output()
    bases = sorted(int(path.name[:20]) for path in (log_dir / "orders-0").glob("*.log"))
    assert_whole(settings, {"orders-0": list(pairwise(bases))})


@pytest.mark.parametrize("how", ["a second signal", "the drain's time limit"])
def test_a_drain_that_a_store_holds_up_is_ended_and_the_next_start_goes_on(
    how: str, tmp_path: Path, gateway: VersityGateway
) -> None:
    log_dir = write_log_dir(tmp_path / "logs", 2, 12 * MIB)
    limit = "1" if how == "the drain's time limit" else "60"
    settings = {**s3(gateway, log_dir), "run.drain_timeout_s": limit, "store.s3.part_bytes": str(5 * MIB)}
    settings["store.s3.read_timeout_s"] = "120"
    slow = {**settings, "store.bandwidth_bytes_per_s": str(MIB)}
    with Daemon(tmp_path, slow) as daemon:
        with gateway_client(gateway) as client:
            eventually(lambda: "Uploads" in client.list_multipart_uploads(Bucket=gateway.bucket, Prefix="archive/b"))
        gateway.process.send_signal(signal.SIGSTOP)
        daemon.process.send_signal(signal.SIGTERM)
        eventually(lambda: "draining" in daemon.process.output())
        started_s = now_s()
        if how == "a second signal":
            daemon.process.send_signal(signal.SIGTERM)
        eventually(lambda: not daemon.process.alive)
        # The other limit is 60 s, and a request to the silent store lasts for 120.
        assert now_s() - started_s < 40
        assert daemon.process.stop() == 143
        gateway.process.send_signal(signal.SIGCONT)
    with Daemon(tmp_path, settings) as daemon:
        eventually(daemon.is_settled)
        assert daemon.process.stop() == 0
    assert_whole(settings, {"measured-0": rolled_ranges(log_dir, "measured-0")})


def gateway_client(gateway: VersityGateway) -> closing[Any]:
    return closing(gateway.client())


def test_kill_9_in_the_middle_of_a_multipart_upload_leaves_nothing_behind(
    tmp_path: Path, gateway: VersityGateway
) -> None:
    log_dir = write_log_dir(tmp_path / "logs", 2, 32 * MIB)
    settings = {**s3(gateway, log_dir), "store.s3.part_bytes": str(5 * MIB)}
    with (
        Daemon(tmp_path, {**settings, "store.bandwidth_bytes_per_s": str(2 * MIB)}) as daemon,
        gateway_client(gateway) as client,
    ):

        def parts_sent() -> int:
            uploads = client.list_multipart_uploads(Bucket=gateway.bucket, Prefix="archive/b").get("Uploads", [])
            names = [
                {"Bucket": gateway.bucket, "Key": found["Key"], "UploadId": found["UploadId"]} for found in uploads
            ]
            return sum(len(client.list_parts(**name).get("Parts", [])) for name in names)

        eventually(lambda: parts_sent() >= 3)
        daemon.process.kill()
        assert parts_sent() >= 3
    with Daemon(tmp_path, settings) as daemon:
        eventually(daemon.is_settled)
        assert daemon.process.stop() == 0
    assert_whole(settings, {"measured-0": rolled_ranges(log_dir, "measured-0")})


def test_a_journal_that_cannot_grow_is_one_clear_error_and_a_rerun_completes(
    tmp_path: Path, gateway: VersityGateway
) -> None:
    settings = {**FAST, **s3(gateway, LOGS), "run.state_dir": str(tmp_path / "state"), "topics.include": "orders"}
    for limit_bytes in (8 * 1024, 80 * 1024):  # before any partition, and amid them
        done = subprocess.run(
            [*SHORT_RACE_PROGRAM, "backfill", "--json"],
            env=environment(settings),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes)),  # noqa: B023
        )
        assert done.returncode == 3, done.stderr
        assert "journal.sqlite: the journal cannot be written" in done.stderr + done.stdout
        assert "free space below run.state_dir" in done.stderr + done.stdout
        assert "Traceback" not in done.stderr
    done = run_program(settings, "backfill", "--json")
    assert done.returncode == 0, done.stderr
    assert sum(row["segments_uploaded"] for row in json_lines(done)[0]["partitions"]) > 0
    assert_whole(settings, all_rolled(LOGS))


@pytest.mark.apart
def test_two_processes_with_their_own_state_archive_each_range_once(tmp_path: Path) -> None:
    copy = golden_copy("4.3.0", tmp_path / "copy") / "logs"
    settings = {**directory(tmp_path, copy), "topics.include": "orders", "run.retry_wait_s": "0.2"}
    with Daemon(tmp_path / "a", settings) as first, Daemon(tmp_path / "b", settings) as second:
        expected = {name: spans[-1][1] for name, spans in all_rolled(copy).items()}
        for daemon in (first, second):
            eventually(lambda: {name: daemon.archived_end(name) for name in expected} == expected)  # noqa: B023
        assert (first.process.stop(), second.process.stop()) == (0, 0)
    assert_whole(settings, all_rolled(copy))


def test_a_second_process_with_the_same_state_directory_is_refused(tmp_path: Path) -> None:
    settings = {**directory(tmp_path, LOGS), "topics.include": "orders", "run.state_dir": str(tmp_path / "state")}
    with Daemon(tmp_path, settings) as daemon:
        eventually(daemon.is_settled)
        done = run_installed({**FAST, **settings}, "run", "--http-bind", "127.0.0.1:0")
        assert done.returncode == 2
        assert "another tiered-sidecar process uses this state directory" in done.stderr
        assert daemon.process.stop() == 0


def test_a_second_sigterm_ends_a_backfill_in_the_middle_of_an_upload_and_the_next_one_goes_on(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "logs", 4, 8 * MIB)
    settings = {**ROLLED_LONG_AGO, **directory(tmp_path, log_dir), "run.state_dir": str(tmp_path / "state")}
    backfill = ServerProcess(
        "backfill",
        [str(PROGRAM), "backfill", "--set", f"store.bandwidth_bytes_per_s={2 * MIB}"],
        tmp_path / "log",
        environment(settings),
    )

    def uploading() -> list[Path]:
        return list((tmp_path / "archive").rglob(f"*.log.*{TEMPORARY_SUFFIX}"))

    backfill.launch()
    # But for the last one all are committed: no commit is under way, which a killed process would leave unfinished.
    eventually(lambda: backfill.output().count("segment_committed") == 3 and uploading())

    def ended() -> bool:
        if backfill.alive:
            backfill.send_signal(signal.SIGTERM)
        return not backfill.alive

    eventually(ended)
    assert backfill.stop() == 143
    assert "Traceback" not in backfill.output()
    assert uploading()
    with store_of(settings) as store:
        (state,) = archived_states(store).values()
        found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
    spans = rolled_ranges(log_dir, "measured-0")
    assert (ranges(state), found.problems) == (spans[: len(state.segments)], ())
    assert 0 < len(state.segments) < len(spans)
    done = run_program(settings, "backfill", "--json")
    assert done.returncode == 0, done.stderr
    assert json_lines(done)[0]["partitions"][0]["segments_uploaded"] == len(spans) - len(state.segments)
    assert_whole(settings, {"measured-0": spans})


def test_ctrl_c_ends_a_backfill_at_the_next_segment(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "logs", 30, 2 * MIB)
    settings = {**ROLLED_LONG_AGO, **directory(tmp_path, log_dir), "run.state_dir": str(tmp_path / "state")}
    backfill = ServerProcess(
        "backfill",
        [*SHORT_RACE_PROGRAM, "backfill", "--set", f"store.bandwidth_bytes_per_s={2 * MIB}"],
        tmp_path / "log",
        environment(settings),
    )
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # A job in the background ignores it, and its heirs.
    backfill.launch()
    signal.signal(signal.SIGINT, before)
    eventually(lambda: "segment_committed" in backfill.output())
    os.kill(backfill.pid, signal.SIGINT)
    took_s = eventually(lambda: not backfill.alive)
    assert took_s < 15  # All of it would take 30 s.
    assert backfill.stop() == 130
    assert "Traceback" not in backfill.output()
    done = run_program(settings, "backfill", "--json")
    assert done.returncode == 0, done.stderr
    assert 0 < json_lines(done)[0]["partitions"][0]["segments_uploaded"] < 30
    assert_whole(settings, {"measured-0": rolled_ranges(log_dir, "measured-0")})
