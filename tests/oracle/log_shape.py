"""What a random log may contain: one frozen value of switches and bounds, so that a suite can name what it covers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


@dataclass(frozen=True, slots=True)
class LogShape:
    """Pairs are inclusive bounds. `cleanable` keeps out what makes Kafka's own Cleaner raise (docstring of random_segments)."""

    segments: tuple[int, int] = (2, 5)
    batches_per_segment: tuple[int, int] = (0, 14)
    records_per_batch: tuple[int, int] = (1, 6)
    producers: int = 4
    keys: int = 10
    codecs: tuple[int, ...] = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
    transactions: bool = True
    open_transactions: bool = True
    epochs_down: bool = True
    compacted_before: bool = True
    delete_horizons: bool = True
    offset_gaps: bool = True
    odd_timestamps: bool = True
    append_time: bool = True
    null_keys: bool = True
    version_headers: bool = True
    other_headers: bool = True
    legacy: bool = False
    absent_sequences: bool = False
    other_control: bool = False
    invalid_transaction_state: bool = False
    first_base_offset: int | None = 0
    cleanable: bool = True


REPLAY = LogShape(
    absent_sequences=True,
    other_control=True,
    cleanable=False,
    codecs=(NONE, ZSTD),
    version_headers=False,
    other_headers=False,
)
"""For producer state: everything that a replay can meet; records matter little."""

CLEANER = LogShape()
"""For compaction: any log that Kafka's Cleaner can clean."""


_SWITCHES = (
    "transactions",
    "epochs_down",
    "compacted_before",
    "delete_horizons",
    "offset_gaps",
    "odd_timestamps",
    "append_time",
    "null_keys",
    "other_headers",
)


def varied(shape: LogShape, random: Random) -> LogShape:
    """The shape with some of its switches off, so that plain logs occur too; and sometimes with a legacy beginning."""
    off: dict[str, Any] = {name: False for name in _SWITCHES if random.random() < 0.25}
    if random.random() < 0.4:
        off["open_transactions"] = False  # else the last stable offset keeps most of the log from the cleaner
    codecs = shape.codecs if random.random() < 0.5 else (random.choice(shape.codecs),)
    legacy = shape.legacy and random.random() < 0.5
    return replace(shape, **off, codecs=codecs, legacy=legacy, keys=random.choice((2, 5, shape.keys, 4 * shape.keys)))
