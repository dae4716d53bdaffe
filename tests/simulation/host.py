"""The machine that a broker and its sidecar share: log dirs, and how full they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.discovery.scan import ScanProblem, ScanResult
from sidecar.errors import PartitionError
from tests.simulation.cluster import Partition
from tests.simulation.replica import Replica


@dataclass(slots=True)
class Host:
    """Of the broker of this number. `partitions`: all of the world. `free_share`: of its disks.

    `away`: log dirs that are gone. `failing`: those of them whose open files fail, too.
    """

    number: int
    partitions: list[Partition]
    free_share: float = 1.0
    away: set[Path] = field(default_factory=set)
    failing: set[Path] = field(default_factory=set)

    def replicas(self) -> Iterator[Replica]:
        """Of all partitions, as they are now."""
        return (partition.replicas[self.number] for partition in self.partitions)

    def replica_in(self, directory: Path) -> Replica | None:
        """The one in this directory; None where nothing is there now."""
        for partition in self.partitions:
            replica = partition.replicas[self.number]
            # The same object, nearly always: comparing paths takes its time.
            if replica.directory is directory or replica.directory == directory:
                return None if self.away and replica.place.log_dir in self.away else replica
        return None

    def is_away(self, log_dir: Path) -> bool:
        """Whether a log dir is gone."""
        return bool(self.away) and log_dir in self.away

    def scan(self, doubted: Collection[Path]) -> ScanResult:
        """What lies in the log dirs, as far as directories show that it has changed. `doubted`: see `Scan`."""
        for replica in self.replicas() if doubted else ():
            if replica.directory in doubted:
                replica.changed()
        files = sorted((replica.files() for replica in self.replicas()), key=lambda found: found.topic_partition)
        error = PartitionError("cannot be read: its partitions are skipped")
        problems = tuple(ScanProblem(None, log_dir, error) for log_dir in sorted(self.away))
        return ScanResult(tuple([found for found in files if not self.is_away(found.log_dir)]), problems)
