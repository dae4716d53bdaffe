"""Where logs begin, as checks see it."""

from __future__ import annotations

from sidecar.model import PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.retention.log_starts import LogStarts
from sidecar.segment.local_disk import LocalDisk
from sidecar.topic_policy import TopicPolicy
from tests.runner.events import ignored


def seen_at(
    starts: LogStarts,
    files: PartitionFiles,
    facts: PartitionFacts,
    policy: TopicPolicy = TopicPolicy(),  # noqa: B008 - frozen
) -> LogStarts:
    """After a check of the real files."""
    term = facts.term(files)
    return starts.in_term(term, term.since(starts.term)).seen(files, facts, policy, LocalDisk(), ignored)
