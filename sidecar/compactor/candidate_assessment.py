"""A look at one archived partition: what its commits say, and where it matters the first batches of its dirty segments."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from producer_state.wire import Layout
from sidecar.archive.bundle import log_size_bytes
from sidecar.archive.keys import below
from sidecar.archive.replacement import undone_by_commit
from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitLog
from sidecar.compactor.archive.bundle import first_undecided
from sidecar.compactor.candidate_queue import LedPartition
from sidecar.compactor.policy import Assessment, assess, dirty_segments, needs_first_batches
from sidecar.config import CompactionPolicy
from sidecar.errors import CorruptFile
from sidecar.logformat.headers import (
    BATCH_HEADER,
    CURRENT_MAGIC,
    MAGIC_POSITION,
    MESSAGE_HEADER,
    NO_TIMESTAMP,
    TIMESTAMPED_MESSAGE_HEADER,
)
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore

REMEMBERED_MAX = 65_536
"""First batches of so many segments."""
_HEADERS: dict[int, Layout[Any]] = {0: MESSAGE_HEADER, 1: TIMESTAMPED_MESSAGE_HEADER, CURRENT_MAGIC: BATCH_HEADER}


class Look:
    """Weighs partitions of an archive. Thread-safe; keeps nothing that grows with the archive."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._timestamp_of = lru_cache(REMEMBERED_MAX)(self._first_batch_timestamp_ms)

    def __call__(self, led: LedPartition, policy: CompactionPolicy) -> Assessment:
        """Weigh one partition. Raises CorruptFile, StoreError."""
        state = CommitLog(self._store, led.root, self._clock, known=led.newest_commit).read()
        clean_end_offset, undecided = state.clean_end_offset, first_undecided(self._store, state)
        dirty = dirty_segments(state.segments, clean_end_offset) if needs_first_batches(policy) else ()
        timestamps_ms = {
            segment.base_offset: self._timestamp_of(below(led.root, segment.log_key))
            for segment in dirty
            if log_size_bytes(segment)
        }
        assessment = assess(
            state.segments,
            clean_end_offset,
            policy,
            now_ms=self._clock.now_ms(),
            first_batch_timestamps_ms=timestamps_ms,
            stable_end_offset=2**63 - 1 if undecided is None else undecided,
        )
        return replace(assessment, undone_by_commit=undone_by_commit(state))

    def _first_batch_timestamp_ms(self, key: ObjectKey) -> int:
        """Of an object that never changes; -1 for none. Source: RecordBatch.maxTimestamp."""
        head = self._store.read(key, 0, BATCH_HEADER.size_bytes)
        magic = head[MAGIC_POSITION] if len(head) > MAGIC_POSITION else None
        header = _HEADERS.get(magic) if magic is not None else None
        if header is None or len(head) < header.size_bytes:
            raise CorruptFile(f"expected a batch, found {len(head)} bytes with magic {magic}", file=key, position=0)
        if magic == CURRENT_MAGIC:
            return BATCH_HEADER.read(head).max_timestamp
        return TIMESTAMPED_MESSAGE_HEADER.read(head).timestamp if magic == 1 else NO_TIMESTAMP
