"""What came of comparing a broker's index with its log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class IndexState(StrEnum):
    """FINE: take the broker's bytes. REBUILD: take ours, nothing is wrong with the log. DISAGREES: one of both is wrong."""

    FINE = "fine"
    REBUILD = "rebuild"
    DISAGREES = "disagrees"


@dataclass(frozen=True, slots=True)
class IndexVerdict:
    """`reason` says what was expected and found, "" for FINE. `position` is the byte in the index, where one is meant."""

    state: IndexState
    reason: str = ""
    position: int | None = None


FINE = IndexVerdict(IndexState.FINE)


def rebuild(reason: str) -> IndexVerdict:
    """The broker's file is absent, unfinished or poorer than the log allows."""
    return IndexVerdict(IndexState.REBUILD, reason)


def disagrees(reason: str, position: int | None = None) -> IndexVerdict:
    """The file says something that the log contradicts."""
    return IndexVerdict(IndexState.DISAGREES, reason, position)
