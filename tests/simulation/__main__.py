"""`python -m tests.simulation --schedules 10000 --seed 1 --jobs 2` runs schedules, prints figures and minimised findings."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.drawing import random_schedule
from tests.simulation.figures import Figures
from tests.simulation.minimise import minimised, shown
from tests.simulation.run import simulating
from tests.simulation.shares import SHARE, Found, several


def many(first: int, schedules: int, jobs: int) -> Iterator[tuple[Figures, list[Found]]]:
    """Run so many, in processes."""
    end = first + schedules
    shares = [range(begin, min(begin + SHARE, end)) for begin in range(first, end, SHARE)]
    with simulating():  # Processes that are forked have it, too.
        if jobs == 1:
            yield from map(several, shares)
            return
        with ProcessPoolExecutor(jobs, get_context("fork")) as pool:
            yield from pool.map(several, shares)


def main() -> int:
    """Exit code 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule; the next ones follow")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minimise", type=int, default=3, help="so many findings, of different rules, are minimised")
    given = parser.parse_args()
    begun_s = time.monotonic()  # noqa: TID251 - of people who wait
    figures, found = Figures(), list[Found]()
    for more, findings in many(given.seed, given.schedules, given.jobs):
        figures.add(more)
        found += findings
        for seed, rule, detail in findings:
            print(f"seed {seed}: {rule}: {detail}", flush=True)
    seconds = time.monotonic() - begun_s  # noqa: TID251
    print_figures(given.schedules, seconds, figures, found)
    rules = {rule: seed for seed, rule, _ in reversed(found)}
    for rule, seed in list(rules.items())[: given.minimise]:
        print(f"minimised ({rule}, seed {seed}):\n    {shown(minimised(random_schedule(seed), rule))}", flush=True)
    return 1 if found else 0


def print_figures(schedules: int, seconds: float, figures: Figures, found: list[Found]) -> None:
    """One line for each kind."""
    rate = schedules / max(seconds, 0.001)
    print(f"schedules {schedules}, {seconds:.0f} s, {rate:.1f} a second, findings {len(found)}")
    print(f"commits {figures.commits}, segments {figures.segments}, of these compacted {figures.compacted}")
    print(f"steps {figures.steps.total()}: {_counts(figures.steps)}")
    faults = figures.faults
    print(f"faults {faults.total()}: {_counts(_by(faults, 0))}; {_counts(_by(faults, 1))}")
    after = sum(count for (_, _, is_after), count in faults.items() if is_after)
    print(f"of these {after} after the call took hold")
    print(f"errors of processes {figures.errors.total()}: {_counts(figures.errors)}")
    print(f"broken rules: {_counts(Counter(rule for _, rule, _ in found)) or 'none'}")


def _by(faults: Mapping[tuple[str, str, bool], int], index: int) -> dict[str, int]:
    counts = Counter[str]()
    for fault, count in faults.items():
        counts[str(fault[index])] += count
    return dict(counts)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


if __name__ == "__main__":
    sys.exit(main())
