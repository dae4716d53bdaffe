"""Directories for work files on this machine, of Spark and of others: gone with their process, or when the next one starts."""

import fcntl
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from sidecar.errors import CompactionCutOff, SidecarError, StagingFull
from sidecar.logformat.files import cannot_be_written

_PREFIX: Final = "tiered-sidecar"
_KINDS: Final = ("spark", "compaction", "copies", "compact", "inspect", "dry-run", "prepare")
_RANDOM: Final = "?" * 8
"""What `mkdtemp` adds."""
_LOCK: Final = "lock"


class Scratch:
    """A directory in `parent` (None: where temporary files go) that is there from the first time it is asked for.

    Those that killed processes left there are removed then. Also a context manager that gives the directory and removes it.
    Thread-safe: a thread that was cut off may ask after the end of the context.
    """

    def __init__(self, parent: Path | None, kind: str, unless_full: type[SidecarError] = StagingFull) -> None:
        """Args: kind: what for, one of `_KINDS`, as part of its name. unless_full: see `cannot_be_written`."""
        if kind not in _KINDS:
            raise ValueError(f"{kind}: expected one of {', '.join(_KINDS)}, for which there is a sweep")
        self.parent = Path(tempfile.gettempdir()) if parent is None else parent
        self._kind, self._unless_full = kind, unless_full
        self._made: tuple[Path, int] | None = None
        self._is_over = False
        self._guard = threading.Lock()

    @property
    def path(self) -> Path:
        """The same one each time, re-created if it was deleted. Raises StagingFull, and CompactionCutOff once it is removed."""
        with self._guard:
            if self._is_over:
                raise CompactionCutOff
            if self._made is not None and not self._made[0].is_dir():
                self._remove()
            if self._made is None:
                with cannot_be_written(self.parent, self._unless_full):
                    self._made = self._make()
            return self._made[0]

    def _make(self) -> tuple[Path, int]:
        self.parent.mkdir(parents=True, exist_ok=True)
        sweep(self.parent)
        # Under its own name only when it is locked: else the sweep of another process could take it away.
        nascent = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}-{self._kind}-", dir=self.parent))
        # Not inherited: the JVM must not keep it when we are killed.
        lock = os.open(nascent / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return nascent.rename(self.parent / nascent.name.removeprefix(".")), lock

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.remove()

    def remove(self) -> None:
        """With all that is in it, for good. Once it is removed, nothing happens."""
        with self._guard:
            self._is_over = True
            self._remove()

    def _remove(self) -> None:
        if self._made is None:
            return
        # Trap: a second close would hit whoever has the number by then.
        (path, lock), self._made = self._made, None
        # Twice: workers of a JVM that was killed may still write for a moment.
        for _ in range(2):
            shutil.rmtree(path, ignore_errors=True)
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
