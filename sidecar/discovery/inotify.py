"""Linux's file-system events, of new names in directories alone: appends to active segments are none, and cost nothing."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sidecar.errors import PartitionError

IN_CREATE: Final = 0x100
IN_MOVED_TO: Final = 0x80
IN_ONLYDIR: Final = 0x01000000
IN_ISDIR: Final = 0x40000000
IN_Q_OVERFLOW: Final = 0x4000
IN_IGNORED: Final = 0x8000
_HEAD: Final = struct.Struct("=iIII")
"""Watch descriptor, mask, cookie, length of the name. Source: man 7 inotify."""
_READ_BYTES: Final = 64 * 1024
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class NewName:
    """A name that has come into a directory. `directory` None: the kernel lost events, anything may have happened."""

    directory: Path | None
    name: str
    is_directory: bool


class NewNames:
    """Watches directories for names that come. Not for use by two threads at once, but for `interrupt`."""

    def __init__(self) -> None:
        """Raises PartitionError where the system has no such events, or none left for this user."""
        try:
            self._descriptor = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError as error:
            raise PartitionError("this system has no inotify") from error
        if self._descriptor < 0:
            raise _failed("inotify")
        self._directories: dict[int, Path] = {}
        self._interrupted, self._interrupt = os.pipe2(os.O_CLOEXEC)

    def add(self, directory: Path) -> None:
        """Watch a directory as well. Raises PartitionError: it is gone, may not be read, or there are too many watches."""
        watch = _LIBC.inotify_add_watch(
            self._descriptor, os.fsencode(directory), ctypes.c_uint32(IN_CREATE | IN_MOVED_TO | IN_ONLYDIR)
        )
        if watch < 0:
            raise _failed(str(directory))
        self._directories[watch] = directory

    def interrupt(self) -> None:
        """Let `wait` return. From any thread."""
        os.write(self._interrupt, b"\0")

    def wait(self, timeout_s: float | None = None) -> list[NewName] | None:
        """The names that came, at least one, as soon as there are any; [] after the timeout, None when interrupted."""
        timeout_ms = None if timeout_s is None else round(timeout_s * 1000)
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._interrupted, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(timeout_ms)}
        if self._interrupted in ready:
            return None
        return self._read() if ready else []

    def _read(self) -> list[NewName]:
        try:
            content = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return []
        found: list[NewName] = []
        position = 0
        while position + _HEAD.size <= len(content):
            watch, mask, _, length = _HEAD.unpack_from(content, position)
            position += _HEAD.size
            name = os.fsdecode(content[position : position + length].rstrip(b"\0"))
            position += length
            if mask & IN_Q_OVERFLOW:
                found.append(NewName(None, "", is_directory=False))
            elif mask & IN_IGNORED:
                self._directories.pop(watch, None)  # The directory is gone.
            elif watch in self._directories:
                found.append(NewName(self._directories[watch], name, is_directory=bool(mask & IN_ISDIR)))
        return found

    def close(self) -> None:
        """End all watches."""
        for descriptor in (self._descriptor, self._interrupted, self._interrupt):
            os.close(descriptor)


def _failed(what: str) -> PartitionError:
    number = ctypes.get_errno()
    return PartitionError(f"{what} cannot be watched: {os.strerror(number)}")
