"""A JVM or a worker that is killed: reported in words of the settings, nothing left behind, and the next use works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.fresh_process import python

pytestmark = [pytest.mark.real, pytest.mark.slow]


def seen(scenario: str, directory: Path) -> list[str]:
    """What a scenario printed."""
    return python("-m", "tests.spark.lifecycles", scenario, str(directory)).stdout.splitlines()


def test_what_is_killed_is_reported_and_replaced_and_nothing_is_left(tmp_path: Path) -> None:
    facts = iter(seen("one_after_the_other", tmp_path))
    assert next(facts) == "works True"
    # While it was idle: another one, with the only directory.
    assert next(facts) == "gone True"
    assert next(facts) == "works True True 1"
    limited, killed = next(facts), next(facts)
    assert "raise spark.worker_memory_bytes" in limited
    assert "MemoryError" in limited
    assert "ended from outside, most likely for lack of memory" in killed
    assert next(facts) == "works True"
    # In the middle: its workers end with it, and its files do not wait for the next use.
    in_the_middle = next(facts)
    assert "the JVM was killed from outside" in in_the_middle
    assert "spark.driver_memory_bytes" in in_the_middle
    assert next(facts) == "gone True True 0"
    assert next(facts) == "works True"
    # Between the stages of a compaction, which leaves nothing.
    assert next(facts).startswith("the Spark job failed")
    assert next(facts) == "['gate', 'local']"
    assert next(facts) == "left 0 0"
