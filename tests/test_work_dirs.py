"""The room that is left for work files, as metrics."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sidecar.metrics import Metrics


def free_ratio(metrics: Metrics, directory: str) -> float | None:
    return metrics.registry.get_sample_value("tiered_sidecar_work_dir_free_ratio", {"directory": directory})


def test_the_free_part_is_that_of_df(tmp_path: Path) -> None:
    metrics = Metrics()
    metrics.work_dirs.watch("state", tmp_path)
    usage = shutil.disk_usage(tmp_path)
    assert free_ratio(metrics, "state") == pytest.approx(usage.free / (usage.used + usage.free), abs=0.05)


def test_a_directory_that_is_not_there_yet_has_the_room_of_where_it_will_be(tmp_path: Path) -> None:
    metrics = Metrics()
    metrics.work_dirs.watch("staging", tmp_path / "later" / "still")
    metrics.work_dirs.watch("state", tmp_path)
    assert free_ratio(metrics, "staging") == pytest.approx(free_ratio(metrics, "state"), abs=0.05)


def test_nothing_is_shown_before_it_is_watched() -> None:
    assert free_ratio(Metrics(), "state") is None
