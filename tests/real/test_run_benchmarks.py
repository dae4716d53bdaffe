"""The benchmarks of `run` run, so that they cannot rot. What they measure here means nothing, but for the processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.growth import FULL, Line, Point
from benchmarks.latency import outcomes
from benchmarks.measuring import Run
from tests.tiny_benchmarks import result_of

pytestmark = [pytest.mark.real, pytest.mark.apart]


def test_idle(tmp_path: Path) -> None:
    rows = result_of("idle", tmp_path)
    assert [row["name"] for row in rows] == ["empty state directory", "after a restart", "from files, broker stopped"]
    assert all(row["children"] == [] for row in rows)
    assert all(30 < row["resident_mb"] <= 150 for row in rows)
    assert all(0 < row["walk_cpu_s"] < row["start_cpu_s"] for row in rows)


def test_growth(tmp_path: Path) -> None:
    lines = result_of("growth", tmp_path)["lines"]
    assert [(line["axis"]["name"], line["command"]) for line in lines] == [
        ("bytes", "backfill"),
        ("bytes", "verify --deep"),
        ("partitions", "backfill"),
        ("partitions", "backfill, nothing to do"),
        ("partitions", "status"),
        ("run", "run"),
        ("keys", "compact"),
    ]
    assert all(point["run"]["cpu_s"] > 0 and point["run"]["peak_mb"] > 30 for line in lines for point in line["points"])


def test_growth_limits_the_memory_of_run_for_each_partition() -> None:
    axis = next(axis for axis in FULL if axis.name == "run")

    def line(*peaks_mb: float) -> Line:
        points = [
            Point(size, Run(1.0, 1.0 + size / 100, 0.0, mb, 1.0)) for size, mb in zip(axis.sizes, peaks_mb, strict=True)
        ]
        return Line(axis, "run", points)

    assert line(95.0, 140.0, 340.0).keeps_promises
    assert not line(95.0, 140.0, 381.0).keeps_promises
    assert line(95.0, 140.0, 340.0).model == (
        "run, x partitions of 10 segments: 1.0 + 0.0100 x CPU s (within 0 %), 90.0 + 0.0500 x MB (within 0 %)"
    )


def test_latency(tmp_path: Path) -> None:
    result = result_of("latency", tmp_path)
    assert result["roll_to_commit_s"]["count"] >= 4
    assert result["boto3_put_s"]["median"] > 0
    assert 0 < result["roll_to_commit_s"]["median"] <= result["roll_to_commit_s"]["max"]
    assert 30 < result["pss_mb"] <= result["peak_mb"] <= 180


@pytest.mark.parametrize(
    ("p99_s", "peak_mb", "kept"),
    [(0.39, 180.0, [True, True]), (0.41, 180.0, [False, True]), (0.39, 181.0, [True, False])],
)
def test_each_promise_of_the_latency_benchmark_can_fail(p99_s: float, peak_mb: float, kept: list[bool]) -> None:
    rows = {"roll_to_commit_s": {"median": 0.2, "p99": p99_s}, "boto3_put_s": {"median": 0.1, "p99": 0.1}}
    assert [is_kept for _, is_kept in outcomes({**rows, "pss_mb": 150.0, "peak_mb": peak_mb})] == kept


@pytest.mark.parametrize("lower", ["none", "both"])
def test_producer(tmp_path: Path, lower: str) -> None:
    result = result_of("producer", tmp_path, "--lower", lower)
    assert result["lower"] == lower
    assert len(result["rounds"]) == 2
    for kind in ("without", "with"):
        assert result[kind]["failed"] == 0
        assert 0 < result[kind]["p50_ms"] <= result[kind]["p99_ms"]
