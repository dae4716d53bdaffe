"""File-system events as a hint that a scan is worth while. Whether they work or not, the periodic scan goes on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog
import watchfiles

from sidecar.logformat.names import Suffix, parse_file_name

_log = structlog.get_logger(__name__)

_DEBOUNCE_MS = 1000
_STEP_MS = 200
"""Appends to active segments are events too: they are gathered this long before anybody looks at them."""


def is_worth_a_scan(change: watchfiles.Change, path: str) -> bool:
    """Whether an event can mean a new rolled segment: a `.log` or `.snapshot` has come. Appends are none of it."""
    if change is not watchfiles.Change.added:
        return False
    found = parse_file_name(Path(path).name)
    return found is not None and found.suffix in {Suffix.LOG, Suffix.SNAPSHOT}


class Hint:
    """A thread that sets `wake` when files come into the log dirs or a partition directory below them.

    A context manager. Where watching is impossible (the system's limit of watches, a log dir that is gone, a file system
    without events) it is logged once and `watching` becomes False: the periodic scan alone remains.
    """

    def __init__(self, log_dirs: Sequence[Path], wake: threading.Event) -> None:
        self._log_dirs = tuple(log_dirs)
        self._wake = wake
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="log-dir-watch", daemon=True)
        self.watching = True

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def _watch(self) -> None:
        try:
            try:
                self._set_wake_on_changes(ignore_permission_denied=False)
            except PermissionError:
                # Such as `lost+found`. Not the first choice, because then every other error is passed over in silence too.
                self._set_wake_on_changes(ignore_permission_denied=True)
        except (OSError, RuntimeError) as error:
            self._give_up(error)

    def _set_wake_on_changes(self, *, ignore_permission_denied: bool) -> None:
        present = [log_dir for log_dir in self._log_dirs if log_dir.is_dir()]
        if not present:
            raise FileNotFoundError("none of the log dirs is there")
        changes = watchfiles.watch(
            *present,
            watch_filter=is_worth_a_scan,
            stop_event=self._stop,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            raise_interrupt=False,
            force_polling=False,
            ignore_permission_denied=ignore_permission_denied,
        )
        for _ in changes:
            self._wake.set()

    def _give_up(self, error: Exception) -> None:
        self.watching = False
        _log.warning(
            "log_dirs_not_watched", reason=str(error), remedy="none needed: the periodic scan finds everything"
        )
