"""Ctrl-C and SIGTERM: the first ends a command in order, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from sidecar.clock import SystemClock

SILENT_S: Final = 2.0
"""A command that takes longer to end says what it waits for."""
AGAIN_S: Final = 0.01
"""By then the interrupted callback is over."""


class Interrupt(SystemExit):
    """Ends a command. `dropped`: called when nothing refers to it any more.

    Trap: Python ignores what is raised in callbacks of weak references and in finalizers, and some libraries ignore what is raised
    in theirs. Imports and settings are full of such callbacks.
    """

    def __init__(self, code: int, dropped: Callable[[], None]) -> None:
        super().__init__(code)
        self._dropped = dropped

    def __del__(self) -> None:
        self._dropped()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise SystemExit at the first signal, again if somebody drops it. After that, or after the block, a signal ends the process
    at once.

    Handles both signals until the process ends: the interpreter waits for threads. An ignored signal (a background job) stays so.
    """
    first = 0
    is_over = is_dropped = False

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal first, is_dropped
        if is_over or (first and not is_dropped):
            os._exit(128 + number)  # The default action would not end process 1 of a container.
        if not first:
            start_new_thread(_explain, ())  # Thread.start takes a lock that the interrupted code may have.
        first, is_dropped = number, False
        raise Interrupt(128 + number, dropped)

    def dropped() -> None:
        nonlocal is_dropped
        if not is_over:
            is_dropped = True
            start_new_thread(again, ())

    def again() -> None:
        SystemClock().sleep_s(AGAIN_S)
        os.kill(os.getpid(), first)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        is_over = True
        error = sys.exception()
        if first and error is not None and not isinstance(error, SystemExit):
            raise SystemExit(128 + first)  # An import that was interrupted may have ended with another error.


def _explain() -> None:
    from sidecar.cli.output import remark

    SystemClock().sleep_s(SILENT_S)
    remark(
        "interrupted: waiting for requests and tasks in progress. A store that does not answer delays the end by up to "
        "store.s3.read_timeout_s (60 s by default) per attempt. Ctrl-C or SIGTERM again ends the process at once: no "
        "committed data is lost, and the next run does the rest"
    )
