"""The benchmark of compaction runs, small; and the input it makes is what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.compaction_input import Shape, write_partition
from sidecar.logformat.batches import scan_file
from sidecar.logformat.bodies.records import read_records
from tests.tiny_benchmarks import result_of


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.apart
def test_it_runs(tmp_path: Path) -> None:
    found = result_of("compaction", tmp_path, "--only", "zstd", "many")
    assert [len(times) for times in found["seconds"].values()] == [3, 2]
    assert found["ratios"]["1,000 partitions, ms each"] > 0


@pytest.mark.parametrize("codec", [0, 4])
def test_its_input_is_read_as_any_log(tmp_path: Path, codec: int) -> None:
    shape = Shape(2500, 100, codec=codec, segment_bytes=150_000)
    partition = write_partition(tmp_path / "measured-0", shape)
    logs = sorted(partition.glob("*.log"))
    assert len(logs) >= 2
    assert logs[-1].stat().st_size == 0
    found = []
    for log in logs[:-1]:
        data = log.read_bytes()
        for columns in scan_file(log, base_offset=int(log.stem)):
            for position, size_bytes in zip(columns.position.tolist(), columns.size_bytes.tolist(), strict=True):
                found += read_records(memoryview(data)[position : position + size_bytes])
    assert [record.offset for record in found] == list(range(2500))
    assert int(logs[-1].stem) == 2500
    assert len({record.key for record in found}) == 100
    assert {len(record.value or b"") for record in found} == {shape.value_bytes}
    assert len(np.unique([record.value for record in found])) == 2500
