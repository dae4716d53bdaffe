"""What a round works with and lets go of when it is over: threads, and descriptors of planned segments."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

from sidecar.pipeline.tools import Tools


@contextmanager
def releasing(tools: Tools) -> Iterator[None]:
    """Close the descriptors that were held for this round and that nobody took."""
    try:
        yield
    finally:
        tools.held.release()


@contextmanager
def pools(tools: Tools) -> Iterator[tuple[Executor, Executor]]:
    """Threads for partitions, and for their uploads."""
    workers = tools.policy.workers
    ahead = workers * tools.policy.uploads_ahead
    with (
        ThreadPoolExecutor(ahead, thread_name_prefix="upload") as uploads,
        ThreadPoolExecutor(workers, thread_name_prefix="partition") as partitions,
    ):
        yield partitions, uploads
