"""Makes a history that finds something as short as it can be, while it still finds the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.histories.findings import Finding
from tests.histories.history import (
    Append,
    Collect,
    Compact,
    HideCommit,
    History,
    Restore,
    Settings,
    Step,
    Undo,
    Upload,
    Verify,
)
from tests.histories.run import run

TRIES = 400


def finding_of(history: History) -> Finding | None:
    """What it finds, None for nothing."""
    try:
        run(history)
    except Finding as error:
        return error
    return None


def minimised(history: History, rule: str, tries: int = TRIES) -> History:
    """The history without what is not needed to break this rule, after so many tries at most."""
    left = tries

    def breaks(candidate: History) -> bool:
        nonlocal left
        left -= 1
        found = finding_of(candidate)
        return found is not None and found.rule == rule

    history = _shortened(history, breaks, lambda: left > 0)
    is_smaller = True
    while is_smaller and left > 0:
        is_smaller = False
        for candidate in _simpler(history):
            if left <= 0:
                break
            if breaks(candidate):
                history, is_smaller = candidate, True
                break
    return history


def _shortened(history: History, breaks: object, may_go_on: object) -> History:
    """Fewer steps: halves, quarters, …, single ones are left out."""
    size = len(history.steps)
    while size and may_go_on():  # type: ignore[operator]
        begin = 0
        while begin < len(history.steps) and may_go_on():  # type: ignore[operator]
            candidate = replace(history, steps=history.steps[:begin] + history.steps[begin + size :])
            if breaks(candidate):  # type: ignore[operator]
                history = candidate
            else:
                begin += size
        size //= 2
    return history


def _simpler(history: History) -> Iterator[History]:
    """Each with one step less, or one step or setting simpler."""
    steps = history.steps
    for number in reversed(range(len(steps))):
        yield replace(history, steps=steps[:number] + steps[number + 1 :])
    for number, step in enumerate(steps):
        for simpler in _simpler_steps(step):
            yield replace(history, steps=(*steps[:number], simpler, *steps[number + 1 :]))
    plain, settings = Settings(), history.settings
    for name in Settings.__dataclass_fields__:
        if name != "shape" and getattr(settings, name) != getattr(plain, name):
            yield replace(history, settings=replace(settings, **{name: getattr(plain, name)}))
    for name in type(plain.shape).__dataclass_fields__:
        if getattr(settings.shape, name) != getattr(plain.shape, name):
            shape = replace(settings.shape, **{name: getattr(plain.shape, name)})
            yield replace(history, settings=replace(settings, shape=shape))


def _simpler_steps(step: Step) -> Iterator[Step]:
    if isinstance(step, Upload | Compact | Collect | Undo | Restore | Verify):
        for number in range(len(step.faults)):
            yield replace(step, faults=step.faults[:number] + step.faults[number + 1 :])
        for number, fault in enumerate(step.faults):
            if fault.calls > 1:
                faults = (*step.faults[:number], replace(fault, calls=1), *step.faults[number + 1 :])
                yield replace(step, faults=faults)
    if isinstance(step, Upload | Compact | Collect | Undo) and step.is_stale:
        yield replace(step, is_stale=False)
    if isinstance(step, Upload | Compact | Collect | Undo) and step.meanwhile is not None:
        yield replace(step, meanwhile=None)
    if isinstance(step, HideCommit):
        for number, inner in enumerate(step.steps):
            yield replace(step, steps=step.steps[:number] + step.steps[number + 1 :])
            for simpler in _simpler_steps(inner):
                assert isinstance(simpler, Upload | Compact | Collect | Undo)
                yield replace(step, steps=(*step.steps[:number], simpler, *step.steps[number + 1 :]))
    if isinstance(step, Append) and step.batches > 1:
        yield replace(step, batches=step.batches - 1)
