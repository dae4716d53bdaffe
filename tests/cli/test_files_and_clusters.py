"""Files of this machine do not go to a cluster: each command that would have it read them refuses, and starts no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import in_this_process
from tests.cli.test_compaction_rules import partition_directory

CLUSTER = ("--engine", "spark", "--master", "spark://127.0.0.1:1")


@pytest.mark.parametrize(
    "words",
    [
        ("compact", "DIR", "--dry-run"),
        ("compact", "DIR", "--what-if"),
        ("compact", "DIR", "--out", "OUT"),
        ("snapshots", "check", "DIR"),
        ("snapshots", "rebuild", "DIR", "--out", "OUT"),
        ("snapshots", "heal", "DIR"),
        ("snapshots", "heal", "DIR", "--dry-run"),
    ],
    ids=" ".join,
)
def test_a_command_that_reads_directories_refuses_a_cluster(words: tuple[str, ...], tmp_path: Path) -> None:
    directory = partition_directory(tmp_path / "logs")
    before = {path: path.read_bytes() for path in directory.iterdir()}
    places = {"DIR": directory, "OUT": tmp_path / "out" / "hdr-0"}
    refused = in_this_process(*(places.get(word, word) for word in words), *CLUSTER)
    assert refused.code == 2
    assert "spark.master is spark://127.0.0.1:1, whose executors do not see the files of this machine" in refused.err
    assert "give a local master (--master 'local[*]'), or --engine local" in refused.err
    assert {path: path.read_bytes() for path in directory.iterdir()} == before
    assert not (tmp_path / "out").exists()
