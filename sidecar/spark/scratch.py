"""Directories for work files on this machine, of Spark and of others: gone with their process, or when the next one starts."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

_PREFIX: Final = "tiered-sidecar"
_KINDS: Final = ("spark", "compaction", "copies", "compact", "inspect", "dry-run", "prepare")
_RANDOM: Final = "?" * 8
"""What `mkdtemp` adds."""
_LOCK: Final = "lock"


class Scratch:
    """A new directory below `parent` (None: where temporary files go). Those that killed processes left are removed.

    Also a context manager that gives the directory and removes it.
    """

    def __init__(self, parent: Path | None, kind: str) -> None:
        """Args: kind: what for, one of `_KINDS`, as part of its name. Raises OSError."""
        if kind not in _KINDS:
            raise ValueError(f"{kind}: expected one of {', '.join(_KINDS)}, for which there is a sweep")
        above = Path(tempfile.gettempdir()) if parent is None else parent
        above.mkdir(parents=True, exist_ok=True)
        sweep(above)
        # Under its own name only when it is locked: else the sweep of another process could take it away.
        nascent = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}-{kind}-", dir=above))
        # Not inherited: the JVM must not keep it when we are killed.
        lock = os.open(nascent / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._lock: int | None = lock
        self._guard = threading.Lock()
        self.path = nascent.rename(above / nascent.name.removeprefix("."))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.remove()

    def remove(self) -> None:
        """With all that is in it. Once it is removed, nothing happens. Thread-safe."""
        with self._guard:
            if self._lock is None:
                return
            # Twice: workers of a JVM that was killed may still write for a moment.
            for _ in range(2):
                shutil.rmtree(self.path, ignore_errors=True)
            # Trap: a second close would hit whoever has the number by then.
            lock, self._lock = self._lock, None
            os.close(lock)


def sweep(above: Path) -> None:
    """Remove those that no process holds any more. What may not be removed stays."""
    for left in [path for kind in _KINDS for path in above.glob(f"{_PREFIX}-{kind}-{_RANDOM}")]:
        try:
            lock = os.open(left / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            # Being removed this moment, or by a process that was killed over it. Not ours if anything is in it.
            with suppress(OSError):
                left.rmdir()
            continue
        except OSError:
            continue  # Another user's.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(lock)
