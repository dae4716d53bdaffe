"""A common limit on the bytes per second of all uploads of a store."""

from __future__ import annotations

import os
import threading

from sidecar.clock import Clock


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


class PacedBody:
    """A request body that takes its bytes from a limit block by block, so that a part is no burst."""

    def __init__(self, body: bytes | bytearray, limit: BandwidthLimit) -> None:
        self._body = memoryview(body)
        self._position = 0
        self._limit = limit

    def __len__(self) -> int:
        return len(self._body)

    def read(self, size: int | None = -1) -> bytes:
        """Read, after waiting."""
        end = len(self._body) if size is None or size < 0 else self._position + size
        block = bytes(self._body[self._position : end])
        self._position += len(block)
        self._limit.take(len(block))
        return block

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Botocore and urllib3 rewind with it and look for the length."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: len(self._body)}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Bytes read so far."""
        return self._position
