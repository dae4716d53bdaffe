"""What README.md says is inside the archives is inside, by the word of Kafka's own tool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import VERSIONS, dump_text, dumped_paths, golden, golden_copy, manifest, partitions, wall_clock_ms
from tests.golden.generate import DUMP_OPTIONS

ALL_CODECS = {"none", "gzip", "snappy", "lz4", "zstd"}


def batches(version: str, partition: str, log_dir: str = "logs") -> Iterator[str]:
    """The lines of the dump that describe a batch."""
    for path in dumped_paths(version):
        if path.startswith(f"{log_dir}/{partition}/") and path.endswith(".log"):
            yield from (line for line in dump_text(version, path).splitlines() if re.match(r"baseOffset|offset", line))


def values(version: str, partition: str, name: str, log_dir: str = "logs") -> set[str]:
    return {
        found.group(1).lower()
        for line in batches(version, partition, log_dir)
        if (found := re.search(rf"{name}: (\S+)", line))
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_every_file_of_every_topic_was_dumped(version: str) -> None:
    root = golden(version)
    expected = {
        str(path.relative_to(root))
        for log_dir in ("logs", "compacted")
        for partition in partitions(version, log_dir)
        for path in partition.iterdir()
        if path.suffix in DUMP_OPTIONS and path.stat().st_size
    }
    assert expected == set(dumped_paths(version))


@pytest.mark.parametrize("version", VERSIONS)
def test_files_are_small_and_keep_their_times(version: str) -> None:
    files = [path for path in golden(version).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 8_000_000 // len(VERSIONS)
    segments = [path for path in files if path.suffix == ".log"]
    assert all(0 < wall_clock_ms(version) - path.stat().st_mtime_ns // 1_000_000 < 600_000 for path in segments)


@pytest.mark.parametrize("version", VERSIONS)
def test_codecs_epochs_and_segments(version: str) -> None:
    for topic in ("codecs-java-0", "codecs-librdkafka-0", "compacted-0"):
        assert values(version, topic, "compresscodec") == ALL_CODECS
    for topic in ("orders-0", "orders-1", "transactions-0", "compacted-0"):
        assert values(version, topic, "partitionLeaderEpoch") == {"0", "2", "4"}
    assert len(values(version, "transactions-0", "producerEpoch")) > 2
    for partition in partitions(version):
        if partition.name not in ("single-0", "empty-0"):
            assert len(list(partition.glob("*.log"))) > 1, partition


@pytest.mark.parametrize("version", VERSIONS)
def test_open_aborted_and_empty_transactions(version: str) -> None:
    state = manifest(version)["topics"]["transactions"]["partitions"][0]
    bases = sorted(int(path.stem) for path in (golden(version) / "logs/transactions-0").glob("*.log"))
    assert sum(state["last_stable_offset"] < base < state["high_watermark"] for base in bases) >= 2
    aborted = [
        (int(first), int(last))
        for path in dumped_paths(version)
        if path.startswith("logs/transactions-0/") and path.endswith(".txnindex")
        for first, last in re.findall(r"firstOffset: (\d+) lastOffset: (\d+)", dump_text(version, path))
    ]
    assert any(first < base <= last for first, last in aborted for base in bases)
    kinds: dict[str, set[str]] = {}
    for line in batches(version, "transactions-0"):
        producer_id, control = re.findall(r"producerId: (-?\d+).*isControl: (\w+)", line)[0]
        kinds.setdefault(producer_id, set()).add(control)
    assert {"true"} in kinds.values()


def test_only_the_old_broker_lacks_snapshots_and_writes_old_formats() -> None:
    for version in VERSIONS:
        lacking = [
            segment
            for partition in partitions(version)
            # The first segment has none: nothing was before it (in `trimmed` it was removed with the log start).
            for segment in sorted(partition.glob("*.log"))[1:]
            if not segment.with_suffix(".snapshot").exists()
        ]
        assert bool(lacking) == (version == "2.7.2")
    assert values("2.7.2", "legacy-v0-0", "magic") == {"0"}
    assert values("2.7.2", "legacy-v1-0", "magic") == {"1"}
    assert values("2.7.2", "legacy-mixed-0", "magic") == {"0", "1", "2"}
    for topic in ("legacy-v0-0", "legacy-v1-0"):
        assert values("2.7.2", topic, "compresscodec") == ALL_CODECS - {"zstd"}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cleaner_removed_records_below_the_last_stable_offset_only(version: str) -> None:
    stable = manifest(version)["topics"]["compacted"]["partitions"][1]["last_stable_offset"]
    for partition in ("compacted-0", "compacted-1"):
        assert len(list(batches(version, partition, "compacted"))) < len(list(batches(version, partition)))

    def above(log_dir: str) -> list[str]:
        lines = batches(version, "compacted-1", log_dir)
        return [line.partition(" position:")[0] for line in lines if int(line.split()[1]) >= stable]

    assert above("compacted") == above("logs")


def test_a_copy_may_be_changed(tmp_path: Path) -> None:
    copy = golden_copy("4.3.0", tmp_path / "copy")
    name = "logs/single-0/00000000000000000000.log"
    assert (copy / name).stat().st_mtime_ns == (golden("4.3.0") / name).stat().st_mtime_ns
    (copy / name).unlink()
    assert (golden("4.3.0") / name).exists()
