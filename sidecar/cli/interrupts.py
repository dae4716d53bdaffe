"""Ctrl-C and SIGTERM: the first ends a command in order, the second ends the process at once."""

from __future__ import annotations

import os
import signal
from _thread import start_new_thread
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from sidecar.clock import SystemClock

SILENT_S: Final = 2.0
"""A command that takes longer to end says what it waits for."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise SystemExit at the first signal. After that, or after the block, a signal ends the process at once.

    Handles both signals until the process ends: the interpreter waits for threads. An ignored signal (a background job) stays so.
    """
    is_ending = False

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal is_ending
        if is_ending:
            os._exit(128 + number)  # The default action would not end process 1 of a container.
        is_ending = True
        start_new_thread(_explain, ())  # Thread.start takes a lock that the interrupted code may have.
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        is_ending = True


def _explain() -> None:
    from sidecar.cli.output import remark

    SystemClock().sleep_s(SILENT_S)
    remark(
        "interrupted: waiting for requests and tasks in progress. A store that does not answer delays the end by up to "
        "store.s3.read_timeout_s (60 s by default) per attempt. Ctrl-C or SIGTERM again ends the process at once: no "
        "committed data is lost, and the next run does the rest"
    )
