"""How much a sidecar keeps: the entries of all containers that it reaches, but for those of the simulated world."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from sidecar.runner.context import RunContext
from tests.simulation.processes import Sidecar

_LEAVES = (str, bytes, int, float, type, RunContext)


def entries_kept(sidecar: Sidecar) -> int:
    """By its loop, its pins, and on its volume."""
    seen: set[int] = set()
    todo: deque[Any] = deque((sidecar._loop, sidecar.pinned, sidecar.volume.journal, sidecar.volume.memory))
    count = 0
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, _LEAVES) or callable(value):
            continue
        seen.add(id(value))
        inner = list(_inside(value))
        count += len(inner) if isinstance(value, Mapping | Sequence | Set | deque) else 0
        todo.extend(inner)
    return count


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, Sequence | Set | deque):
        yield from value
    elif type(value).__module__.partition(".")[0] == "sidecar" or type(value).__module__.endswith(".volume"):
        for kind in type(value).__mro__:
            slots = getattr(kind, "__slots__", ())
            yield from (getattr(value, name) for name in slots if hasattr(value, name))
        yield from getattr(value, "__dict__", {}).values()
