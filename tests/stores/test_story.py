"""One story through the command line, against each S3 server that the probe accepts.

Writers at once, and one that is killed, are processes; other commands run in this one, which costs a second less for each.
"""

from __future__ import annotations

import signal
import subprocess
from contextlib import closing
from filecmp import cmp
from pathlib import Path
from typing import Any

import pytest

from benchmarks.segments import MIB, write_log_dir
from sidecar.model import ObjectKey
from sidecar.storage.store_clock import PROBE_FOLDER
from tests.cli.running import in_this_process
from tests.golden import golden, manifest
from tests.real.daemon import eventually
from tests.real.product import SHORT_RACE_PROGRAM, environment, s3_settings, store_of, variables_of
from tests.real.soak_equality import commits_of
from tests.runner.rig import archived_states, ranges, rolled_ranges
from tests.servers.fault_proxy import fault_proxy
from tests.servers.s3_server import S3Server
from tests.servers.stores import StoreKind, chosen_stores

pytestmark = [
    pytest.mark.real,
    pytest.mark.parametrize(
        "kind",
        [
            # Of the others the gate has contract and races; `make store-matrix` has all of all.
            pytest.param(kind, id=kind.name, marks=() if kind.name == "versitygw" else pytest.mark.apart)
            for kind in chosen_stores(one_writer_wins=True)
        ],
        scope="module",
    ),
]

LOGS = golden("4.3.0") / "logs"
PART_BYTES = 5 * MIB
LARGE_BYTES = 7 * PART_BYTES


def settings_of(server: S3Server, tmp_path: Path, endpoint: str | None = None) -> dict[str, str]:
    """An archive of its own for each test."""
    url = f"s3://{server.bucket}/{tmp_path.name}"
    state_dir = str(tmp_path / "state")
    return {**s3_settings(server, endpoint), "store.url": url, "run.state_dir": state_dir}


def backfill(log_dir: Path) -> list[str]:
    return ["backfill", "--log-dir", str(log_dir), "--assume-leader", "--json"]


def succeeded(settings: dict[str, str], *arguments: str) -> list[dict[str, Any]]:
    """What a command printed that ended with 0."""
    done = in_this_process(*arguments, "--json", variables=variables_of(settings))
    assert done.code == 0, done.out + done.err
    return done.lines()


def test_from_doctor_to_restore(kind: StoreKind, server: S3Server, tmp_path: Path) -> None:
    settings = settings_of(server, tmp_path)
    (report,) = succeeded(settings, "doctor", "--area", "store")
    assert [one for one in report["checks"] if one["verdict"] == "problem"] == []
    two_writers_at_once(settings, tmp_path)
    (report,) = succeeded(settings, *backfill(LOGS)[:-1])
    assert {row["segments_uploaded"] for row in report["partitions"]} == {0}
    with store_of(settings) as store:
        states = archived_states(store)
        for name, state in states.items():
            rolled = [span for span in rolled_ranges(LOGS, name) if span[1] <= (state.end_offset or 0)]
            assert (ranges(state), state.holes) == (rolled, ())
            # One commit for each segment: who lost the race for a number committed nothing.
            assert len(list(commits_of(store, ObjectKey(state.lineage.root)))) == len(rolled)
    # Five more wait for an open transaction.
    assert sum(len(state.segments) for state in states.values()) == 32
    restored(settings, "compacted", tmp_path / "before")
    for name in ("compacted-0", "compacted-1"):
        for path in (tmp_path / "before" / name).glob("*.log"):
            if path.stat().st_size:
                assert cmp(path, LOGS / name / path.name, shallow=False), path
    for row in succeeded(
        settings, "compact", "--archive", settings["store.url"], "--topic", "orders", "--engine", "local"
    ):
        assert row["records_after"] < row["records_before"]
    found = succeeded(settings, "gc", "--grace-ms", "0")
    assert sum(row.get("replaced_segments", 0) for row in found) == 12
    for row in succeeded(settings, "verify", "--deep"):
        assert (row["problems"], row["orphans"], row["unfinished_uploads"]) == ([], [], 0)
    restored(settings, "orders", tmp_path / "after")


def two_writers_at_once(settings: dict[str, str], tmp_path: Path) -> None:
    """Both archive the same directory. Either may stop in the end because the other one came first."""
    writers = [
        subprocess.Popen(
            [*SHORT_RACE_PROGRAM, *backfill(LOGS)],
            env=environment({**settings, "run.state_dir": str(tmp_path / f"state-{number}")}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for writer in writers:
        output, errors = writer.communicate()
        assert writer.returncode == 0, output + errors


def restored(settings: dict[str, str], topic: str, target: Path) -> None:
    target.mkdir()
    topic_id = manifest("4.3.0")["topics"][topic]["topic_id"]
    same_topic = ["--topic-id", topic_id, "--leader-epochs", "keep"]
    succeeded(settings, "restore", "--topic", topic, "--to", str(target), *same_topic)


def unfinished(server: S3Server, prefix: str) -> list[str]:
    """Keys of unfinished uploads, by the server's own list of all: not every server lists those below a prefix.

    Without those of the probe: it goes on while the first segment is uploaded, and what a killed one leaves is removed by `gc`.
    """
    with closing(server.client()) as client:
        uploads = client.list_multipart_uploads(Bucket=server.bucket).get("Uploads", [])
    return [key for upload in uploads if (key := upload["Key"]).startswith(prefix) and f"/{PROBE_FOLDER}/" not in key]


def test_killed_in_the_middle_of_a_large_upload_it_starts_again_and_leaves_nothing(
    kind: StoreKind, server: S3Server, tmp_path: Path
) -> None:
    log_dir = write_log_dir(tmp_path / "logs", 1, LARGE_BYTES)
    with fault_proxy(server.endpoint) as proxy:
        settled = {"broker.settle_ms": "0", "broker.snapshot_grace_ms": "0", "store.s3.part_bytes": str(PART_BYTES)}
        settings = {**settings_of(server, tmp_path, proxy.endpoint_url), **settled}
        proxy.hold("PUT", "partNumber=4")
        command = [*SHORT_RACE_PROGRAM, *backfill(log_dir)]
        with subprocess.Popen(command, env=environment(settings), stdout=subprocess.DEVNULL) as process:
            eventually(lambda: proxy.held.is_set() or process.poll() is not None)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert len(unfinished(server, tmp_path.name)) == 1
        (report,) = succeeded(settings, *backfill(log_dir)[:-1])
        assert [row["segments_uploaded"] for row in report["partitions"]] == [1]
        # What was on its way when its sender was killed arrives now.
        proxy.release()
        assert unfinished(server, tmp_path.name) == []
        (row,) = succeeded(settings, "verify", "--deep")
        assert (row["problems"], row["orphans"], row["unfinished_uploads"]) == ([], [], 0)


def test_wrong_keys_and_a_missing_bucket_end_with_six_and_say_what_to_do(
    kind: StoreKind, server: S3Server, tmp_path: Path
) -> None:
    settings = settings_of(server, tmp_path)
    wrong = {"store.url": ("s3://no-such-bucket/archive", "create the bucket")}
    if kind.checks_keys:
        wrong["store.s3.secret_access_key"] = ("wrong", "check the credentials")
    for name, (value, advice) in wrong.items():
        done = in_this_process(*backfill(LOGS), variables=variables_of({**settings, name: value}))
        assert (done.code, "Traceback" in done.err) == (6, False), done.err
        assert advice in done.err
        assert server.secret_key not in done.err
