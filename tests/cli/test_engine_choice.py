"""Which engine `auto` takes, and that the documentation shows its bound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sidecar.cli.engines import MEMORY_BYTES_MAX, Work, WorkKind, choose_engine
from sidecar.model import EngineName

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "run-on-spark.md").read_text(encoding="utf-8")


def compaction(size_bytes: int, *, on_this_machine: bool = False) -> Work:
    return Work(WorkKind.COMPACTION, size_bytes, on_this_machine)


READING = Work(WorkKind.READING, 1 << 50, on_this_machine=False)


@pytest.mark.parametrize("name", [EngineName.LOCAL, EngineName.SPARK])
@pytest.mark.parametrize("has_cluster", [False, True])
def test_what_was_asked_for_by_name_is_honoured(name: EngineName, has_cluster: bool) -> None:
    for work in (compaction(0), compaction(1 << 50), READING, compaction(1, on_this_machine=True)):
        assert choose_engine(name, work, has_cluster=has_cluster) is name


def test_a_cluster_does_what_it_can_read() -> None:
    for work in (compaction(0), READING):
        assert choose_engine(EngineName.AUTO, work, has_cluster=True) is EngineName.SPARK
    here = compaction(1 << 50, on_this_machine=True)
    assert choose_engine(EngineName.AUTO, here, has_cluster=True) is EngineName.LOCAL


def test_reading_in_this_container_needs_no_jvm() -> None:
    assert choose_engine(EngineName.AUTO, READING, has_cluster=False) is EngineName.LOCAL


@pytest.mark.parametrize("on_this_machine", [False, True])
def test_compaction_in_this_container_goes_to_spark_above_the_bound(on_this_machine: bool) -> None:
    for size_bytes, expected in ((MEMORY_BYTES_MAX, EngineName.LOCAL), (MEMORY_BYTES_MAX + 1, EngineName.SPARK)):
        work = compaction(size_bytes, on_this_machine=on_this_machine)
        assert choose_engine(EngineName.AUTO, work, has_cluster=False) is expected
    large = compaction(MEMORY_BYTES_MAX)
    assert choose_engine(EngineName.AUTO, large, has_cluster=False, memory_bytes_max=1) is EngineName.SPARK


def test_the_page_has_the_bound_of_the_decision() -> None:
    found = re.search(r"for up\s+to ([\d,]+) bytes", PAGE)
    assert found is not None
    assert int(found[1].replace(",", "")) == MEMORY_BYTES_MAX
