"""A common limit on the bytes per second of all uploads of a store."""

from __future__ import annotations

import threading

from sidecar.clock import Clock
from sidecar.storage.request_body import RewindableBody


class BandwidthLimit:
    """Hands out sending time: who takes n bytes waits until all bytes taken before would have been sent."""

    def __init__(self, bytes_per_s: int | None, clock: Clock) -> None:
        """Args: bytes_per_s: None for no limit, until `change` sets one."""
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at_s = clock.monotonic_s()

    @property
    def is_limited(self) -> bool:
        """Whether anybody has to wait at all."""
        return self._bytes_per_s is not None

    def change(self, bytes_per_s: int | None) -> None:
        """Another limit for what is taken from now on."""
        with self._lock:
            self._bytes_per_s = bytes_per_s

    def take(self, size_bytes: int) -> None:
        """Wait for the turn of `size_bytes` bytes. Time that nobody used is not saved up."""
        with self._lock:
            if self._bytes_per_s is None:
                return
            now_s = self._clock.monotonic_s()
            turn_s = max(now_s, self._free_at_s)
            self._free_at_s = turn_s + size_bytes / self._bytes_per_s
        if turn_s > now_s:
            # Outside of the lock: others may queue up behind while this one waits.
            self._clock.sleep_s(turn_s - now_s)


class PacedBody(RewindableBody):
    """A request body that takes its bytes from a limit block by block, so that a part is no burst."""

    def __init__(self, body: bytes | bytearray, limit: BandwidthLimit) -> None:
        super().__init__(body)
        self._limit = limit

    def read(self, size: int | None = -1) -> bytes:
        """Read; what is sent, after waiting."""
        end = len(self._body) if size is None or size < 0 else self._position + size
        block = bytes(self._body[self._position : end])
        self._position += len(block)
        if self._is_sent:
            self._limit.take(len(block))
        return block
