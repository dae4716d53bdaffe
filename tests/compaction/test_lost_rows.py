"""An engine that loses or doubles rows between the stages: no compaction is taken for one, and Nothing was replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.engine_ports import Row
from sidecar.errors import RowsLost
from sidecar.rewriting import local_engine
from sidecar.rewriting.run import required, rewritten, scanned
from sidecar.rewriting.work_files import LocalParts
from tests.compaction.engine import LargeJobStages, job_of
from tests.compaction.lossy_engine import LOSSES, LossyStages, is_counts
from tests.compaction.partitions import partition_in
from tests.golden import golden
from tests.runner.archives import NOW_MS, archived, compact_one, only_state, records_of, use

RULES = CompactionRules(NOW_MS)
OF_A_LARGE_JOB = {**LOSSES, "counts of winners are lost": ("second", is_counts, 0)}
OF_A_SMALL_JOB = {**LOSSES, "counts of winners are lost": ("first", is_counts, 0)}
del OF_A_SMALL_JOB["keys come twice"]
"""Its winners are decided in the first stage already, and the second takes them once only."""


def outcome(stages: LossyStages | LargeJobStages, place: Path) -> None:
    job = job_of(partition_in(golden("4.3.0") / "logs" / "compacted-0").segments, RULES, split_bytes=4096)
    with scanned([job], stages) as run:
        required(run.results[0])
        required(rewritten(run, LocalParts(place))[0])


@pytest.mark.parametrize("apart", [False, True])
def test_without_a_fault_there_is_no_error(apart: bool, tmp_path: Path) -> None:
    outcome(LargeJobStages(None, apart=apart), tmp_path)


@pytest.mark.parametrize("loss", sorted(OF_A_LARGE_JOB))
def test_a_large_job_ends_with_an_error(loss: str, tmp_path: Path) -> None:
    with pytest.raises(RowsLost, match=r"between the stages\. Nothing was replaced"):
        outcome(LossyStages(LargeJobStages(None, apart=True), *OF_A_LARGE_JOB[loss]), tmp_path)


@pytest.mark.parametrize("loss", sorted(OF_A_SMALL_JOB))
def test_a_small_job_ends_with_an_error(loss: str, tmp_path: Path) -> None:
    with pytest.raises(RowsLost, match=r"between the stages\. Nothing was replaced"):
        outcome(LossyStages(LargeJobStages(None, apart=False), *OF_A_SMALL_JOB[loss]), tmp_path)


def test_an_archive_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    before, objects = only_state(store), dict(store.objects)
    rows_of = local_engine._rows_of
    lost: list[Row] = []

    def without_the_first(*arguments: Any) -> Iterator[Row]:
        rows: Iterable[Row] = rows_of(*arguments)
        for row in rows:
            if lost:
                yield row
            else:
                lost.append(row)

    monkeypatch.setattr(local_engine, "_rows_of", without_the_first)
    found = compact_one(store, before, RULES, tmp_path)
    assert (len(lost), type(found.error), found.commit_number) == (1, RowsLost, None)
    assert (records_of(store, only_state(store)), store.objects) == (records_of(store, before), objects)
