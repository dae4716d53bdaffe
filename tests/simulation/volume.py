"""What a sidecar keeps on its volume, in memory: SQLite takes longer than all else in a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sidecar.errors import StagingFull
from sidecar.host.archive_cache import ArchiveCache, GoneOffsets, Remembered, newest_segments
from sidecar.host.journal import Attempt, Journal
from sidecar.host.log_dir_fingerprint import LogDirFingerprint
from sidecar.model import TopicPartition


class MemoryJournal(Journal):
    """As `Journal`. It outlives its process where the sidecar's volume does."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._attempts: dict[str, Attempt] = {}
        self._sources: dict[str, LogDirFingerprint] = {}
        self._differing: dict[str, LogDirFingerprint] = {}
        self.fill(range(0), lambda: None)

    def fill(self, writes: range, noted: Callable[[], None]) -> None:
        """Of the writes from now on these find no room. Args: noted: called for each of them."""
        self._full, self._noted, self._writes = writes, noted, 0

    def _write(self) -> None:
        self._writes += 1
        if self._writes - 1 in self._full:
            self._noted()
            raise StagingFull("the journal cannot be written, on purpose")

    def begin(self, attempt: Attempt) -> None:
        """See `Journal`."""
        if attempt.segment_id in self._attempts:
            raise ValueError(f"{attempt.segment_id} was begun before")
        self._write()
        self._attempts[attempt.segment_id] = attempt

    def log_uploaded(self, segment_id: str, log_crc32c: int) -> None:
        """See `Journal`."""
        self._write()
        if segment_id in self._attempts:
            self._attempts[segment_id] = replace(self._attempts[segment_id], log_crc32c=log_crc32c)

    def discarding(self, segment_id: str) -> None:
        """See `Journal`."""
        self._write()
        if segment_id in self._attempts:
            self._attempts[segment_id] = replace(self._attempts[segment_id], log_crc32c=None)

    def committing(self, segment_id: str, commit_number: int) -> None:
        """See `Journal`."""
        self._write()
        if segment_id in self._attempts:
            self._attempts[segment_id] = replace(self._attempts[segment_id], commit_number=commit_number)

    def end(self, segment_id: str) -> None:
        """See `Journal`."""
        self._write()
        self._attempts.pop(segment_id, None)

    def attempts(self, root: str) -> tuple[Attempt, ...]:
        """See `Journal`."""
        if not self._attempts:
            return ()
        found = [attempt for attempt in self._attempts.values() if attempt.root == root]
        return tuple(sorted(found, key=lambda attempt: (attempt.begun_ms, attempt.base_offset)))

    def roots(self) -> frozenset[str]:
        """See `Journal`."""
        return frozenset(attempt.root for attempt in self._attempts.values())

    def archived_from(self, root: str, mark: LogDirFingerprint) -> None:
        """See `Journal`."""
        self._write()
        self._sources[root] = mark

    def source_of(self, root: str) -> LogDirFingerprint | None:
        """See `Journal`."""
        return self._sources.get(root)

    def differs(self, root: str, mark: LogDirFingerprint) -> None:
        """See `Journal`."""
        self._write()
        self._differing[root] = mark

    def differing(self, root: str) -> LogDirFingerprint | None:
        """See `Journal`."""
        return self._differing.get(root)

    def agrees(self, root: str) -> None:
        """See `Journal`."""
        self._differing.pop(root, None)

    def count(self) -> int:
        """See `Journal`."""
        return len(self._attempts)

    def close(self) -> None:
        """See `Journal`."""


class MemoryCache(ArchiveCache):
    """As `ArchiveCache`."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._archives: dict[TopicPartition, Remembered] = {}
        self._unreported: dict[TopicPartition, GoneOffsets] = {}

    @property
    def path(self) -> None:
        """See `ArchiveCache`."""
        return

    def recall(self, topic_partition: TopicPartition) -> Remembered | None:
        """See `ArchiveCache`."""
        return self._archives.get(topic_partition)

    def remember(self, remembered: Remembered) -> None:
        """See `ArchiveCache`."""
        state = remembered.state
        if state.next_number:
            self._archives[state.lineage.topic_partition] = replace(remembered, state=newest_segments(state))

    def note_gone(self, topic_partition: TopicPartition, gone: GoneOffsets) -> None:
        """See `ArchiveCache`."""
        self._unreported.pop(topic_partition, None)
        if gone[1]:
            self._unreported[topic_partition] = gone

    def gone(self, topic_partition: TopicPartition) -> GoneOffsets | None:
        """See `ArchiveCache`."""
        return self._unreported.get(topic_partition)

    def close(self) -> None:
        """See `ArchiveCache`."""
