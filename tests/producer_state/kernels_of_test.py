"""Kernels that only `test_kernel_library` calls."""

from __future__ import annotations

from typing import Any

from producer_state.compiling import native


@native
def add_up(rows: Any, factor: int) -> tuple[int, int]:
    """The sum of all elements times `factor`, and how many there are."""
    total = 0
    for row in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            total += rows[row, column] * factor
    return total, rows.size


@native
def negate(values: Any) -> None:
    """In place."""
    for at in range(len(values)):
        values[at] = -values[at]


@native
def last(values: Any) -> Any:
    """The last one."""
    return values[-1]
