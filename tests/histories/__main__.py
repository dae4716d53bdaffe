"""`python -m tests.histories --histories 5000 --seed 1 --jobs 2` runs histories, prints figures and minimised findings."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, is_dataclass
from enum import Enum
from traceback import format_exc

from tests.histories.findings import Finding
from tests.histories.history import History, random_history
from tests.histories.minimise import minimised
from tests.histories.run import Figures, run

SHARE = 10
"""Histories that a process takes at a time."""

Found = tuple[int, str, str]
"""Seed, rule and detail."""


def several(seeds: range) -> tuple[Figures, list[Found]]:
    """Run the histories of these seeds."""
    figures, found = Figures(), list[Found]()
    for seed in seeds:
        try:
            figures.add(run(random_history(seed)))
        except Finding as error:
            found.append((seed, error.rule, error.detail))
        except Exception as error:  # noqa: BLE001 - a fault of the test is a finding as well, and must not end the others
            found.append((seed, f"crash-{type(error).__name__}", format_exc()))
    return figures, found


def many(first: int, histories: int, jobs: int) -> Iterator[tuple[Figures, list[Found]]]:
    """Run so many, in processes."""
    shares = [range(begin, min(begin + SHARE, first + histories)) for begin in range(first, first + histories, SHARE)]
    if jobs == 1:
        yield from map(several, shares)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(several, shares)


def shown(value: object, depth: int = 0) -> str:
    """The value as Python, without what is as usual."""
    if is_dataclass(value) and not isinstance(value, type):
        given = [
            f"{found.name}={shown(getattr(value, found.name), depth + 1)}"
            for found in fields(value)
            if found.default != getattr(value, found.name)
        ]
        return f"{type(value).__name__}({', '.join(given)})"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple):
        separator = ",\n        " if depth == 1 and len(value) > 1 else ", "
        inner = separator.join(shown(found, depth + 1) for found in value)
        return f"({inner}{',' if len(value) == 1 else ''})"
    return repr(value)


def print_minimised(seed: int, rule: str) -> None:
    """As it is to be put into `regressions.py`."""
    history: History = minimised(random_history(seed), rule)
    print(f"minimised ({rule}):\n    {shown(history)}", flush=True)


def main() -> int:
    """Exit code 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories")
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the first history; the next ones follow")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minimise", type=int, default=3, help="so many findings, of different rules, are minimised")
    given = parser.parse_args()
    begun_s = time.monotonic()  # noqa: TID251 - of people who wait
    figures, found = Figures(), list[Found]()
    for more, findings in many(given.seed, given.histories, given.jobs):
        figures.add(more)
        found += findings
        for seed, rule, detail in findings:
            print(f"seed {seed}: {rule}: {detail}", flush=True)
    seconds = time.monotonic() - begun_s  # noqa: TID251
    print_figures(given.histories, seconds, figures, found)
    rules = {rule: seed for seed, rule, _ in reversed(found)}
    for rule, seed in list(rules.items())[: given.minimise]:
        print_minimised(seed, rule)
    return 1 if found else 0


def print_figures(histories: int, seconds: float, figures: Figures, found: list[Found]) -> None:
    """One line for each kind."""
    print(
        f"histories {histories}, {seconds:.0f} s, {histories / max(seconds, 0.001):.1f} a second, findings {len(found)}"
    )
    print(f"commits {figures.commits}, steps {figures.steps.total()}: {_counts(figures.steps)}")
    faults = figures.faults
    print(f"faults {faults.total()}: {_counts(_by(faults, 0))}; {_counts(_by(faults, 1))}")
    after = sum(count for (_, _, is_after), count in faults.items() if is_after)
    print(f"of these {after} after the call took hold")
    print(f"errors of processes {figures.errors.total()}: {_counts(figures.errors)}")


def _by(faults: dict[tuple[str, str, bool], int], index: int) -> dict[str, int]:
    names = {str(fault[index]) for fault in faults}
    return {name: sum(count for fault, count in faults.items() if fault[index] == name) for name in names}


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


if __name__ == "__main__":
    sys.exit(main())
