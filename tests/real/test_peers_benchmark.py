"""The benchmark of peers runs, so that it cannot rot. What it measures here means nothing, but for the traffic."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measuring import Run
from benchmarks.peers.__main__ import measure
from benchmarks.peers.bench import OURS, Bench, Road, Traffic
from benchmarks.peers.page import Row, write
from tests.servers.process import ServerError
from tests.servers.versitygw import VersityGateway
from tests.tiny_benchmarks import result_of

BOTO3 = ["boto3, defaults", "boto3, tuned"]
INPUT_MB = 18.9


@pytest.mark.real
@pytest.mark.apart
def test_the_peers_benchmark_runs(tmp_path: Path) -> None:
    roads = result_of("peers", tmp_path)
    assert {name: list(rows) for name, rows in roads.items()} == {
        "archive": [f"{OURS} backfill", *BOTO3],
        "restore": [f"{OURS} restore", *BOTO3],
        "compact": [f"{OURS} compact DIR", f"{OURS} compact --archive"],
    }
    for rows in roads.values():
        for row in rows.values():
            assert row["error"] is None
            assert all(run["wall_s"] > 0 and run["cpu_s"] > 0 and 20 < run["peak_mb"] <= 300 for run in row["runs"])
    assert all(row["traffic"]["sent_mb"] > INPUT_MB for row in roads["archive"].values())
    assert all(row["traffic"]["received_mb"] > INPUT_MB for row in roads["restore"].values())
    assert roads["compact"][f"{OURS} compact DIR"]["traffic"] is None


def test_a_table_and_a_chart_replace_those_of_their_road(tmp_path: Path) -> None:
    road = Road("archive", "Archive", 10_000_000, {}, frozenset())
    places = "".join(
        f"<!-- peers {name}: written by `python -m benchmarks.peers --write`. -->\nold\n<!-- peers {name} ends. -->\n"
        for name in ("archive", "restore")
    )
    (tmp_path / "README.md").write_text(f"before\n{places}after\n")
    runs = [Run(wall_s, 1.0, 0.5, 100.0, 2.0) for wall_s in (4.0, 2.0, 1.0)]
    rows = [
        Row(f"{OURS} backfill", runs, Traffic(7, 10.5, 0.25), None),
        Row("other", [], None, "cannot be built:\nwhy"),
    ]
    write(road, rows, tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert page.startswith("before\n")
    assert page.endswith("-->\nold\n<!-- peers restore ends. -->\nafter\n")
    assert f"| **{OURS} backfill** | 2.0 | 1.0 to 4.0 | 5 | 1.0 | 0.5 | 100 | 7 | 10 | 0 |" in page
    assert "* other did not run:\n\n  ```\n  cannot be built:\n  why\n  ```" in page
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
    rows = measure(bench, road, 2)
    assert ran == [*names, OURS, "other", "other", OURS]
    assert [(row.name, len(row.runs), row.error) for row in rows] == [
        (OURS, 2, None),
        ("not built", 0, "no compiler"),
        ("other", 2, None),
    ]
