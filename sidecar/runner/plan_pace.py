"""How many partitions are looked at at once: as many as one waits longer than it computes, which depends on the store."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sidecar.clock import Clock

LOOKED_AT: Final = 3
"""Items that are worked on one after the other. The first opens connections and tells little of the others."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def at_pace(clock: Clock, work: Callable[[Item], Result], items: Sequence[Item], most: int) -> Iterator[Result]:
    """The result of each item, in their order, from at most `most` threads.

    Threads that do not wait only take the interpreter from each other: against a store that answers within a millisecond
    eight need a tenth longer than two.
    """
    shares = []
    for item in items[:LOOKED_AT]:
        began_s, began_cpu_s = clock.monotonic_s(), time.thread_time()
        result = work(item)
        shares.append(threads_for(clock.monotonic_s() - began_s, time.thread_time() - began_cpu_s, most))
        yield result
    if len(items) > LOOKED_AT:
        with ThreadPoolExecutor(min(shares), thread_name_prefix="plan") as pool:
            yield from pool.map(work, items[LOOKED_AT:])


def threads_for(took_s: float, computed_s: float, most: int) -> int:
    """So many that one of them computes all the time; at least two, at most `most`."""
    return max(2, min(most, math.ceil(took_s / max(computed_s, 1e-6))))
