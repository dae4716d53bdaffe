"""Which engine compacts what in `run`; none of this starts a JVM."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.cli.run_engines import LOCAL_BYTES_MAX, RunEngines
from sidecar.config import Settings
from sidecar.pipeline.compaction.engines import CompactionEngines


def engines(master: str, engine: str) -> CompactionEngines:
    sections: dict[str, Any] = {
        "store": {"url": "/archive"},
        "spark": {"master": master},
        "compaction": {"engine": engine},
    }
    return RunEngines(Settings.model_validate(sections))


@pytest.mark.parametrize(
    ("master", "engine", "size_bytes", "local_files", "expected"),
    [
        ("local[*]", "auto", LOCAL_BYTES_MAX, False, "LocalStages"),
        ("local[*]", "auto", LOCAL_BYTES_MAX + 1, False, "SparkStages"),
        ("local[*]", "auto", LOCAL_BYTES_MAX + 1, True, "SparkStages"),
        ("local[*]", "local", LOCAL_BYTES_MAX + 1, False, "LocalStages"),
        ("local[2]", "spark", 1, True, "SparkStages"),
        ("spark://host:7077", "auto", 1, False, "SparkStages"),
        ("spark://host:7077", "auto", LOCAL_BYTES_MAX + 1, True, "LocalStages"),
        ("spark://host:7077", "spark", 1, True, "LocalStages"),
        ("spark://host:7077", "spark", 1, False, "SparkStages"),
        ("spark://host:7077", "local", 1, False, "LocalStages"),
    ],
)
def test_the_engine_suits_the_work(master: str, engine: str, size_bytes: int, local_files: bool, expected: str) -> None:
    found = engines(master, engine)
    assert type(found.for_bytes(size_bytes, local_files=local_files)).__name__ == expected
    found.stop()
