"""Turns at the disks: few readers at once on each, and none while the machine waits for its disks anyway."""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sidecar.clock import Clock

PRESSURE_FILE = Path("/proc/pressure/io")
PAUSE_STEP_S = 0.5
PAUSE_S_MAX = 60.0
"""One segment waits no longer than this: a machine under lasting pressure must still be archived. Readers that give way do so
for no longer either: they must get on."""
_SOME = re.compile(r"^some avg10=([0-9.]+)", re.MULTILINE)


def io_pressure_percent(path: Path = PRESSURE_FILE) -> float:
    """Share of the last ten seconds in which some task waited for a disk; 0.0 where the kernel does not tell."""
    try:
        found = _SOME.search(path.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return 0.0
    return float(found[1]) if found else 0.0


@dataclass(eq=False)
class DiskReaders:
    """Who may read from which device now. Thread-safe. `pause_above_percent`: may be changed; None never pauses."""

    clock: Clock
    readers_per_disk: int
    pause_above_percent: float | None = None
    pressure: Callable[[], float] = io_pressure_percent
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _reading: Counter[int] = field(default_factory=Counter, init=False)
    _giving_way: Counter[int] = field(default_factory=Counter, init=False)
    _waiting: Counter[int] = field(default_factory=Counter, init=False)
    """By device. Readers that give way are in `_reading` too, and never in `_waiting`."""

    @contextmanager
    def reading(
        self, device: int, *, beat: Callable[[], None], is_urgent: bool, gives_way: bool = False, goes_on: bool = False
    ) -> Iterator[None]:
        """Read from a device within the block, as soon as it is our turn. `beat` is called while we wait.

        Args:
            is_urgent: retention is near: do not mind the pressure, nor readers that give way.
            gives_way: the others come first, and whoever is urgent reads besides this one.
            goes_on: with a read that has minded the pressure at its beginning.
        """
        self._take(device, beat, is_urgent, gives_way)
        try:
            if not (is_urgent or goes_on):
                self._pause(beat)
            yield
        finally:
            with self._changed:
                self._reading[device] -= 1
                self._giving_way[device] -= gives_way
                self._changed.notify_all()

    def _take(self, device: int, beat: Callable[[], None], is_urgent: bool, gives_way: bool) -> None:
        begun_s = self.clock.monotonic_s()
        with self._changed:
            self._waiting[device] += not gives_way
        try:
            while True:
                with self._changed:
                    comes_first = not gives_way or self.clock.monotonic_s() - begun_s >= PAUSE_S_MAX
                    in_the_way = self._reading[device] - (self._giving_way[device] if is_urgent else 0)
                    if in_the_way < self.readers_per_disk and (comes_first or not self._waiting[device]):
                        self._reading[device] += 1
                        self._giving_way[device] += gives_way
                        return
                    self._changed.wait(PAUSE_STEP_S)
                beat()
        finally:
            with self._changed:
                self._waiting[device] -= not gives_way
                self._changed.notify_all()

    def _pause(self, beat: Callable[[], None]) -> None:
        begun_s = self.clock.monotonic_s()
        # Read once each time: a reload on another thread may take the bound away.
        while (
            (limit := self.pause_above_percent) is not None
            and self.pressure() > limit
            and self.clock.monotonic_s() - begun_s < PAUSE_S_MAX
        ):
            beat()
            self.clock.sleep_s(PAUSE_STEP_S)


class HasDiskReaders(Protocol):
    @property
    def disk_readers(self) -> DiskReaders: ...
