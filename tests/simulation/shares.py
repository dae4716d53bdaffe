"""Runs many schedules in one process."""

from __future__ import annotations

from typing import Final, TypeAlias

from tests.histories.faults import Crash
from tests.simulation.drawing import random_schedule
from tests.simulation.figures import Figures
from tests.simulation.findings import Finding
from tests.simulation.run import run, simulating

SHARE: Final = 50
"""Schedules that a process takes at a time."""

Found: TypeAlias = tuple[int, str, str]
"""Seed, rule and detail."""


def several(seeds: range) -> tuple[Figures, list[Found]]:
    """Run the schedules of these seeds."""
    figures, found = Figures(), list[Found]()
    with simulating():
        for seed in seeds:
            try:
                figures.add(run(random_schedule(seed)))
            except Finding as error:
                found.append((seed, error.rule, error.detail))
            except (Exception, Crash) as error:  # noqa: BLE001 - a fault of the model must not end the others
                found.append((seed, f"crash-{type(error).__name__}", repr(error)))
    return figures, found
