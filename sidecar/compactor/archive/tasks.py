"""Tasks that know nothing of each other, on the engine that also runs the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sidecar.engine_ports import Row, StageEngine, Stages


def on_engine(
    function: Callable[[Any], Iterator[Row]], tasks: Sequence[Any], engine: StageEngine, *, uploads: bool = False
) -> Sequence[Any]:
    """What the function, importable by name, yields to the driver for each task; in any order.

    Tasks may run twice; the answers of one attempt count. `uploads`: they also write to the store.

    Raises what the engine raises.
    """
    if not tasks:
        return ()
    with engine.staged(Stages(function, _nothing, 1, 1, 1, uploads), tasks) as run:
        return run.answers


def _nothing(_bucket: int, _values: Sequence[Any]) -> Iterator[Row]:
    return iter(())
