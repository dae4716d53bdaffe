"""Counts in texts for people."""

from collections.abc import Callable


def plural(count: int, one: str, many: str = "", *, shown: Callable[[int], str] = str) -> str:
    """`1 partition`, `2 partitions`.

    Args:
        many: where it is not `one` with an s.
        shown: how the number is written.
    """
    return f"{shown(count)} {one if count == 1 else many or f'{one}s'}"
