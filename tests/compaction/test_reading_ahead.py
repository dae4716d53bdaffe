"""Headers read by several threads are those that are read one after the other, errors included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sidecar.discovery.partition_directory import named_partition
from sidecar.errors import CorruptFile
from sidecar.rewriting import survey as surveying
from sidecar.rewriting.job import LogFile
from sidecar.rewriting.survey import survey
from sidecar.snapshots.jobs import Forgetting
from tests.compaction.directories import tree
from tests.compaction.test_many_partitions import broken
from tests.golden import VERSIONS, partitions


def one_after_the_other(logs: Sequence[LogFile]) -> Iterator[surveying._Scan]:
    for log in logs:
        scanner = surveying._scanner(log)
        yield log, scanner, scanner


@pytest.mark.parametrize("version", VERSIONS)
def test_a_survey_is_the_same(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = surveying._read_ahead
    for path in partitions(version):
        found = []
        for read in (ahead, one_after_the_other):
            monkeypatch.setattr(surveying, "_read_ahead", read)
            staging = tmp_path / path.name / read.__name__
            staging.mkdir(parents=True)
            surveyed = survey(named_partition(path), Forgetting(0, None), staging, split_bytes=2000)
            pieces = [[(piece.begin, piece.end, piece.batch_count) for piece in held] for held in surveyed.pieces]
            files = surveyed.segments
            snapshots = {name: content for name, (_, content) in tree(staging).items()}
            found.append((files, pieces, surveyed.completed, surveyed.last_stable_offset, surveyed.remarks, snapshots))
        assert found[0] == found[1]


def test_the_first_damage_is_reported(tmp_path: Path) -> None:
    source = next(path for path in partitions("4.3.0") if path.name == "compacted-0")
    path = broken(source, tmp_path / "logs" / source.name)
    logs = sorted(path.glob("*.log"))
    assert len(logs) > 3
    for log in logs[1:-1]:
        log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(CorruptFile, match="the last batch is cut") as caught:
        survey(named_partition(path), Forgetting(0, None), tmp_path)
    assert caught.value.file == str(logs[1])
