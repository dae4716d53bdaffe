"""Common limits on the bytes per second of everything that a process uploads, and of everything that it reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

from sidecar.clock import Clock
from sidecar.io_share import Moving, io_shares
from sidecar.ports import MIB, UploadSource
from sidecar.storage.checksums import crc32c_of
from sidecar.store_settings import StoreSettings

if TYPE_CHECKING:
    from sidecar.logformat.window import ReadAt  # loads numpy, which many commands do without

_CHUNK_BYTES: Final = 4 * MIB
SMALL_BYTES: Final = 64 * 1024
"""Reads up to this size count and do not wait: a commit must not queue behind a compaction."""

COUNTED_S_MAX: Final = 1.0
"""What is counted makes the queue no longer than this."""
_LOOK_AGAIN_S: Final = 0.5
"""Those who wait notice within this time that the limit, or this process's share of it, has changed."""
_WAIT_S_MIN: Final = 0.001
"""Less is not waited for now: it stays in the queue."""


class BandwidthLimit:
    """A queue of bytes: who takes n bytes waits until all bytes taken before would have been moved. Thread-safe.

    The limit is that of all processes that share it (`io_share`): this one moves its share of it.
    """

    def __init__(self, bytes_per_s: int | None, clock: Clock, moving: Moving = Moving.READS) -> None:
        """Args: bytes_per_s: None for no limit, until `change` sets one."""
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._moving = moving
        self._lock = threading.Lock()
        self._taken = self._moved = 0.0
        self._moved_at_s = clock.monotonic_s()
        self.note: Callable[[int, float], None] = lambda _bytes, _waited_s: None
        """Called for all that is taken: bytes, and the seconds of their wait."""

    @property
    def bytes_per_s(self) -> int | None:
        """As configured, of all processes together; None for no limit."""
        return self._bytes_per_s

    def change(self, bytes_per_s: int | None) -> None:
        """Another limit from now on, also for those who wait."""
        with self._lock:
            self._move()
            self._bytes_per_s = bytes_per_s

    def take(self, size_bytes: int, *, waits: bool = True) -> None:
        """Wait until `size_bytes` bytes may pass. Unused time is not saved up."""
        with self._lock:
            self._move()
            turn = self._taken
            self._taken += size_bytes
        self.note(size_bytes, 0.0)
        # Sleeps outside of the lock: others may queue up behind while this one waits.
        while waits and (wait_s := self._wait_s(turn)) >= _WAIT_S_MIN:
            slice_s = min(wait_s, _LOOK_AGAIN_S)
            self._clock.sleep_s(slice_s)
            self.note(0, slice_s)

    def _wait_s(self, turn: float) -> float:
        with self._lock:
            self._move()
            if self._bytes_per_s is None or turn <= self._moved:
                return 0.0
            return (turn - self._moved) / self._rate(self._bytes_per_s)

    def _move(self) -> None:
        """Take off the queue what has been moved since."""
        since_s, self._moved_at_s = self._moved_at_s, self._clock.monotonic_s()
        if self._bytes_per_s is None:
            self._moved = self._taken
        else:
            self._moved = min(self._taken, self._moved + (self._moved_at_s - since_s) * self._rate(self._bytes_per_s))

    def _rate(self, bytes_per_s: int) -> float:
        return bytes_per_s / io_shares(self._moving)

    def count(self, size_bytes: int) -> None:
        """Take without waiting: others wait for it. For what many others wait for, such as plans.

        At most so much that the queue is no longer than `COUNTED_S_MAX`: else gigabytes would stop all other reads.
        """
        with self._lock:
            self._move()
            if self._bytes_per_s is not None:
                room = COUNTED_S_MAX * self._rate(self._bytes_per_s) - (self._taken - self._moved)
                self._taken += min(size_bytes, max(0.0, room))
        self.note(size_bytes, 0.0)

    def take_read(self, content: bytes) -> bytes:
        """The same bytes, once they had their turn."""
        self.take(len(content), waits=len(content) > SMALL_BYTES)
        return content

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
        return cls(
            BandwidthLimit(settings.bandwidth_bytes_per_s, clock, Moving.UPLOADS),
            BandwidthLimit(settings.read_bytes_per_s, clock, Moving.READS),
        )

    @classmethod
    def unlimited(cls, clock: Clock) -> Self:
        return cls(BandwidthLimit(None, clock, Moving.UPLOADS), BandwidthLimit(None, clock, Moving.READS))

    def adopt(self, settings: StoreSettings) -> None:
        self.uploads.change(settings.bandwidth_bytes_per_s)
        self.reads.change(settings.read_bytes_per_s)


class PacedChunks:
    """The bytes of a source in order, each chunk after its wait. `crc32c`: of what was given out so far."""

    def __init__(self, source: UploadSource, limit: BandwidthLimit) -> None:
        self._source = source
        self._limit = limit
        self.crc32c = 0

    def __iter__(self) -> Iterator[bytes]:
        size_bytes = self._source.size_bytes
        for position in range(0, size_bytes, _CHUNK_BYTES):
            chunk = bytes(self._source.read_at(position, min(_CHUNK_BYTES, size_bytes - position)))
            self._limit.take(len(chunk))
            self.crc32c = crc32c_of(chunk, self.crc32c)
            yield chunk


class HasBudget(Protocol):
    @property
    def budget(self) -> IoBudget: ...
