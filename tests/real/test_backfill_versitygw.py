"""The installed program archives real brokers' directories into a real S3 server and into a directory, byte for byte."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from producer_state.snapshot import read_snapshot
from sidecar.archive.state import PartitionState
from sidecar.model import ObjectKey, PartName, SnapshotOrigin
from sidecar.ports import ObjectStore
from sidecar.runner import assembly
from sidecar.storage import race
from sidecar.storage.race import TURNS as ALL_TURNS
from tests.golden import dump_text, golden, golden_copy, manifest, split_dumps
from tests.golden.generate import DUMP_OPTIONS
from tests.real.product import (
    SUFFIXES,
    cut_out,
    json_lines,
    parts_of,
    run_installed,
    run_program,
    s3_settings,
    store_of,
)
from tests.runner.rig import archived_states, ranges, rolled_ranges
from tests.servers.kafka_java import dump_log_segments
from tests.servers.versitygw import VersityGateway, racy_program

pytestmark = pytest.mark.real


@pytest.fixture(params=["s3", "file"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Each kind of store in turn, an empty one for every test."""
    state = {"run.state_dir": str(tmp_path / "state")}
    if request.param == "file":
        return {**state, "store.url": (tmp_path / "archive").as_uri()}
    server: VersityGateway = request.getfixturevalue("gateway")
    return {**state, **s3_settings(server), "store.url": f"s3://{server.bucket}/{tmp_path.name}"}


def backfill_arguments(log_dir: Path) -> list[str]:
    return ["backfill", "--log-dir", str(log_dir), "--assume-leader", "--json"]


@pytest.mark.parametrize("version", ["2.7.2", pytest.param("3.9.1", marks=pytest.mark.apart), "4.3.0"])
def test_every_part_comes_back_byte_for_byte_and_kafka_reads_it(
    version: str, settings: dict[str, str], tmp_path: Path
) -> None:
    log_dir = golden(version) / "logs"
    done = run_program(settings, *backfill_arguments(log_dir))
    assert done.returncode == 0, done.stderr
    (report,) = json_lines(done)
    with store_of(settings) as store:
        states = archived_states(store)
        assert_parts_are_the_sources(store, states, log_dir)
        written = cut_out(store, states, tmp_path / "cut" / "logs")
        uploaded = {f"{row['topic']}-{row['partition']}": row["segments_uploaded"] for row in report["partitions"]}
        assert {name: count for name, count in uploaded.items() if count} == {
            name: len(state.segments) for name, state in states.items()
        }
        if settings["store.url"].startswith("s3:"):  # Of a directory the bytes are as compared above.
            compared = compare_with_stored_dumps(version, tmp_path / "cut", [Path("logs") / path for path in written])
            assert {suffix for suffix, count in compared.items() if count > 3} == set(DUMP_OPTIONS)
    assert_commands_agree(settings, {name: ranges(state) for name, state in states.items()}, version)


def assert_parts_are_the_sources(store: ObjectStore, states: Mapping[str, PartitionState], log_dir: Path) -> None:
    for partition, state in states.items():
        for segment in state.segments:
            parts = parts_of(store, state.lineage.root, segment)
            source = log_dir / partition / f"{segment.base_offset:020d}"
            for name, suffix in SUFFIXES.items():
                file = source.with_suffix(f".{suffix}")
                assert parts.get(name) == (file.read_bytes() if file.exists() else None), (partition, segment, suffix)
            snapshot = log_dir / partition / f"{segment.end_offset:020d}.snapshot"
            assert snapshot.exists() == (segment.snapshot.origin is SnapshotOrigin.BROKER)
            if snapshot.exists():
                assert parts[PartName.PRODUCER_SNAPSHOT] == snapshot.read_bytes()


def compare_with_stored_dumps(version: str, cut: Path, files: list[Path]) -> dict[str, int]:
    """Let the broker's own tool print the cut-out files. Returns how many of each suffix were compared."""
    names = [str(path) for path in files if path.suffix in DUMP_OPTIONS and (cut / path).stat().st_size]
    # One JVM for all of them: what is asked of logs changes nothing for the others.
    printed = split_dumps(dump_log_segments(version, cut, names, *DUMP_OPTIONS[".log"]))
    assert set(printed) == set(names)
    for name, text in printed.items():
        if (golden(version) / name).exists():
            assert text.strip() == dump_text(version, name).strip(), name
        else:
            assert Path(name).suffix == ".snapshot", name
            assert_dump_shows(text, (cut / name).read_bytes())
    return {suffix: sum(Path(name).suffix == suffix for name in printed) for suffix in DUMP_OPTIONS}


def assert_dump_shows(text: str, snapshot: bytes) -> None:
    """A snapshot that no broker wrote: Kafka's tool reads in it what we wrote."""
    found = re.findall(r"producerId: (\d+) producerEpoch: (-?\d+)", text)
    assert found == [(str(entry.producer_id), str(entry.producer_epoch)) for entry in read_snapshot(snapshot)]


def assert_commands_agree(settings: dict[str, str], expected: dict[str, list[tuple[int, int]]], version: str) -> None:
    done = run_program(settings, "status", "--json")
    assert done.returncode == 0, done.stderr
    rows = {f"{row['topic']}-{row['partition']}": row for row in json_lines(done)}
    assert set(rows) == set(expected)
    for name, row in rows.items():
        spans = expected[name]
        assert (row["start_offset"], row["end_offset"], row["segments"]) == (spans[0][0], spans[-1][1], len(spans))
        assert row["topic_id"] == manifest(version)["topics"][row["topic"]]["topic_id"]
        assert (row["holes"], row["problem"]) == ([], None)
    done = run_program(settings, "verify", "--deep", "--json")
    assert done.returncode == 0, done.stderr
    for row in json_lines(done):
        spans = [(segment["base_offset"], segment["end_offset"]) for segment in row["segments"]]
        assert spans == expected[f"{row['topic']}-{row['partition']}"]
        assert {segment["state"] for segment in row["segments"]} == {"FOUND"}
        assert (row["problems"], row["orphans"], row["unfinished_uploads"]) == ([], [], 0)


def test_a_second_backfill_goes_on_where_the_first_ended(settings: dict[str, str], tmp_path: Path) -> None:
    copy = golden_copy("3.9.1", tmp_path / "copy") / "logs"
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    spans = rolled_ranges(copy, "orders-0")
    for path in (copy / "orders-0").glob("0*"):
        if int(path.name[:20]) > spans[3][0]:
            path.rename(hidden / path.name)
    first = run_installed(settings, *backfill_arguments(copy))
    assert first.returncode == 0, first.stderr
    for path in hidden.iterdir():
        path.rename(copy / "orders-0" / path.name)
    second = run_program(settings, *backfill_arguments(copy))
    assert second.returncode == 0, second.stderr
    uploaded = {
        f"{row['topic']}-{row['partition']}": row["segments_uploaded"] for row in json_lines(second)[0]["partitions"]
    }
    assert uploaded.pop("orders-0") == len(spans) - 3
    assert set(uploaded.values()) == {0}
    with store_of(settings) as store:
        assert ranges(archived_states(store)["orders-0"]) == spans


def test_a_damaged_segment_gives_exit_code_3_and_a_lost_object_exit_code_4(
    settings: dict[str, str], tmp_path: Path
) -> None:
    copy = golden_copy("4.3.0", tmp_path / "copy") / "logs"
    damaged = copy / "orders-1" / f"{rolled_ranges(copy, 'orders-1')[1][0]:020d}.log"
    content, status = bytearray(damaged.read_bytes()), damaged.stat()
    content[100] ^= 1
    damaged.write_bytes(content)
    os.utime(damaged, ns=(status.st_atime_ns, status.st_mtime_ns))  # else it counts as not settled yet
    done = run_program(settings, *backfill_arguments(copy))
    assert done.returncode == 3
    stopped = [row for row in json_lines(done)[0]["partitions"] if row["error"]]
    assert [(row["topic"], row["partition"], row["error"]) for row in stopped] == [("orders", 1, "CorruptFile")]
    assert f"{damaged}, at byte 0" in stopped[0]["stopped_because"]
    with store_of(settings) as store:
        state = archived_states(store)["orders-0"]
        key = ObjectKey(f"{state.lineage.root}/{state.segments[2].log_key}")
        body = store.read(key)
        store.delete([key])
    done = run_program(settings, "verify", "--topic", "orders", "--json")
    with store_of(settings) as store:
        store.put_if_absent(key, body)  # The module's tests share a bucket, which is verified at the end.
    assert done.returncode == 4
    problems = [problem for row in json_lines(done) for problem in row["problems"]]
    assert [problem["kind"] for problem in problems] == ["missing_object"]


def test_a_dry_run_writes_nothing(settings: dict[str, str], tmp_path: Path) -> None:
    done = run_program(settings, *backfill_arguments(golden("4.3.0") / "logs"), "--dry-run")
    assert done.returncode == 0, done.stderr
    planned = json_lines(done)[0]["planned"]
    assert [(s["base_offset"], s["end_offset"]) for s in planned["orders-0"]] == rolled_ranges(
        golden("4.3.0") / "logs", "orders-0"
    )
    assert not (tmp_path / "state").exists()
    with store_of(settings) as store:
        assert list(store.list("")) == []


@pytest.mark.parametrize("kind", ["ignores conditions", "looks before it leaps"])
def test_a_store_that_lets_two_writers_win_is_refused_unless_there_is_one_writer(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "TURNS", ALL_TURNS)
    server = VersityGateway(tmp_path / "versitygw", nometa=kind == "ignores conditions", options=["--quiet"])
    if kind == "looks before it leaps":
        server.process.command[0] = str(racy_program())
    with server:
        settings = {
            **s3_settings(server),
            "store.url": f"s3://{server.bucket}/refused",
            "run.state_dir": str(tmp_path / "state"),
        }
        done = run_program(settings, *backfill_arguments(golden("4.3.0") / "logs"))
        assert done.returncode == 6
        assert [row["exit_code"] for row in json_lines(done)] == [6]
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        assert "create-only put" in line
        assert "single_writer: true" in line
        with store_of(settings) as store:
            assert [facts.key for facts in store.list("") if not facts.key.startswith("_probe/")] == []
        done = run_program(settings, *backfill_arguments(golden("4.3.0") / "logs"), "--single-writer")
        if kind == "ignores conditions":
            # It also fails every multipart upload, which no promise of the operator makes good.
            assert done.returncode == 6
            assert "multipart upload" in done.stderr
            return
        assert done.returncode == 0, done.stderr
        assert run_program(settings, "verify", "--deep").returncode == 0


@pytest.mark.parametrize(
    ("change", "exit_code", "words"),
    [
        (
            {"store.s3.endpoint_url": "http://127.0.0.1:1", "store.retry.attempts": "2"},
            6,
            "check store.s3.endpoint_url",
        ),
        ({"store.s3.secret_access_key": "wrong"}, 6, "check the credentials"),
        ({"store.url": "s3://no-such-bucket/archive"}, 6, "create the bucket"),
        ({"store.s3.regoin": "us-east-1"}, 2, "did you mean store.s3.region?"),
    ],
)
def test_what_is_wrong_with_the_store_is_one_line_and_an_exit_code(
    change: dict[str, str],
    exit_code: int,
    words: str,
    gateway: VersityGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A store that does not answer is asked again for half a minute: `tests/storage/test_probe_errors.py`.
    monkeypatch.setattr(assembly, "PATIENCE_S", 2.0)
    settings = {**s3_settings(gateway), "store.url": f"s3://{gateway.bucket}/{tmp_path.name}", **change}
    done = run_program(
        {**settings, "run.state_dir": str(tmp_path / "state")}, *backfill_arguments(golden("4.3.0") / "logs")
    )
    assert done.returncode == exit_code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert gateway.secret_key not in done.stderr
