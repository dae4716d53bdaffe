"""Kafka's own code on compacted directories: recovery builds the same indexes and cuts nothing, the dump tool reads all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from tests.compaction.directories import compacted
from tests.golden import VERSIONS, partitions, wall_clock_ms
from tests.oracle import Oracle

pytestmark = pytest.mark.real


@pytest.mark.parametrize("version", VERSIONS)
def test_recovery_builds_the_same_indexes(oracle: Oracle, version: str, tmp_path: Path) -> None:
    batches = 0
    for number, path in enumerate(partitions(version)):
        rules = CompactionRules(
            wall_clock_ms(version), strategy=list(Strategy)[number % 3], header="h1", segment_bytes=32768
        )
        compaction = compacted(path, tmp_path / "ours" / path.name, rules)
        assert compaction.out is not None
        copy = shutil.copytree(compaction.out, tmp_path / "theirs" / path.name)
        recovered = oracle.recover(copy)
        assert [segment.truncated_bytes for segment in recovered] == [0] * len(recovered)
        for output in (*compaction.outputs, *compaction.left_alone):
            name = f"{output.base_offset:020d}"
            for suffix in ("log", "index", "timeindex"):
                file = f"{name}.{suffix}"
                assert (compaction.out / file).read_bytes() == (copy / file).read_bytes(), (path.name, file)
            if output.size_bytes:
                batches += len(oracle.dump_batches(compaction.out / f"{name}.log"))
    assert batches > 50
