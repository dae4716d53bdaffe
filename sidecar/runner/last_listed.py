"""What the last listing of each log directory that worked has found."""

from __future__ import annotations

from sidecar.discovery.scan import ScanResult
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.outcome import PartitionOutcome


class LastListed:
    """Every partition as the last listing of its log dir that worked has found it: a failed one does not say that they are gone."""

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
            topic_partition: PartitionOutcome(files, error=failed[files.log_dir])
            for topic_partition, files in (self._files.items() if failed else ())
            if files.log_dir in failed and topic_partition not in present and topic_partition not in unreadable
        }
        kept = {topic_partition: outcome.files for topic_partition, outcome in left.items()}
        # Its log dir may be the next that fails.
        kept |= {partition: files for partition, files in self._files.items() if partition in unreadable}
        self._files = kept | present
        return left
