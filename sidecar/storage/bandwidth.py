"""Common limits on the bytes per second of everything that a process uploads, and of everything that it reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Self

from sidecar.clock import Clock
from sidecar.io_share import io_shares
from sidecar.logformat.window import ReadAt
from sidecar.storage.request_body import RewindableBody
from sidecar.store_settings import StoreSettings

SMALL_BYTES: Final = 64 * 1024
"""Reads up to this size count and do not wait: a commit must not queue behind a compaction."""


class BandwidthLimit:
    """Hands out time: who takes n bytes waits until all bytes taken before would have been moved. Thread-safe.

    The limit is that of all processes that share it (`io_share`): this one moves its share of it.
    """

    def __init__(self, bytes_per_s: int | None, clock: Clock) -> None:
        """Args: bytes_per_s: None for no limit, until `change` sets one."""
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at_s = clock.monotonic_s()
        self.note: Callable[[int, float], None] = lambda _bytes, _waited_s: None
        """Told of all that is taken: bytes, and the seconds that they wait for."""

    @property
    def is_limited(self) -> bool:
        """Whether anybody has to wait at all."""
        return self._bytes_per_s is not None

    @property
    def bytes_per_s(self) -> int | None:
        """As configured, of all processes together."""
        return self._bytes_per_s

    def change(self, bytes_per_s: int | None) -> None:
        """Another limit for what is taken from now on."""
        with self._lock:
            self._bytes_per_s = bytes_per_s

    def take(self, size_bytes: int, *, waits: bool = True) -> None:
        """Wait for the turn of `size_bytes` bytes. Time that nobody used is not saved up."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            turn_s = now_s
            if self._bytes_per_s is not None:
                turn_s = max(now_s, self._free_at_s)
                self._free_at_s = turn_s + size_bytes * io_shares() / self._bytes_per_s
        wait_s = turn_s - now_s if waits else 0.0
        self.note(size_bytes, wait_s)
        if wait_s > 0:
            # Outside of the lock: others may queue up behind while this one waits.
            self._clock.sleep_s(wait_s)

    def take_read(self, content: bytes) -> bytes:
        """The same bytes, once they had their turn."""
        self.take(len(content), waits=len(content) > SMALL_BYTES)
        return content

    def take_stream(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The same chunks, each once it had its turn."""
        for chunk in chunks:
            yield self.take_read(chunk)

    def paced(self, read_at: ReadAt) -> ReadAt:
        """A reader of a file that takes what it has read."""

        def paced(position: int, buffer: memoryview) -> int:
            count = read_at(position, buffer)
            self.take(count)
            return count

        return paced


@dataclass(frozen=True, slots=True)
class IoBudget:
    """What one process may move: one limit for its uploads, one for its reads, of stores and of the broker's disks together."""

    uploads: BandwidthLimit
    reads: BandwidthLimit

    @classmethod
    def of(cls, settings: StoreSettings, clock: Clock) -> Self:
        """As the settings say."""
        return cls(
            BandwidthLimit(settings.bandwidth_bytes_per_s, clock), BandwidthLimit(settings.read_bytes_per_s, clock)
        )

    @classmethod
    def unlimited(cls, clock: Clock) -> Self:
        """Nobody waits."""
        return cls(BandwidthLimit(None, clock), BandwidthLimit(None, clock))

    def adopt(self, settings: StoreSettings) -> None:
        """These rates count from now on."""
        self.uploads.change(settings.bandwidth_bytes_per_s)
        self.reads.change(settings.read_bytes_per_s)


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
