"""Everything in this thread: a history runs the same way each time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from sidecar.commits import commit_log
from sidecar.host import process_store
from sidecar.ports import ObjectStore

CHECKPOINT_EVERY = 4
_PRODUCTS = ("sidecar", "producer_state")


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


@contextmanager
def in_one_thread(store_of: Callable[[], ObjectStore]) -> Iterator[None]:
    """While it lasts. `store_of`: the store that compaction's tasks open."""
    changed: list[tuple[Any, str, Any]] = []

    def change(holder: Any, name: str, value: Any) -> None:
        changed.append((holder, name, getattr(holder, name)))
        setattr(holder, name, value)

    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in _PRODUCTS and getattr(module, "ThreadPoolExecutor", None) is ThreadPoolExecutor:
            change(module, "ThreadPoolExecutor", InThisThread)
    change(process_store, "store_of", lambda _settings: store_of())
    defaults = commit_log.CommitLog.__init__.__kwdefaults__
    change(commit_log, "SPARED_MIN", CHECKPOINT_EVERY)
    before = defaults["checkpoint_every"]
    defaults["checkpoint_every"] = CHECKPOINT_EVERY
    try:
        yield
    finally:
        defaults["checkpoint_every"] = before
        for holder, name, value in reversed(changed):
            setattr(holder, name, value)
