"""Runs a schedule: each step, each check, and at the end whether everything comes right once faults have stopped."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from structlog.typing import EventDict

from tests.histories.one_thread import in_one_thread
from tests.simulation.codec import Codec
from tests.simulation.compactor import OpenCopies
from tests.simulation.figures import Figures
from tests.simulation.link import SimLink
from tests.simulation.quick_dataclasses import quick_dataclasses
from tests.simulation.quick_logs import quick_logs
from tests.simulation.schedule import Schedule, Step
from tests.simulation.world import World

PLAIN_ONE_IN: Final = 128
"""Of so many schedules one parses all that it reads."""


@dataclass(slots=True)
class Simulation:
    """What many schedules have in common. `stores`: the last one is what compaction opens."""

    logs: list[EventDict]
    stores: list[SimLink]
    codec: Codec = field(default_factory=Codec)


_simulations: Final[list[Simulation]] = []
"""The one that is under way, if one is."""


@contextmanager
def simulating() -> Iterator[None]:
    """Schedules that run meanwhile share what takes a while to set up, and are freed one by one (see `run`)."""
    if _simulations:
        yield
        return
    stores: list[SimLink] = []
    with quick_logs() as logs, in_one_thread(lambda: stores[-1]), quick_dataclasses():
        _simulations.append(Simulation(logs, stores))
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            _simulations.clear()


def run(schedule: Schedule, *, observe: Callable[[Step], None] = lambda _step: None) -> Figures:
    """Run it. Raises Finding."""
    figures = lived(schedule, observe=observe).figures
    # The parts of a world name each other. Right after its end they are still in the processor's cache, and nothing else is young.
    gc.collect(0)
    return figures


def lived(schedule: Schedule, *, observe: Callable[[Step], None] = lambda _step: None) -> World:
    """The world after a schedule. Raises Finding."""
    with simulating(), ExitStack() as resources:
        (simulation,) = _simulations
        simulation.codec.forget()
        if schedule.seed % PLAIN_ONE_IN:
            resources.enter_context(simulation.codec.in_use())
        resources.enter_context(OpenCopies().in_use())
        world = World(schedule, simulation.logs, simulation.stores, simulation.codec.decode_commit)
        for step in schedule.steps:
            observe(step)
            world.do(step)
        world.settle()
    return world
