"""Time as a store gives it. Ages of objects are differences of two times of one clock: the store's."""

from __future__ import annotations

from datetime import UTC, datetime


def known_ms(milliseconds: int) -> int | None:
    """The time, or None where it is no time: stores without times say 1970, or year 1 (Go's zero time).

    Taken for times, both would make an object "infinitely old".
    """
    return milliseconds if milliseconds > 0 else None


def milliseconds_of(given: object) -> int | None:
    """As `known_ms`, of a datetime (UTC where it names no zone) or of seconds since the epoch; None for anything else."""
    if isinstance(given, datetime):
        return known_ms(int((given if given.tzinfo is not None else given.replace(tzinfo=UTC)).timestamp() * 1000))
    return known_ms(int(given * 1000)) if isinstance(given, int | float) else None


def is_old(time_ms: int | None, until_ms: int) -> bool:
    """Whether an object of this time is at least as old as `until_ms`. An unknown time means "now": never old."""
    return time_ms is not None and time_ms <= until_ms
