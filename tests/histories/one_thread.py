"""Everything in this thread: a history runs the same way each time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from sidecar.commits import commit_log
from sidecar.host import process_store
from sidecar.ports import ObjectStore

CHECKPOINT_EVERY = 4
_PRODUCTS = ("sidecar.", "producer_state.")


class InThisThread(Executor):
    """Runs each call when it is submitted."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        """Takes what a pool of threads takes."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor`. The death of a process comes with the future, too."""
        future = Future[Any]()
        try:
            future.set_result(fn(*args, **kwargs))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(error)
        return future

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_options: object) -> Iterator[Any]:
        """See `Executor`: all calls are made, and whoever comes to the result of one that failed gets its error."""
        ended = [self._ended(fn, given) for given in zip(*iterables, strict=False)]
        return (_result(result, error) for result, error in ended)

    @staticmethod
    def _ended(fn: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
        try:
            return fn(*given), None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
            return None, error


def _result(result: Any, error: BaseException | None) -> Any:
    if error is not None:
        raise error
    return result


@contextmanager
def pools_in_this_thread() -> Iterator[None]:
    """While it lasts, the product's pools of threads have none."""
    holders = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(_PRODUCTS) and getattr(module, "ThreadPoolExecutor", None) is ThreadPoolExecutor
    ]
    for holder in holders:
        holder.ThreadPoolExecutor = InThisThread
    try:
        yield
    finally:
        for holder in holders:
            holder.ThreadPoolExecutor = ThreadPoolExecutor


@contextmanager
def in_one_thread(store_of: Callable[[], ObjectStore]) -> Iterator[None]:
    """While it lasts. `store_of`: the store that compaction's tasks open."""
    with pools_in_this_thread(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_store, "store_of", lambda _settings: store_of())
        patch.setattr(commit_log, "SPARED_MIN", CHECKPOINT_EVERY)
        patch.setattr(commit_log, "CHECKPOINT_EVERY", CHECKPOINT_EVERY)
        yield
