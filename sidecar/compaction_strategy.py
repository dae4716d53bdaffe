"""KIP-280's strategies, and what its two configurations `compaction.strategy` and `compaction.strategy.header` mean together.

Settings, flags and topic configs all come through here, so that an empty value means the same everywhere.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What Java's String.trim removes: all up to the space, and no other white space."""


class Strategy(StrEnum):
    """Which of the records of a key stays: the one with the highest offset, timestamp, or version in a header."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    HEADER = "header"


class OnUnkeyed(StrEnum):
    """What compaction does with records without a key."""

    DROP = "drop"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class StrategyInUse:
    """A strategy as it counts. `header`: the name of the header for `header`, "" for all others.

    `strategy` is a text, because an archive may have been compacted by a strategy that this release does not know.
    """

    strategy: str
    header: str = ""

    def __str__(self) -> str:
        return f"{self.strategy} {self.header!r}" if self.header else self.strategy


def header_name(text: str) -> str:
    """A configured header name as it is compared with the header keys of records: trimmed once, then byte for byte.

    Source: ConfigDef.parseType, which trims every value of a configuration. Nothing trims the keys of records.
    """
    return text.strip(_TRIMMED)


def strategy_of(text: str) -> Strategy:
    """The strategy of this name. Blank is `offset` (KIP-280). Raises ValueError for a name that is none."""
    name = text.strip(_TRIMMED)
    try:
        return Strategy(name) if name else Strategy.OFFSET
    except ValueError as error:
        names = ", ".join(Strategy)
        raise ValueError(f"{text!r} is not a compaction strategy: expected {names}, or nothing for offset") from error


def strategy_in_use(strategy: Strategy, header: str) -> StrategyInUse:
    """What counts: `header` without the name of a header is `offset` (KIP-280); the name counts for `header` alone."""
    name = header_name(header)
    if strategy is not Strategy.HEADER:
        return StrategyInUse(strategy)
    return StrategyInUse(strategy, name) if name else StrategyInUse(Strategy.OFFSET)
