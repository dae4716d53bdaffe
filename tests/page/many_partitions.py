"""A broker's log dir with many partitions that grow segment by segment, made from one partition's valid files."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

from benchmarks.segments import CLUSTER_ID, TOPIC, write_log_dir

SEGMENT_BYTES = 128 * 1024
_FILES_OF_A_SEGMENT = ("log", "index", "timeindex")


class ManyPartitions:
    """`log_dir` as a broker keeps it. What `stable` says of a partition is what its checkpoints say: all, if nothing."""

    def __init__(self, directory: Path, segments: int) -> None:
        """Args: segments: how many can roll in each partition."""
        self.log_dir = directory / "logs"
        self.log_dir.mkdir(parents=True)
        self._template = write_log_dir(directory / "template", segments, SEGMENT_BYTES) / f"{TOPIC}-0"
        self.bases = sorted(int(path.name[:20]) for path in self._template.glob("*.log"))
        self._rolled: dict[str, int] = {}
        self.stable: dict[str, int] = {}
        (self.log_dir / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")

    def names(self) -> list[str]:
        """All partitions, ascending."""
        return sorted(self._rolled)

    def grow(self, name: str, segments: int = 1) -> int:
        """Roll so many segments more; returns the base offset of the active one.

        It is empty: records in it would be at risk, as those of any idle partition near its retention are.
        """
        directory, rolled = self.log_dir / name, self._rolled.get(name, 0)
        if not directory.exists():
            directory.mkdir()
            shutil.copyfile(self._template / "leader-epoch-checkpoint", directory / "leader-epoch-checkpoint")
        for base_offset, next_offset in pairwise(self.bases[rolled : rolled + segments + 1]):
            for suffix in _FILES_OF_A_SEGMENT:
                shutil.copyfile(
                    self._template / f"{base_offset:020d}.{suffix}", directory / f"{base_offset:020d}.{suffix}"
                )
                (directory / f"{next_offset:020d}.{suffix}").touch()
        self._rolled[name] = rolled + segments
        self.checkpoint()
        return self.bases[rolled + segments]

    def retain(self, name: str, segments: int) -> None:
        """Delete all rolled segments but the latest, as retention does."""
        below = self.bases[self._rolled[name] - segments]
        for path in (self.log_dir / name).glob("*.*"):
            if path.name[:20].isdigit() and int(path.name[:20]) < below:
                path.unlink()

    def checkpoint(self) -> None:
        """Write what a broker writes every minute: how far each partition is stable."""
        lines = []
        for name, rolled in sorted(self._rolled.items()):
            topic, _, partition = name.rpartition("-")
            lines.append(f"{topic} {partition} {self.stable.get(name, self.bases[rolled])}\n")
        for file in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            fresh = self.log_dir / f"{file}.tmp"
            fresh.write_text(f"0\n{len(lines)}\n{''.join(lines)}")
            fresh.replace(self.log_dir / file)
