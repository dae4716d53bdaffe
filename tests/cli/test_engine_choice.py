"""Which engine `auto` takes, and that the documentation shows the figures it goes by."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sidecar.cli import engines as engine_choice
from sidecar.cli.engines import MEMORY_BYTES_MAX, Work, WorkKind, choose_engine, local_s, spark_s
from sidecar.model import EngineName

MIB = 1024 * 1024
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "run-on-spark.md").read_text(encoding="utf-8")


def compaction(size_bytes: int, segments: int = 8, *, on_this_machine: bool = False) -> Work:
    return Work(WorkKind.COMPACTION, size_bytes, segments, on_this_machine)


READING = Work(WorkKind.READING, 1 << 50, 100_000, on_this_machine=False)


@pytest.mark.parametrize("name", [EngineName.LOCAL, EngineName.SPARK])
@pytest.mark.parametrize("has_cluster", [False, True])
def test_what_was_asked_for_by_name_is_honoured(name: EngineName, has_cluster: bool) -> None:
    for work in (compaction(0), compaction(1 << 50), READING, compaction(1, on_this_machine=True)):
        assert choose_engine(name, work, cores=2, has_cluster=has_cluster) is name


def test_a_cluster_does_what_it_can_read() -> None:
    for work in (compaction(0), READING):
        assert choose_engine(EngineName.AUTO, work, cores=2, has_cluster=True) is EngineName.SPARK
    here = compaction(1 << 50, on_this_machine=True)
    assert choose_engine(EngineName.AUTO, here, cores=2, has_cluster=True) is EngineName.LOCAL


def test_reading_in_this_container_needs_no_jvm() -> None:
    assert choose_engine(EngineName.AUTO, READING, cores=64, has_cluster=False) is EngineName.LOCAL


def auto(work: Work, cores: int, memory_bytes_max: int = 1 << 60) -> EngineName:
    return choose_engine(EngineName.AUTO, work, cores=cores, has_cluster=False, memory_bytes_max=memory_bytes_max)


@pytest.mark.parametrize("cores", [2, 4, 16])
def test_compaction_goes_to_spark_from_the_break_even_on(cores: int) -> None:
    sizes = [MIB << power for power in range(16)]
    chosen = [auto(compaction(size, segments=64), cores) for size in sizes]
    assert chosen[0] is EngineName.LOCAL
    assert chosen == sorted(chosen)  # once Spark, Spark for all that is larger
    for size, name in zip(sizes, chosen, strict=True):
        work = compaction(size, segments=64)
        assert (name is EngineName.SPARK) == (spark_s(work, cores) < local_s(work))


def test_one_segment_is_work_for_one_core() -> None:
    work = compaction(512 * MIB, segments=1)
    assert spark_s(work, 64) == spark_s(work, 1)


def test_what_one_process_cannot_hold_goes_to_spark_whatever_it_takes() -> None:
    assert auto(compaction(MIB + 1, segments=1), 1, memory_bytes_max=MIB) is EngineName.SPARK
    assert (
        choose_engine(EngineName.AUTO, compaction(MEMORY_BYTES_MAX + 1, 1), cores=1, has_cluster=False)
        is EngineName.SPARK
    )


def test_the_page_has_the_constants_of_the_decision() -> None:
    shown = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d,.]+) \|", PAGE, re.MULTILINE))
    assert shown.keys() == {
        "START_S",
        "LOCAL_COMPACTION_BYTES_PER_S",
        "SPARK_COMPACTION_BYTES_PER_S",
        "MEMORY_BYTES_MAX",
    }
    for name, value in shown.items():
        assert float(value.replace(",", "")) == getattr(engine_choice, name)
