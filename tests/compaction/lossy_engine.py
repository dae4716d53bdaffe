"""A `StageEngine` that loses or doubles one row on the way from one stage to the next."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from sidecar.engine_ports import TO_DRIVER, Row, StagedRun, StageEngine, Stages
from sidecar.exchange import unpacked
from sidecar.rewriting.stages import ScannedShare, WinnerCounts


@dataclass(frozen=True)
class Lossy:
    """`first` or `second` of some stages, but one of the rows that `chosen` accepts comes `times` times. Goes through pickle.

    Of the first call that yields such a row: no task or bucket has a number here, so the row itself shows it.
    """

    stage: Callable[..., Iterator[Row]]
    chosen: Callable[[Row], bool]
    times: int

    def __call__(self, *arguments: Any) -> Iterator[Row]:
        done = False
        for row in self.stage(*arguments):
            if not done and self.chosen(row):
                done = True
                yield from (row for _ in range(self.times))
            else:
                yield row


@dataclass(frozen=True)
class LossyStages:
    """One row of each task of that stage that is `chosen` arrives `times` times: 0 loses it, 2 doubles it."""

    engine: StageEngine
    stage: str
    chosen: Callable[[Row], bool]
    times: int = 0

    @property
    def cores(self) -> int:
        return self.engine.cores

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any], *, uploads: bool = False) -> Generator[Any]:
        """See `TaskEngine`."""
        return self.engine.run(function, tasks, uploads=uploads)

    def staged(self, stages: Stages, tasks: Sequence[Any]) -> AbstractContextManager[StagedRun]:
        lossy = Lossy(getattr(stages, self.stage), self.chosen, self.times)
        return self.engine.staged(replace(stages, **{self.stage: lossy}), tasks)


def is_keys(row: Row) -> bool:
    """To the reduction: keys, or what was decided already."""
    return row[0] != TO_DRIVER


def is_winners(row: Row) -> bool:
    return row[0] != TO_DRIVER


def is_scanned(row: Row) -> bool:
    return isinstance(unpacked(*row), ScannedShare)


def is_counts(row: Row) -> bool:
    return isinstance(unpacked(*row), WinnerCounts)


LOSSES: dict[str, tuple[str, Callable[[Row], bool], int]] = {
    "keys are lost": ("first", is_keys, 0),
    "keys come twice": ("first", is_keys, 2),
    "what a scan found is lost": ("first", is_scanned, 0),
    "winners are lost": ("second", is_winners, 0),
    "winners come twice": ("second", is_winners, 2),
}
"""Both transitions between the stages: the stage whose rows are affected, which of them, and how often they arrive."""
