"""Ctrl-C and SIGTERM: the first ends a command in order, the second ends the process at once."""

import os
import signal
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from sidecar.clock import SystemClock

SILENT_S: Final = 2.0
"""A command that takes longer to end says what it waits for."""
AGAIN_S: Final = 0.01
"""By then the interrupted callback is usually over; else the same happens again."""


class Interrupt(SystemExit):
    """Ends a command. `dropped`: called when nothing refers to it any more.

    Trap: Python ignores what is raised in finalizers and in callbacks of weak references, of which imports are full. Libraries may
    ignore what is raised in a callback of their own.
    """

    def __init__(self, code: int, dropped: Callable[[], None]) -> None:
        super().__init__(code)
        self._dropped = dropped

    def __del__(self) -> None:
        self._dropped()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise SystemExit at the first signal, and raise it again where it was dropped. A second signal, or one after the block, ends
    the process at once.

    Handles both signals until the process ends: the interpreter waits for threads. An ignored signal (a background job) stays so.
    """
    heard = 0
    is_over = is_again = False

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal heard, is_again
        if is_over or (heard and not is_again):
            os._exit(128 + number)  # The default action would not end process 1 of a container.
        is_first, heard, is_again = not heard, number, False
        if is_first:
            with suppress(RuntimeError):  # No thread is left (a limit on processes). Only the explanation is missed.
                _begin(_explain)
        raise Interrupt(128 + number, dropped)

    def dropped() -> None:
        if not is_over:
            _begin(again)

    def again() -> None:
        nonlocal is_again
        SystemClock().sleep_s(AGAIN_S)
        if not is_over:
            is_again = True  # Only now: a signal that comes before is a second one.
            os.kill(os.getpid(), heard)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        is_over = True
        if heard and _is_of_interrupted_code(sys.exception()):
            raise SystemExit(128 + heard)


def _is_of_interrupted_code(error: BaseException | None) -> bool:
    """Whether the error says no more than that code was interrupted: an import, or the standard library between the release of a
    lock and its return. Any other error is one of its own.
    """
    return isinstance(error, ImportError) or (
        isinstance(error, RuntimeError) and isinstance(error.__context__, Interrupt)
    )


def _begin(work: Callable[[], None]) -> None:
    """Have a thread do the work, which the end of the process does not wait for. Returns when the thread runs.

    Traps: Thread.start takes a lock that the interrupted code may have. A thread that has not run yet when the interpreter ends
    uses memory that is free by then, and the process dies of it (CPython 3.11).
    """
    runs = allocate_lock()
    runs.acquire()

    def run() -> None:
        runs.release()
        work()

    start_new_thread(run, ())
    runs.acquire()


def _explain() -> None:
    # First of all: a thread that imports while the interpreter ends spoils memory that the end frees (CPython 3.11).
    SystemClock().sleep_s(SILENT_S)
    from sidecar.cli.output import remark

    remark(
        "interrupted: waiting for requests and tasks in progress. A store that does not answer delays the end by up to "
        "store.s3.read_timeout_s (60 s by default) per attempt. Ctrl-C or SIGTERM again ends the process at once: no "
        "committed data is lost, and the next run does the rest"
    )
