"""The room that is left for work files, as metrics."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sidecar import daemon
from sidecar.metrics import Metrics
from sidecar.runner.run_loop import RunLoop
from tests.daemon.looping import settings_for


def free_ratio(metrics: Metrics, directory: str) -> float | None:
    return metrics.registry.get_sample_value("tiered_sidecar_work_dir_free_ratio", {"directory": directory})


def test_the_free_part_is_that_of_df(tmp_path: Path) -> None:
    metrics = Metrics()
    metrics.watch_work_dir("state", tmp_path)
    usage = shutil.disk_usage(tmp_path)
    assert free_ratio(metrics, "state") == pytest.approx(usage.free / (usage.used + usage.free), abs=0.05)


def test_a_directory_that_is_not_there_yet_has_the_room_of_where_it_will_be(tmp_path: Path) -> None:
    metrics = Metrics()
    metrics.watch_work_dir("staging", tmp_path / "later" / "still")
    metrics.watch_work_dir("state", tmp_path)
    assert free_ratio(metrics, "staging") == pytest.approx(free_ratio(metrics, "state"), abs=0.05)


def test_nothing_is_shown_before_it_is_watched() -> None:
    assert free_ratio(Metrics(), "state") is None


def test_a_home_directory_in_a_setting_is_the_one_that_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: dict[str, Path] = {}
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(Metrics, "watch_work_dir", lambda _metrics, name, path: watched.update({name: path}))
    monkeypatch.setattr(RunLoop, "run", lambda _loop: None)
    settings = settings_for(tmp_path, state_dir="~/state")
    compaction = settings.compaction.model_copy(update={"staging_dir": Path("~/staging")})
    assert daemon.run(settings.model_copy(update={"compaction": compaction})) == 0
    assert watched == {"state": tmp_path / "state", "staging": tmp_path / "staging"}
