"""Counts what has been read, for whoever shows progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sidecar.model import TopicPartition
from sidecar.reporting.progress import ProgressCounter, Watcher
from sidecar.snapshots.jobs import PartitionJob
from sidecar.snapshots.tasks import SegmentTask


class Counting:
    """A `Digested` that tells a watcher how far the jobs are. A window replay may find that it needs more than was planned."""

    def __init__(self, jobs: Sequence[PartitionJob], watcher: Watcher | None) -> None:
        self._counter = ProgressCounter(
            watcher, sum(len(job.tasks) for job in jobs), sum(job.size_bytes for job in jobs)
        )
        self._read_bytes: Counter[TopicPartition] = Counter()

    def __call__(self, job: PartitionJob, task: SegmentTask) -> None:
        """One segment is read."""
        self._read_bytes[job.topic_partition] += task.size_bytes
        self._counter.done(task.size_bytes, f"{job.topic_partition} {task.base_offset}")

    def read_bytes(self, job: PartitionJob) -> int:
        """Bytes of the partition's segments that have been read."""
        return self._read_bytes[job.topic_partition]
