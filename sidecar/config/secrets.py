"""The values that must never be shown: those that were given, and those in files that somebody else keeps fresh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

from sidecar.config.environment import SECRET_BYTES_MAX

EARLIER_MAX = 16
"""Of each file: a connection may go on with the token of some hours ago."""


class Secrets:
    """Each iteration yields what is secret now, and what stood in the files before. Thread-safe."""

    def __init__(self, given: Sequence[str], files: Sequence[Path]) -> None:
        self._given = tuple(given)
        self._files = tuple(files)
        self._lock = Lock()
        self._seen: dict[Path, tuple[int, int, int]] = {}
        self._read: dict[Path, tuple[str, ...]] = {}

    def __iter__(self) -> Iterator[str]:
        """Reads a file anew only where it is another one, or could not be read."""
        with self._lock:
            for file in self._files:
                self._look_at(file)
            return iter((*self._given, *(text for file in self._files for text in self._read.get(file, ()))))

    def _look_at(self, file: Path) -> None:
        stamp = _stamp(file)
        if stamp is None or stamp == self._seen.get(file):
            return
        text, known = _text_of(file), self._read.get(file, ())
        if not text:
            return
        if text not in known:
            self._read[file] = (text, *known)[:EARLIER_MAX]
        self._seen[file] = stamp


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _text_of(file: Path) -> str:
    """The secret in a file, "" if it cannot be read: who uses it says so."""
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(SECRET_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError):
        return ""
