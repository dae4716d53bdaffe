"""Partitions of a log dir that cannot be listed just now: nothing says that they are gone."""

from __future__ import annotations

from collections.abc import Container

from sidecar.discovery.scan import ScanResult
from sidecar.errors import PartitionError
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.pipeline.partition_outcome import PartitionOutcome


class LastListed:
    """Every partition as the last listing of its log dir that worked has found it."""

    def __init__(self) -> None:
        self._files: dict[TopicPartition, PartitionFiles] = {}

    def left_alone(
        self, found: ScanResult, present: dict[TopicPartition, PartitionFiles]
    ) -> dict[TopicPartition, PartitionOutcome]:
        """Partitions that were last seen in a log dir which this look could not list, and why they wait.

        Args:
            found: what the look found. present: the files of all partitions in it that could be listed.
        """
        failed = {problem.path: problem.error for problem in found.problems if problem.topic_partition is None}
        unreadable = {problem.topic_partition for problem in found.problems}
        left = {
            topic_partition: _stopped(files, failed[files.log_dir])
            for topic_partition, files in (self._files.items() if failed else ())
            if files.log_dir in failed and not _is_in(topic_partition, present, unreadable)
        }
        kept = {topic_partition: outcome.files for topic_partition, outcome in left.items()}
        # Its log dir may be the next that fails.
        kept |= {partition: files for partition, files in self._files.items() if partition in unreadable}
        self._files = kept | present
        return left


def _is_in(topic_partition: TopicPartition, *places: Container[TopicPartition | None]) -> bool:
    return any(topic_partition in place for place in places)


def _stopped(files: PartitionFiles, error: PartitionError) -> PartitionOutcome:
    return PartitionOutcome(files, error=error)
