"""Made-up log dirs, and what a scan finds in them."""

from __future__ import annotations

from pathlib import Path

from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import ScanResult
from sidecar.model import PartitionFiles

ALL = TopicFilter()


HEX = "0123456789abcdef" * 2


TOPIC_ID = "ASNFZ4mrze_-3LqYdlQyEA"


KINDS = ("log", "index", "timeindex")


def a_partition(log_dir: Path, name: str, *bases: int, kinds: tuple[str, ...] = KINDS) -> Path:
    """A partition directory with files of some bytes for every base; nothing reads them here."""
    directory = log_dir / name
    directory.mkdir(parents=True)
    for base in bases:
        for kind in kinds:
            (directory / f"{base:020d}.{kind}").write_bytes(b"x" * (base + 1))
    return directory


def names(result: ScanResult) -> list[str]:
    return [str(found.topic_partition) for found in result.partitions]


def only(result: ScanResult) -> PartitionFiles:
    (found,) = result.partitions
    return found
