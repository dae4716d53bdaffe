"""Every snapshot that real brokers wrote is what folding digests of their logs gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer_state.compare import Allowance, Conformance, compare_snapshots
from producer_state.digest import DigestBuilder, SegmentDigest, apply
from producer_state.snapshot import read_snapshot
from producer_state.table import ProducerTable
from sidecar.logformat.batches import scan_file
from tests.golden import VERSIONS, manifest, partitions


def digests(directory: Path) -> list[SegmentDigest]:
    """Of all segments, the active one up to its last batch."""
    logs = sorted(directory.glob("*.log"))
    bases = [int(path.stem) for path in logs]
    found = []
    for path, base_offset, end_offset in zip(logs, bases, [*bases[1:], None], strict=True):
        builder, after_last = DigestBuilder(base_offset), base_offset
        for columns in scan_file(path, base_offset=base_offset):
            builder.add(columns.facts())
            after_last = int(columns.last_offset[-1]) + 1
        found.append(builder.finish(after_last if end_offset is None else end_offset))
    return found


@pytest.mark.parametrize("log_dir", ["logs", "compacted"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_broker_written_snapshot_is_ours(version: str, log_dir: str) -> None:
    wall_clock_ms = manifest(version)["wall_clock_ms"]
    compared = with_producers = 0
    for directory in partitions(version, log_dir):
        folded = digests(directory)
        log_start_offset = folded[0].coverage.start_offset
        table, exact = ProducerTable.blank(log_start_offset), True
        for digest in folded:
            table = apply(table, digest)
            exact = exact and digest.exact
            file = directory / f"{table.end_offset:020d}.snapshot"
            if not file.exists():
                continue
            found = compare_snapshots(
                read_snapshot(file.read_bytes()),
                table.entries(),
                Allowance(wall_clock_ms, 86_400_000, exact, log_start_offset),
            )
            compared += 1
            with_producers += len(table) > 0
            if log_start_offset == 0 and log_dir == "logs":
                assert found.conformance is Conformance.EQUAL, f"{file}: {found.describe()}"
            assert found.conformance is not Conformance.WRONG, f"{file}: {found.describe()}"
    assert (compared, with_producers) > (0, 0)
