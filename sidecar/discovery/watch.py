"""File-system events as a hint that a scan is worth while. Whether they work or not, the periodic scan goes on.

Only new names in directories are events: appends to active segments are none, and cost nothing.
"""

import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from sidecar.clock import SystemClock
from sidecar.errors import PartitionError
from sidecar.event_log import EVENTS
from sidecar.logformat.names import Suffix, live_partition, parse_file_name

IN_CREATE: Final = 0x100
IN_MOVED_TO: Final = 0x80
IN_ONLYDIR: Final = 0x01000000
IN_Q_OVERFLOW: Final = 0x4000
IN_IGNORED: Final = 0x8000
_HEAD: Final = struct.Struct("=iIII")
"""Watch descriptor, mask, cookie, length of the name. Source: man 7 inotify."""
_READ_BYTES: Final = 64 * 1024
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
THREAD: Final = "log-dir-watch"
GATHER_S: Final = 0.05
"""A roll makes several files, the snapshot last: one scan reads them together."""


NewName: TypeAlias = tuple[Path | None, str]
"""A directory, and the name that has come into it. None: the kernel lost events, anything may have happened."""


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

    def wait(self) -> list[NewName] | None:
        """The names that came, as soon as there are any; None when interrupted."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._interrupted, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll()}
        return None if self._interrupted in ready else self._read()

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
                found.append((None, ""))
            elif mask & IN_IGNORED:
                self._directories.pop(watch, None)  # The directory is gone.
            elif watch in self._directories:
                found.append((self._directories[watch], name))
        return found

    def close(self) -> None:
        for descriptor in (self._descriptor, self._interrupted, self._interrupt):
            os.close(descriptor)


def _failed(what: str) -> PartitionError:
    number = ctypes.get_errno()
    return PartitionError(f"{what} cannot be watched: {os.strerror(number)}")


def is_worth_a_scan(name: str) -> bool:
    """Whether a new file of this name can mean a new rolled segment: a `.log` or `.snapshot`."""
    found = parse_file_name(name)
    return found is not None and found.suffix in {Suffix.LOG, Suffix.SNAPSHOT}


@contextmanager
def waking_on_new_files(log_dirs: Sequence[Path], wake: threading.Event) -> Iterator[None]:
    """Within the block, set `wake` when files come into a partition directory of the log dirs, or such a directory comes.

    Where watching is impossible (the system's limit of watches, a log dir that is gone, a file system without events) that is
    logged once: the periodic scan alone remains.
    """
    with ExitStack() as resources:
        try:
            names = NewNames()
            resources.callback(names.close)
            for log_dir in _present(log_dirs):
                _add_log_dir(names, log_dir)
        except (PartitionError, OSError) as error:
            _give_up(error)
        else:
            thread = threading.Thread(target=_watch, args=(names, log_dirs, wake), name=THREAD, daemon=True)
            thread.start()
            resources.callback(thread.join)
            resources.callback(names.interrupt)
        yield


def _watch(names: NewNames, log_dirs: Sequence[Path], wake: threading.Event) -> None:
    try:
        while (found := names.wait()) is not None:
            worth = [_is_worth_waking(names, log_dirs, *new) for new in found]  # Each: it watches a new partition.
            if any(worth):
                SystemClock().sleep_s(GATHER_S)
                wake.set()
    except (PartitionError, OSError) as error:
        _give_up(error)


def _present(log_dirs: Sequence[Path]) -> list[Path]:
    present = [log_dir for log_dir in log_dirs if log_dir.is_dir()]
    if not present:
        raise PartitionError("no log directory exists")
    return present


def _add_log_dir(names: NewNames, log_dir: Path) -> None:
    names.add(log_dir)
    with os.scandir(log_dir) as entries:
        for entry in entries:
            if live_partition(entry.name) and entry.is_dir():
                _add_partition(names, log_dir / entry.name)


def _add_partition(names: NewNames, directory: Path) -> None:
    try:
        names.add(directory)
    except PartitionError:
        if directory.is_dir() and os.access(directory, os.R_OK):
            raise  # Not gone, not forbidden: there are no watches left.


def _is_worth_waking(names: NewNames, log_dirs: Sequence[Path], directory: Path | None, name: str) -> bool:
    if directory is None:
        return True
    if directory not in log_dirs:
        return is_worth_a_scan(name)
    if live_partition(name) is None:
        return False
    _add_partition(names, directory / name)
    return True  # The first files of a partition may have come before it was watched.


def _give_up(error: Exception) -> None:
    EVENTS.warning("log_dirs_not_watched", reason=str(error), remedy="none: the periodic scan finds everything")
