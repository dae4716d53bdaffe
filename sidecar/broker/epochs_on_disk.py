"""The latest leader epoch that a partition's `leader-epoch-checkpoint` names, read anew only where the file is another one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sidecar.broker.log_dir_state import read_file
from sidecar.clock import Clock
from sidecar.logformat.headers import NO_LEADER_EPOCH
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT

SETTLED_MS: Final = 2_000
"""Two versions within one tick of the kernel's clock may look alike: a file is known again only when it is older."""


def latest_epoch(directory: Path) -> int:
    """Read from the file; `NO_LEADER_EPOCH` where there is none.

    Raises PartitionError if it cannot be read, CorruptFile if it cannot be believed.
    """
    epochs = read_file(directory / LEADER_EPOCH_CHECKPOINT, read_leader_epochs)
    return NO_LEADER_EPOCH if epochs is None else epochs.latest_epoch


@dataclass(frozen=True, slots=True)
class _Known:
    """`stamp`: inode, size and mtime of the file before it was read."""

    stamp: tuple[int, int, int]
    epoch: int


class LeaderEpochCache:
    """Of a thousand idle partitions not one file is opened. Kafka replaces the file by renaming a new one over it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[Path, _Known] = {}
        self._asked: set[Path] = set()

    def forget_unasked(self) -> None:
        """Forget what nobody has asked for since the last call: directories come and go."""
        asked, self._asked = self._asked, set()
        # A copy: a turn may be asking while the disks are looked at.
        self._known = {directory: known for directory, known in self._known.copy().items() if directory in asked}

    def latest(self, directory: Path) -> int:
        """See `latest_epoch`, also for what it raises."""
        self._asked.add(directory)
        stamp = _stamp(directory)
        known = self._known.get(directory)
        if known is not None and known.stamp == stamp:
            return known.epoch
        self._known.pop(directory, None)
        epoch = latest_epoch(directory)
        if stamp is not None and 0 <= stamp[2] // 1_000_000 < self._clock.now_ms() - SETTLED_MS:
            self._known[directory] = _Known(stamp, epoch)
        return epoch


def _stamp(directory: Path) -> tuple[int, int, int] | None:
    try:
        found = (directory / LEADER_EPOCH_CHECKPOINT).stat()
    except OSError:
        return None  # Reading it says what is wrong with it.
    return (found.st_ino, found.st_size, found.st_mtime_ns)
