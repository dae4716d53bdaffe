"""Threads that hold nothing up, neither who began them nor the end of the process; and signals, which interrupt the main one."""

import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import Any, TypeAlias, TypeVar

_Answer = TypeVar("_Answer")
Handler: TypeAlias = Callable[[int, FrameType | None], Any]


def begun(name: str, work: Callable[[], _Answer]) -> Future[_Answer]:
    """Work in a daemon thread of its own, which need not be waited for: a disk or a store may hang for ever.

    A pool would be waited for at the interpreter's end, too. The future raises what the work raised, of any kind.
    """
    future: Future[_Answer] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by who asks for the result
            future.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return future


@contextmanager
def handling(handlers: Mapping[int, Handler | int | None]) -> Iterator[None]:
    """Have these functions handle signals within the block. Changes nothing in another thread than the main one.

    A handler that is not Python's is None: it can be neither set nor put back.
    """
    if current_thread() is not main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items() if handler is not None}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
