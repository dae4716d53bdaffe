"""Makes a schedule that finds something as short as it can be, while it still finds the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Final

from tests.histories.faults import Fault
from tests.simulation.findings import Finding
from tests.simulation.run import run
from tests.simulation.schedule import (
    PLAIN,
    Append,
    ChangeStrategy,
    Collect,
    CompactArchive,
    Hide,
    Meanwhile,
    Restart,
    Round,
    Schedule,
    Step,
    Undo,
)

TRIES: Final = 500


def finding_of(schedule: Schedule) -> Finding | None:
    """What it finds, None for nothing. Any other error is a finding too: of the model, or of the product."""
    try:
        run(schedule)
    except Finding as error:
        return error
    except Exception as error:  # noqa: BLE001 - whoever runs many wants to see the others as well
        return Finding(f"crash-{type(error).__name__}", repr(error))
    return None


class _Search:
    """`breaks`: whether a schedule still breaks the rule. It says no when all tries are used up."""

    def __init__(self, rule: str, tries: int) -> None:
        self._rule, self.left = rule, tries

    def breaks(self, schedule: Schedule) -> bool:
        """Run it once more."""
        if self.left <= 0:
            return False
        self.left -= 1
        found = finding_of(schedule)
        return found is not None and found.rule == self._rule


def minimised(schedule: Schedule, rule: str, tries: int = TRIES) -> Schedule:
    """The schedule without what is not needed to break this rule, after so many tries at most."""
    search = _Search(rule, tries)
    schedule = _shortened(schedule, search.breaks)
    is_smaller = True
    while is_smaller and search.left > 0:
        smaller = next(filter(search.breaks, _simpler(schedule)), None)
        is_smaller = smaller is not None
        schedule = smaller or schedule
    return schedule


def _shortened(schedule: Schedule, breaks: Callable[[Schedule], bool]) -> Schedule:
    """Fewer steps: halves, quarters, …, single ones are left out."""
    size = len(schedule.steps)
    while size:
        begin = 0
        while begin < len(schedule.steps):
            candidate = replace(schedule, steps=schedule.steps[:begin] + schedule.steps[begin + size :])
            if breaks(candidate):
                schedule = candidate
            else:
                begin += size
        size //= 2
    return schedule


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    """Each with one step less, or one step or setting simpler."""
    for steps in _simpler_steps(schedule.steps):
        yield replace(schedule, steps=steps)
    plain = Schedule(schedule.seed, schedule.steps)
    for name in (
        "has_topic_id",
        "uploads_ahead",
        "grace_period_ms",
        "gives_times",
        "compacts",
        "max_queue",
        "task_s",
        "records_lost",
        "has_connection",
        "strategy",
    ):
        if getattr(schedule, name) != getattr(plain, name):
            yield replace(schedule, **{name: getattr(plain, name)})
    plain_shape = replace(PLAIN, is_cleaned=schedule.shape.is_cleaned)
    for shape in (replace(schedule.shape, transactions=False), replace(schedule.shape, idempotent=False), plain_shape):
        if shape != schedule.shape:
            yield replace(schedule, shape=shape)


def _simpler_steps(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    for number in reversed(range(len(steps))):
        yield (*steps[:number], *steps[number + 1 :])
    for number, step in enumerate(steps):
        for simpler in _simpler_step(step):
            yield (*steps[:number], simpler, *steps[number + 1 :])


def _simpler_step(step: Step) -> Iterator[Step]:
    if isinstance(step, Append):
        if step.batches > 1:
            yield replace(step, batches=step.batches - 1)
        if step.lags:
            yield replace(step, lags=False)
    if isinstance(step, Round):
        yield from _simpler_round(step)
    if isinstance(step, Restart) and step.stops:
        yield replace(step, stops=False)
    if isinstance(step, Hide):
        for steps in _simpler_steps(step.steps):
            yield replace(step, steps=tuple(found for found in steps if isinstance(found, Round)))
    if isinstance(step, Round | Collect | CompactArchive | Undo):
        for faults in _simpler_faults(step.faults):
            yield replace(step, faults=faults)
        for meanwhile in _simpler_meanwhile(step.meanwhile):
            yield replace(step, meanwhile=meanwhile)
        if step.is_stale:
            yield replace(step, is_stale=False)
        if not isinstance(step, Undo) and step.broker is not None:
            yield replace(step, broker=None)
    if isinstance(step, ChangeStrategy) and step.broker is not None:
        yield replace(step, broker=None)


def _simpler_round(step: Round) -> Iterator[Step]:
    if step.is_asleep:
        yield replace(step, is_asleep=False)
    if step.moves is not None:
        yield replace(step, moves=None, checks=True)
    if step.lies:
        yield replace(step, lies=0)
    if step.misreads:
        yield replace(step, misreads=0)
    if step.is_unsafe:
        yield replace(step, is_unsafe=False)
    if step.order is not None:
        yield replace(step, order=None)


def _simpler_faults(faults: tuple[Fault, ...]) -> Iterator[tuple[Fault, ...]]:
    for number, fault in enumerate(faults):
        yield (*faults[:number], *faults[number + 1 :])
        if fault.calls > 1:
            yield (*faults[:number], replace(fault, calls=1), *faults[number + 1 :])


def _simpler_meanwhile(meanwhile: Meanwhile | None) -> Iterator[Meanwhile | None]:
    if meanwhile is not None:
        yield None
        for steps in _simpler_steps(meanwhile.steps):
            yield replace(meanwhile, steps=steps)


def shown(value: object, depth: int = 0) -> str:
    """The value as Python, without what is as usual."""
    if is_dataclass(value) and not isinstance(value, type):
        given = [
            f"{found.name}={shown(getattr(value, found.name), depth + 1)}"
            for found in fields(value)
            if found.default != getattr(value, found.name)
        ]
        return f"{type(value).__name__}({', '.join(given)})"
    if isinstance(value, tuple):
        separator = ",\n        " if depth == 1 and len(value) > 1 else ", "
        inner = separator.join(shown(found, depth + 1) for found in value)
        return f"({inner}{',' if len(value) == 1 else ''})"
    return repr(value)
