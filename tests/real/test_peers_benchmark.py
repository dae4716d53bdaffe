"""The benchmark of peers runs, so that it cannot rot. What it measures here means nothing, but for the traffic."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import memory
from benchmarks.measuring import Run, Store
from benchmarks.peers.__main__ import _without, measure
from benchmarks.peers.bench import OURS, Bench, Promise, Road, Traffic
from benchmarks.peers.page import Row, outcome, write
from tests.servers.process import ServerError
from tests.servers.versitygw import VersityGateway
from tests.tiny_benchmarks import result_of

BOTO3 = ["boto3, defaults", "boto3, tuned"]
DIRECTORY = f"{OURS} restore, archive in a directory"
INPUT_MB = 18.9


@pytest.mark.real
@pytest.mark.apart
def test_the_peers_benchmark_runs(tmp_path: Path) -> None:
    roads = result_of("peers", tmp_path)
    assert {name: list(rows) for name, rows in roads.items()} == {
        "archive": [f"{OURS} backfill", *BOTO3, "boto3, tuned, one checksum and the probe's puts"],
        "restore": [f"{OURS} restore", *BOTO3, "boto3, get_object", DIRECTORY, "cp from a directory"],
        "verify": [f"{OURS} verify --deep", "boto3 get_object, 1 at once", "a bare proof, 2 at once"],
        "compact": [f"{OURS} compact DIR", f"{OURS} compact --archive", "boto3 download and upload"],
    }
    for rows in roads.values():
        for name, row in rows.items():
            assert row["error"] is None
            assert all(run["wall_s"] > 0 and run["cpu_s"] > 0 and run["peak_mb"] <= 300 for run in row["runs"])
            assert all(run["peak_mb"] > 20 for run in row["runs"] if not name.startswith("cp "))
    for name in (f"{OURS} restore", DIRECTORY):
        assert all(run["wall_s"] > run["transfer_s"] > 0 for run in roads["restore"][name]["runs"])
    assert all(run["peak_mb"] <= 200 for run in roads["verify"][f"{OURS} verify --deep"]["runs"])
    assert all(row["traffic"]["sent_mb"] > INPUT_MB for row in roads["archive"].values())
    read = [roads["restore"][name] for name in (f"{OURS} restore", *BOTO3)] + list(roads["verify"].values())
    assert all(row["traffic"]["received_mb"] > INPUT_MB for row in read)
    assert roads["compact"][f"{OURS} compact DIR"]["traffic"] is None
    assert roads["compact"]["boto3 download and upload"]["traffic"]["requests"] < 50


def test_a_copier_pays_for_no_import_of_the_product() -> None:
    program = (
        "import sys, benchmarks.peers.boto3_copy; print(*({'numpy', 'sidecar', 'producer_state'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == []


def test_a_table_and_a_chart_replace_those_of_their_road(tmp_path: Path) -> None:
    promises = [Promise(f"{OURS} backfill", ["other", "slower", "faster"], ratio=0.9, peak_mb=100)]
    road = Road("archive", "Archive", 10_000_000, {}, frozenset(), promises)
    places = "".join(
        f"<!-- peers {name}: written by `python -m benchmarks.peers --write`. -->\nold\n<!-- peers {name} ends. -->\n"
        for name in ("archive", "restore")
    )
    (tmp_path / "README.md").write_text(f"before\n{places}after\n")
    runs = [Run(wall_s, 1.0, 0.5, 100.0, 2.0, wall_s / 2) for wall_s in (4.0, 2.0, 1.0)]
    rows = [
        Row(f"{OURS} backfill", runs, Traffic(7, 10.5, 0.25), None),
        Row("other", [], None, "cannot be built:\nwhy"),
        *(
            Row(name, [Run(wall_s, 1.0, 0.5, 90.0, 2.0)], None, None)
            for name, wall_s in (("slower", 3.0), ("faster", 1.9))
        ),
    ]
    write(road, rows, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert page.startswith("before\n")
    assert page.endswith("-->\nold\n<!-- peers restore ends. -->\nafter\n")
    assert f"| **{OURS} backfill** | 2.0 | 1.0 to 4.0 | 5 | 10 | 1.0 | 0.5 | 100 | 7 | 10 | 0 |" in page
    assert "* other did not run:\n\n  ```\n  cannot be built:\n  why\n  ```" in page
    assert f"* {OURS} backfill: 0.95 times as fast as faster (promised 0.9), 100 MB (promised 100)" in page
    assert outcome(promises[0], road, rows)[0]
    assert (
        "0.63 for a bare program, of which ours is 1.50, "
        in outcome(replace(promises[0], floor=["slower"]), road, rows)[1]
    )
    for broken in ({"peak_mb": 99}, {"ratio": 0.96}, {"seconds": 1.9}, {"received": 0.02}):
        is_kept, text = outcome(replace(promises[0], **broken), road, rows)
        assert not is_kept
        assert "**not kept: " in text
    assert outcome(replace(promises[0], seconds=2.0, received=0.03), road, rows)[0]
    assert "![Archive](peers-archive.svg)" in page
    assert f">{OURS} backfill</text>" in (tmp_path / "peers-archive.svg").read_text()


def test_contestants_alternate_and_one_that_fails_is_listed_with_its_error(tmp_path: Path) -> None:
    ran: list[str] = []

    def runs(name: str) -> Run:
        ran.append(name)
        if name == "not built":
            raise ServerError("no compiler")
        return Run(1.0, 1.0, 0.0, 100.0, 0.0)

    names = (OURS, "not built", "other")
    road = Road("archive", "Archive", 1, {name: lambda _, name=name: runs(name) for name in names}, frozenset())
    bench = Bench(tmp_path, tiny=False)
    bench.gateway = VersityGateway(tmp_path)
    rows = measure(bench, road, 6)
    assert ran[:3] == [*names]
    rounds = [tuple(ran[at : at + 2]) for at in range(3, len(ran), 2)]
    assert set(rounds) == {(OURS, "other"), ("other", OURS)}
    assert [(row.name, len(row.runs), row.error) for row in rows] == [
        (OURS, 6, None),
        ("not built", 0, "no compiler"),
        ("other", 6, None),
    ]


def test_of_a_contestant_that_is_left_out_nothing_is_promised() -> None:
    promises = [Promise(name, [], ratio=1.0, peak_mb=1.0) for name in ("left out", OURS)]
    contestants: dict[str, Callable[[Store], Run]] = {
        name: lambda _: Run(1.0, 1.0, 0.0, 100.0, 0.0) for name in ("left out", OURS)
    }
    found = _without(Road("archive", "Archive", 1, contestants, frozenset(), promises), ["left out"])
    assert (list(found.contestants), found.promises) == ([OURS], promises[1:])


def test_requests_of_a_preparation_are_not_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, tiny=True)
    access_log = tmp_path / "access.log"
    line = (
        "key archive [27/November/2026:04:33:13 +0000] 127.0.0.1 key R5E5 s3_GetObject a /archive/a 200 - 320 0 1 1\n"
    )
    access_log.write_text(line * 3)
    before = bench._requests()
    with bench.uncounted():
        access_log.write_text(line * 38)
    access_log.write_text(line * 59)
    assert (before, bench._requests() - before) == (3, 21)


@pytest.mark.timeout(60)
def test_the_wait_for_a_process_ends_with_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "EVERY_S", 3600.0)  # a wait of this length is a failure
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.close()
        found = iter((False,))
        assert memory.peak_pss_mb(child.pid, lambda: next(found, True)) >= 0
