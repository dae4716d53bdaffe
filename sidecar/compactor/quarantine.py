"""Partitions whose compaction failed: left alone for a time that doubles with each failure, with the reason for people."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sidecar.clock import Clock
from sidecar.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Quarantined:
    """`failures` in a row, the last at `failed_at_ms` with `error` (class name) for `reason`; not tried before `until_s`."""

    failures: int
    failed_at_ms: int
    error: str
    reason: str
    until_s: float


class Quarantine:
    """Partitions that compaction leaves alone, and why. A success, or the loss of leadership, ends it."""

    def __init__(self, clock: Clock, *, wait_s: float, wait_max_s: float) -> None:
        """Args: wait_s: after the first failure, on the monotonic clock; wait_max_s: after many."""
        self._clock = clock
        self._wait_s = wait_s
        self._wait_max_s = wait_max_s
        self._held: dict[TopicPartition, Quarantined] = {}

    def __len__(self) -> int:
        return len(self._held)

    def partitions(self) -> frozenset[TopicPartition]:
        """All that are here."""
        return frozenset(self._held)

    def failed(self, partition: TopicPartition, error: Exception) -> Quarantined:
        """One more failure."""
        failures = self._held[partition].failures + 1 if partition in self._held else 1
        # The exponent is bounded before the wait is: 2 to the power of a long outage fits no float.
        wait_s = min(self._wait_s * 2.0 ** min(failures - 1, 64), self._wait_max_s)
        until_s = self._clock.monotonic_s() + wait_s
        found = Quarantined(failures, self._clock.now_ms(), type(error).__name__, str(error), until_s)
        self._held[partition] = found
        return found

    def succeeded(self, partition: TopicPartition) -> None:
        """All is forgiven."""
        self._held.pop(partition, None)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """The others are not ours any more."""
        self._held = {name: held for name, held in self._held.items() if name in partitions}

    def is_resting(self, partition: TopicPartition) -> bool:
        """Whether it is to be left alone now."""
        held = self._held.get(partition)
        return held is not None and self._clock.monotonic_s() < held.until_s

    def of(self, partition: TopicPartition) -> Quarantined | None:
        """Why it is here, None if it is not. It stays while it is tried again."""
        return self._held.get(partition)
