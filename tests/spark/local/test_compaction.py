"""Compaction on Spark: the same files as in this process, byte for byte; errors of the data come back as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.commits.lineages import find_all_lineages
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.errors import CorruptFile, RowsLost
from sidecar.host.process_store import store_of
from sidecar.spark.embedded import EmbeddedSpark
from sidecar.spark.engine import SparkEngine
from tests.compaction.directories import check_against_reference, compacted, tree
from tests.compaction.lossy_engine import LOSSES, LossyStages
from tests.golden import golden, partitions, wall_clock_ms
from tests.spark.archives import NOW_MS, archived
from tests.spark.fresh_process import python

pytestmark = [pytest.mark.real, pytest.mark.slow]

SPLIT_BYTES = 4096
"""Several splits per segment: the work of a large partition in small."""


def paths_of(version: str) -> list[Path]:
    """Those with something to compact: keys, aborted transactions, legacy formats."""
    topics = ("compacted", "transactions", "orders", "legacy-mixed")
    return [path for path in partitions(version) if path.name.rpartition("-")[0] in topics]


@pytest.mark.parametrize("version", ["2.7.2", pytest.param("3.9.1", marks=pytest.mark.apart), "4.3.0"])
def test_spark_writes_the_files_that_this_process_writes(spark: EmbeddedSpark, version: str, tmp_path: Path) -> None:
    for number, path in enumerate(paths_of(version)):
        strategy = list(Strategy)[number % 3]
        rules = CompactionRules(wall_clock_ms(version), strategy=strategy, header="h1", exact_keys=number == 1)
        on_spark = compacted(path, tmp_path / "spark" / path.name, rules, SparkEngine(spark), split_bytes=SPLIT_BYTES)
        compacted(path, tmp_path / "local" / path.name, rules)
        assert tree(tmp_path / "spark" / path.name) == tree(tmp_path / "local" / path.name)
        check_against_reference(path, on_spark, rules)
        assert any(len(pieces) > 1 for pieces in on_spark.survey.pieces)


def test_a_damaged_batch_is_reported_with_its_place_and_nothing_is_left(spark: EmbeddedSpark, tmp_path: Path) -> None:
    path = shutil.copytree(paths_of("4.3.0")[0], tmp_path / "logs" / "compacted-0")
    log = path / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptFile, match="checksum") as caught:
        compacted(path, tmp_path / "out" / path.name, CompactionRules(0), SparkEngine(spark))
    assert (caught.value.file, caught.value.position) == (str(log), 0)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    "loss", ["keys are lost", "what a scan found is lost", "winners are lost", "winners come twice"]
)
def test_rows_that_spark_loses_or_doubles_between_the_stages_are_noticed(
    spark: EmbeddedSpark, loss: str, tmp_path: Path
) -> None:
    stages = LossyStages(SparkEngine(spark), *LOSSES[loss])
    with pytest.raises(RowsLost, match="Nothing was replaced"):
        compacted(golden("4.3.0") / "logs" / "compacted-0", tmp_path / "out", CompactionRules(0), stages)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.apart
def test_a_jvm_that_ends_leaves_no_stacks_on_stderr(tmp_path: Path) -> None:
    """Its workers may still be about to answer: that is the end of a good run, not news."""
    source = golden("4.3.0") / "logs" / "compacted-0"
    for turn in range(2):
        out = tmp_path / f"{turn}" / source.name
        done = python("-m", "sidecar", "compact", str(source), "--engine", "spark", "--out", str(out))
        assert "Traceback" not in done.stderr


@pytest.mark.leaves_damage("checksum_mismatch", "corrupt_content")
def test_a_damaged_source_in_an_archive_is_named_and_replaces_nothing(spark: EmbeddedSpark, tmp_path: Path) -> None:
    """One bit of a leader epoch, which no batch's own checksum covers."""
    settings = archived({}, str(tmp_path / "archive"), tmp_path / "state")
    before = sorted((tmp_path / "archive").rglob("*"))
    damaged = next(path for path in before if path.suffix == ".log" and "compacted" in str(path))
    content = bytearray(damaged.read_bytes())
    content[15] ^= 4
    damaged.chmod(0o644)
    damaged.write_bytes(content)
    store = store_of(settings.store)
    requests = [CompactionRequest(found.root, CompactionRules(NOW_MS)) for found in find_all_lineages(store)]
    done = ArchiveCompactor(settings.store, SparkEngine(spark), SystemClock(), split_bytes=SPLIT_BYTES).compact(
        requests
    )
    (error,) = [one.error for one in done if one.error]
    assert isinstance(error, CorruptFile)
    assert (tmp_path / "archive" / error.file, "but the commit says" in str(error)) == (damaged, True)
    assert any(one.commit_number is not None for one in done)
    folder = damaged.parent.parent
    assert [path for path in sorted((tmp_path / "archive").rglob("*")) if path.is_relative_to(folder)] == [
        path for path in before if path.is_relative_to(folder)
    ]
