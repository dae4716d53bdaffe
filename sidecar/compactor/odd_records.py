"""Records without a key, and records with a malformed version, that compactions of `run` meet: log, metrics and `/status`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Final

import structlog

from sidecar.model import TopicPartition

_log = structlog.get_logger(__name__)

OF_ARCHIVE: Final = "gc deletes the replaced segments, which still hold these records, after the grace period"
OF_COPIES: Final = (
    "the archive never had these records, so no undo brings them back; the broker has them until it deletes them"
)
MALFORMED: Final = "A record with a malformed version loses to each record of its key that has a valid one"
REMEDY: Final = (
    "correct the producer; compaction.on_unkeyed: refuse and compaction.strict: true refuse to compact such partitions"
)


@dataclass(slots=True)
class _Counts:
    unkeyed: int = 0
    malformed_versions: int = 0


@dataclass(slots=True)
class OddRecords:
    """Counts by topic since this process began, and logs each commit with such records. Thread-safe.

    `count`: called after each, with the records without a key, which are dropped, and those with a malformed version.
    """

    count: Callable[[int, int], None] = lambda _unkeyed, _malformed_versions: None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _by_topic: dict[str, _Counts] = field(default_factory=dict)

    def note(self, partition: TopicPartition, unkeyed: int, malformed_versions: int, effect: str) -> None:
        """A commit has replaced records of a partition, or archived copies of them. `effect`: what that means for dropped ones."""
        if not (unkeyed or malformed_versions):
            return
        with self._lock:
            topic = self._by_topic.setdefault(partition.topic, _Counts())
            topic.unkeyed += unkeyed
            topic.malformed_versions += malformed_versions
        self.count(unkeyed, malformed_versions)
        _log.warning(
            "compaction_met_odd_records",
            partition=str(partition),
            unkeyed_dropped=unkeyed,
            malformed_versions=malformed_versions,
            effect=f"records without a key are dropped: {effect}. {MALFORMED}",
            remedy=REMEDY,
        )

    def status(self) -> dict[str, dict[str, int]]:
        """By topic, for `/status`."""
        with self._lock:
            return {topic: asdict(found) for topic, found in sorted(self._by_topic.items())}
