"""Counts what has been read, for whoever shows progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sidecar.pipeline.backfill import Progress
from sidecar.pipeline.snapshots.folding import PartitionJob
from sidecar.pipeline.snapshots.tasks import SegmentTask

Watcher = Callable[[Progress], None]


class Counting:
    """A `Digested` that tells a watcher how far the jobs are."""

    def __init__(self, jobs: Sequence[PartitionJob], watcher: Watcher | None) -> None:
        self._watcher = watcher
        self._segments_total = sum(len(job.tasks) for job in jobs)
        self._bytes_total = sum(job.size_bytes for job in jobs)
        self._segments, self._bytes = 0, 0
        self._tell("")

    def __call__(self, job: PartitionJob, task: SegmentTask) -> None:
        """One segment is read."""
        self._segments += 1
        self._bytes += task.size_bytes
        self._tell(f"{job.topic_partition} {task.base_offset}")

    def _tell(self, latest: str) -> None:
        if self._watcher is not None:
            self._watcher(Progress(self._segments, self._segments_total, self._bytes, self._bytes_total, latest))
