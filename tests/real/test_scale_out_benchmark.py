"""The benchmark of Spark workers runs, so that it cannot rot. What it measures here means nothing, but that bytes are counted."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cpu_groups import CpuGroup, NoCpuGroups
from benchmarks.scale_out import Job, Line, Point, chart, table
from tests.tiny_benchmarks import result_of


@pytest.mark.real
@pytest.mark.apart
def test_the_scale_out_benchmark_runs(tmp_path: Path) -> None:
    try:
        with CpuGroup("probe", 1.0):
            pass
    except NoCpuGroups as error:
        pytest.skip(str(error))
    lines = result_of("scale_out", tmp_path)["lines"]
    assert [line["command"] for line in lines] == ["verify --deep", "compact --archive", "a bare proof"]
    for line in lines:
        assert [point["workers"] for point in line["points"]] == [1, 2]
        runs = [run for point in line["points"] for pair in point["pairs"] for run in pair]
        assert len(runs) == 4
        for run in runs:
            assert run["process_s"] > run["work_s"] > 0
            assert run["python_cpu_s"] > 0
            assert (run["jvm_cpu_s"] > 0) == (line["command"] != "a bare proof")
            assert (run["driver_bytes"] > 10_000) == (line["command"] != "a bare proof")


def test_efficiency_and_the_drivers_part_come_from_the_difference_of_two_inputs() -> None:
    def point(workers: int, work_s: float, driver_bytes: int) -> Point:
        small = Job(250_000_000, 60.0, 20.0, 8, 5.0, 4.0, 100_000)
        large = Job(1_000_000_000, 90.0, 20.0 + work_s, 8, 6.0, 13.0, driver_bytes)
        disturbed = replace(large, work_s=200.0)
        return Point(workers, [(small, large), (small, disturbed), (small, large)])

    line = Line("verify --deep", [point(1, 30.0, 9_000_000), point(4, 9.0, 9_000_000)])
    assert round(line.efficiency(line.points[1]), 2) == 0.83
    assert line.keeps_promises
    first, last = line.points
    assert line.gain(first) is None
    assert line.gain(last) == pytest.approx((30.0 / 9.0 - 1) / 3)
    assert "| `verify --deep`, 1.0 GB | 4 | 9.0 | 0.83 | 0.78 | 9.0 | 1.0 | 90 | 9.0 | 0.90 |" in table([line])
    assert ">verify --deep</text>" in chart([line])
    assert not Line("slow", [line.points[0], point(4, 9.5, 9_000_000)]).keeps_promises
    assert not Line("through the driver", [point(1, 30.0, 10_100_000)]).keeps_promises
    assert Line("a bare proof", [line.points[0], point(4, 9.5, 0)]).keeps_promises


@pytest.mark.parametrize(
    ("kind", "options", "files"),
    [
        pytest.param(
            "cgroup",
            "rw,cpu,cpuacct",
            {"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "3000", "cpu.shares": "10240"},
            id="version 1",
        ),
        pytest.param("cgroup2", "rw", {"cpu.max": "3000 20000", "cpu.weight": "1000"}, id="version 2"),
    ],
)
def test_a_group_gets_its_part_of_a_core(tmp_path: Path, kind: str, options: str, files: dict[str, str]) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory")
    (tmp_path / "cgroup.subtree_control").write_text("")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"proc /proc proc rw 0 0\nnone {tmp_path} {kind} {options} 0 0\n")
    # The files are not the kernel's: the directory is not empty, and stays.
    with suppress(OSError), CpuGroup("a", 0.15, mounts) as group:
        found = {path.name: path.read_text() for path in group.directory.iterdir()}
        (group.directory / "cgroup.procs").touch()
    assert found == files
    assert (tmp_path / "cgroup.subtree_control").read_text() == ("+cpu" if kind == "cgroup2" else "")


def test_a_machine_without_groups_ends_with_one_sentence(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("proc /proc proc rw 0 0\n")
    with pytest.raises(NoCpuGroups, match="must be writable: no CPU controller is mounted"), CpuGroup("a", 0.5, mounts):
        pass
