"""Counts what has been read, for whoever shows progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from sidecar.model import TopicPartition
from sidecar.pipeline.backfill import Progress
from sidecar.pipeline.snapshots.jobs import PartitionJob
from sidecar.pipeline.snapshots.tasks import SegmentTask

Watcher = Callable[[Progress], None]


class Counting:
    """A `Digested` that tells a watcher how far the jobs are."""

    def __init__(self, jobs: Sequence[PartitionJob], watcher: Watcher | None) -> None:
        self._watcher = watcher
        self._segments_total = sum(len(job.tasks) for job in jobs)
        self._bytes_total = sum(job.size_bytes for job in jobs)
        self._segments, self._bytes = 0, 0
        self._read_bytes: Counter[TopicPartition] = Counter()
        self._tell("")

    def __call__(self, job: PartitionJob, task: SegmentTask) -> None:
        """One segment is read. A window replay may find that it needs more than was planned."""
        self._segments += 1
        self._bytes += task.size_bytes
        self._segments_total = max(self._segments_total, self._segments)
        self._bytes_total = max(self._bytes_total, self._bytes)
        self._read_bytes[job.topic_partition] += task.size_bytes
        self._tell(f"{job.topic_partition} {task.base_offset}")

    def read_bytes(self, job: PartitionJob) -> int:
        """Bytes of the partition's segments that have been read."""
        return self._read_bytes[job.topic_partition]

    def _tell(self, latest: str) -> None:
        if self._watcher is not None:
            self._watcher(Progress(self._segments, self._segments_total, self._bytes, self._bytes_total, latest))
