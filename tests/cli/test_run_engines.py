"""Which engine does what in `run` and `backfill`; none of this starts a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sidecar.cli.engines import LOCAL_BYTES_MAX, RunEngines
from sidecar.config import Settings
from sidecar.engine_ports import Row, Stages
from sidecar.rewriting import local_engine
from sidecar.rewriting.work_files import WorkFile, nameless_file
from sidecar.segment.reading import read_by_engine, read_segment


def engines(master: str, engine: str) -> RunEngines:
    sections: dict[str, Any] = {"store": {"url": "/archive"}, "spark": {"master": master, "engine": engine}}
    return RunEngines(Settings.model_validate(sections))


@pytest.mark.parametrize(
    ("master", "engine", "size_bytes", "local_files", "expected"),
    [
        ("local[*]", "auto", 1024, False, "LocalEngine"),
        ("local[*]", "auto", LOCAL_BYTES_MAX + 1, False, "SparkEngine"),
        ("local[*]", "auto", LOCAL_BYTES_MAX + 1, True, "SparkEngine"),
        ("local[*]", "local", LOCAL_BYTES_MAX + 1, False, "LocalEngine"),
        ("local[2]", "spark", 1, True, "SparkEngine"),
        ("spark://host:7077", "auto", 1, False, "SparkEngine"),
        ("spark://host:7077", "auto", LOCAL_BYTES_MAX + 1, True, "LocalEngine"),
        ("spark://host:7077", "spark", 1, True, "LocalEngine"),
        ("spark://host:7077", "spark", 1, False, "SparkEngine"),
        ("spark://host:7077", "local", 1, False, "LocalEngine"),
    ],
)
def test_the_engine_suits_the_work(master: str, engine: str, size_bytes: int, local_files: bool, expected: str) -> None:
    with engines(master, engine) as found:
        assert type(found.for_bytes(size_bytes, local_files=local_files)).__name__ == expected


@pytest.mark.parametrize(
    ("master", "engine", "on_spark"),
    [
        ("local[2]", "spark", True),
        ("local[2]", "auto", False),
        ("local[2]", "local", False),
        ("spark://host:7077", "auto", False),
        ("spark://host:7077", "spark", False),
    ],
)
def test_segments_are_read_on_spark_where_it_is_asked_for_and_sees_them(
    master: str, engine: str, on_spark: bool
) -> None:
    with engines(master, engine) as found:
        reader = found.reader()
        assert getattr(reader, "func", reader) is (read_by_engine if on_spark else read_segment)


@pytest.mark.parametrize(
    ("master", "engine", "is_reported"),
    [
        ("spark://host:7077", "spark", True),
        ("spark://host:7077", "auto", False),
        ("spark://host:7077", "local", False),
        ("local[*]", "spark", False),
    ],
)
def test_files_that_a_cluster_does_not_see_are_reported(master: str, engine: str, is_reported: bool) -> None:
    with engines(master, engine) as found, capture_logs() as logs:
        found.report()
    assert [log["event"] for log in logs] == ["engine_is_local"] * is_reported


def _more_than_memory(_task: int) -> Iterator[Row]:
    yield 0, bytes(local_engine._IN_MEMORY_BYTES + 1)


def _nothing(_bucket: int, _values: Sequence[Any]) -> Iterator[Row]:
    return iter(())


@pytest.mark.parametrize("master", ["local[*]", "spark://host:7077"])
def test_what_waits_between_the_stages_waits_where_work_files_have_room(
    master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod /tmp has 1 GiB: more in it evicts the pod, the broker included."""
    places: list[Path] = []

    def recorded(place: Path) -> AbstractContextManager[WorkFile]:
        places.append(place)
        return nameless_file(place)

    monkeypatch.setattr(local_engine, "nameless_file", recorded)
    sections = {
        "store": {"url": "/archive"},
        "spark": {"master": master, "engine": "local"},
        "compaction": {"staging_dir": tmp_path / "staging"},
    }
    with (
        RunEngines(Settings.model_validate(sections)) as found,
        found.for_bytes(LOCAL_BYTES_MAX + 1, local_files=True).staged(
            Stages(_more_than_memory, _nothing, 1, 1, 1), [1]
        ),
    ):
        assert places == [tmp_path / "staging"]
