"""A broker's log dir with many partitions that grow segment by segment, made from one partition's valid files."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.segments import CLUSTER_ID, TOPIC, write_log_dir

SEGMENT_BYTES = 128 * 1024
_FILES_OF_A_SEGMENT = ("log", "index", "timeindex", "snapshot")


class ManyPartitions:
    """`log_dir` as a broker keeps it. What `stable` says of a partition is what its checkpoints say: all, if nothing."""

    def __init__(self, directory: Path, segments: int) -> None:
        """Args: segments: how many each partition can have, one of them active."""
        self.log_dir = directory / "logs"
        self.log_dir.mkdir(parents=True)
        self._template = write_log_dir(directory / "template", segments, SEGMENT_BYTES) / f"{TOPIC}-0"
        self.bases = sorted(int(path.name[:20]) for path in self._template.glob("*.log"))
        self._shown: dict[str, int] = {}
        self.stable: dict[str, int] = {}
        (self.log_dir / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")

    def names(self) -> list[str]:
        """All partitions, ascending."""
        return sorted(self._shown)

    def grow(self, name: str, segments: int = 1, *, skip: int = 0) -> int:
        """So many segments more begin, the last of them active; returns its base offset.

        Args:
            skip: leave out so many before them, and remove all earlier ones: nobody has them any more.
        """
        directory, shown = self.log_dir / name, self._shown.get(name, 0)
        if not directory.exists():
            directory.mkdir()
            shutil.copyfile(self._template / "leader-epoch-checkpoint", directory / "leader-epoch-checkpoint")
        added = self.bases[shown + skip : shown + skip + segments]
        for base_offset in added:
            for suffix in _FILES_OF_A_SEGMENT:
                source = self._template / f"{base_offset:020d}.{suffix}"
                if source.exists():
                    shutil.copyfile(source, directory / source.name)
        if skip:
            for path in directory.glob("*.*"):
                if path.name[:20].isdigit() and int(path.name[:20]) < added[0]:
                    path.unlink()
        self._shown[name] = shown + skip + len(added)
        self.checkpoint()
        return added[-1]

    def checkpoint(self) -> None:
        """Write what a broker writes every minute: how far each partition is stable."""
        lines = []
        for name, shown in sorted(self._shown.items()):
            topic, _, partition = name.rpartition("-")
            lines.append(f"{topic} {partition} {self.stable.get(name, self.bases[shown - 1])}\n")
        for file in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            fresh = self.log_dir / f"{file}.tmp"
            fresh.write_text(f"0\n{len(lines)}\n{''.join(lines)}")
            fresh.replace(self.log_dir / file)
