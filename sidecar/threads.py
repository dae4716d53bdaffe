"""Threads that hold nothing up: neither who began them nor the end of the process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

_Answer = TypeVar("_Answer")


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
