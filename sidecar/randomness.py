"""The only place that asks the machine for random values; everything else is handed a `Randomness`."""

import os
import random
from dataclasses import dataclass
from typing import Protocol


class Randomness(Protocol):
    """A source of random values. One that goes to tasks of a cluster can be pickled."""

    def random_bytes(self, count: int) -> bytes:
        """So many random bytes."""

    def uniform(self, low: float, high: float) -> float:
        """A number between these two."""


@dataclass(frozen=True, slots=True)
class SystemRandomness:
    """The machine's own source: no two processes draw the same ids."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)  # noqa: TID251 - this module is the exception

    def uniform(self, low: float, high: float) -> float:
        return random.SystemRandom().uniform(low, high)  # noqa: TID251 - as above


class HasRandomness(Protocol):
    @property
    def randomness(self) -> Randomness: ...
