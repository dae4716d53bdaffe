"""What the stages hand to one another, by bucket and by split: kept in memory here, in files or a shuffle elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol

from sidecar.compaction.key_table import Blob


class Exchange(Protocol):
    """Where blobs and ordinals wait for the next stage. What was taken is not asked for again."""

    def put_blob(self, bucket: int, blob: Blob) -> None:
        """Keep a blob of keys for its bucket."""

    def take_blobs(self, bucket: int) -> Iterable[Blob]:
        """All blobs of a bucket, in any order."""

    def put_ordinals(self, split: int, ordinals: bytes) -> None:
        """Keep ordinals of surviving records for their split."""

    def take_ordinals(self, split: int) -> Iterable[bytes]:
        """All ordinals of a split, in any order."""


class MemoryExchange:
    """An exchange for partitions whose keys fit memory: 24 to 72 bytes each."""

    def __init__(self) -> None:
        self._blobs: defaultdict[int, list[Blob]] = defaultdict(list)
        self._ordinals: defaultdict[int, list[bytes]] = defaultdict(list)

    def put_blob(self, bucket: int, blob: Blob) -> None:
        """See Exchange."""
        self._blobs[bucket].append(blob)

    def take_blobs(self, bucket: int) -> list[Blob]:
        """See Exchange."""
        return self._blobs.pop(bucket, [])

    def put_ordinals(self, split: int, ordinals: bytes) -> None:
        """See Exchange."""
        self._ordinals[split].append(ordinals)

    def take_ordinals(self, split: int) -> list[bytes]:
        """See Exchange."""
        return self._ordinals.pop(split, [])
