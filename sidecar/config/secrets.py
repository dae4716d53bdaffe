"""The values that must never be shown: those that were given, and those in files that somebody else keeps fresh."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from sidecar.logformat.files import FileStamp, stamp_of

REDACTED: Final = "********"
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
SECRET_BYTES_MAX: Final = 64 * 1024
EARLIER_MAX: Final = 16
"""Of each file: a connection may go on with the token of some hours ago."""


def without_credentials(text: str) -> str:
    """The text with user and password of each URL in it redacted."""
    return _URL_CREDENTIALS.sub(REDACTED, text)


@dataclass(frozen=True, slots=True)
class SecretEntries:
    """Mark of a list of `name=value` texts, some of which hold a secret. `example`: an entry, for messages."""

    is_secret: Callable[[str], bool]
    example: str


class Secrets:
    """Each iteration yields what is secret now, and what stood in the files before. Thread-safe."""

    def __init__(self, given: Sequence[str], files: Sequence[Path]) -> None:
        self._given = tuple(given)
        self._files = tuple(files)
        self._lock = Lock()
        self._seen: dict[Path, FileStamp] = {}
        self._read: dict[Path, tuple[str, ...]] = {}

    def __iter__(self) -> Iterator[str]:
        """Reads a file again only if it was replaced, or could not be read."""
        with self._lock:
            for file in self._files:
                self._look_at(file)
            return iter((*self._given, *(text for file in self._files for text in self._read.get(file, ()))))

    def _look_at(self, file: Path) -> None:
        stamp = stamp_of(file)
        if stamp is None or stamp == self._seen.get(file):
            return
        known = self._read.get(file, ())
        try:
            text = read_secret(file)
        except (OSError, ValueError):
            return  # Who uses it says so.
        if text not in known:
            self._read[file] = (text, *known)[:EARLIER_MAX]
        self._seen[file] = stamp


def read_secret(file: Path) -> str:
    """The file's text without blanks around it. Raises OSError; ValueError, with words to follow the file's name."""
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(SECRET_BYTES_MAX + 1)
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8 text") from error
    if not text.strip() or len(text) > SECRET_BYTES_MAX:
        raise ValueError("is empty, or too long to be a secret")
    return text.strip()
