"""Random values that are the same each time."""

from __future__ import annotations

import random


class SeededRandomness:
    """The same values for the same seed: for tests that run the same way each time. It guards nothing."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def seed(self, seed: int) -> None:
        """Begin again from this seed."""
        self._random.seed(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
