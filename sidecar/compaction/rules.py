"""What the operator decides about compaction, and the version of a record."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sidecar.compaction_strategy import Strategy, StrategyInUse, header_name, strategy_in_use
from sidecar.errors import RecordRefused, SettingsError
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.headers import LARGEST_POSITION

DAY_MS: Final = 86_400_000
VERSION_BYTES: Final = 8
"""A version header holds a big-endian signed integer of exactly this size, as Kafka's long serializer writes it."""

NO_HORIZON_MS: Final = -(2**63)
"""Below every delete horizon: as a clock it has passed none, as a new horizon it is none."""


class LegacyFormat(StrEnum):
    """What becomes of messages of magic 0 and 1 that stay."""

    KEEP = "keep"
    CONVERT = "convert"  # to magic 2, even where nothing is lost: what brokers from 4.0 on do


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """Settings of one compaction, named after Kafka's; the clock is part of them.

    `header`: name of the version header, for `Strategy.HEADER`; see `strategy_in_use`.
    `strict_headers`: a malformed version fails the partition; otherwise its record counts as one without version.
    `refuses_unkeyed`: a record without a key fails the partition; otherwise it is dropped, as by Kafka's cleaner.
    `kafka_4_3`: end as Kafka 4.3.0 would: the last batch of the cleaning is kept instead of that of each output segment,
    and legacy messages become magic 2.
    `exact_keys`: keys are compared byte by byte. Otherwise their 128-bit hashes are, under a secret key: that any two of n
    keys have the same has a probability of n^2 / 2^129, of a billion keys 1.5e-21.
    `joins_segments`: small results become one segment. Otherwise each output covers what its source does.
    `spares_deletes`: tombstones and markers neither go nor age, for what they delete may lie where this compaction does not
    read: below its range, or in a source that stays as it is. A later compaction of all removes them.
    """

    now_ms: int
    strategy: Strategy = Strategy.OFFSET
    header: str = ""
    strict_headers: bool = False
    refuses_unkeyed: bool = False
    delete_retention_ms: int = DAY_MS
    segment_bytes: int = 1024**3
    segment_index_bytes: int = 10 * 1024**2
    legacy_format: LegacyFormat = LegacyFormat.KEEP
    kafka_4_3: bool = False
    exact_keys: bool = False
    joins_segments: bool = True
    spares_deletes: bool = False

    def __post_init__(self) -> None:
        if self.delete_retention_ms < 0:
            raise SettingsError(f"delete_retention_ms {self.delete_retention_ms}: expected 0 or more")
        if not 0 < self.segment_bytes <= LARGEST_POSITION:
            raise SettingsError(f"segment_bytes {self.segment_bytes}: expected 1 to {LARGEST_POSITION}")

    @property
    def in_use(self) -> StrategyInUse:
        return strategy_in_use(self.strategy, self.header)

    @property
    def effective_strategy(self) -> Strategy:
        """The strategy that counts: a blank header name falls back to the offset."""
        return Strategy(self.in_use.strategy)

    @property
    def header_name(self) -> str:
        return header_name(self.header)

    @property
    def parameters(self) -> dict[str, str]:
        """What besides the strategy decided on the result, as commits hold it."""
        found = {"now_ms": str(self.now_ms), "delete_retention_ms": str(self.delete_retention_ms)}
        return {**found, "header": self.in_use.header} if self.in_use.header else found

    @property
    def converts_legacy(self) -> bool:
        """Whether messages of magic 0 and 1 leave as magic 2."""
        return self.kafka_4_3 or self.legacy_format is LegacyFormat.CONVERT

    @property
    def horizons_passed_ms(self) -> int:
        """Up to where delete horizons have passed."""
        return NO_HORIZON_MS if self.spares_deletes else self.now_ms

    @property
    def new_horizon_ms(self) -> int:
        """The delete horizon of what becomes deletable now, `NO_HORIZON_MS` for none.

        A clock at the end of time must not wrap it around.
        """
        if self.spares_deletes:
            return NO_HORIZON_MS
        return min(self.now_ms + self.delete_retention_ms, 2**63 - 1)


def version_of(record: Record, name: str) -> tuple[bool, int | None]:
    """Whether the record has such a header, and the version in the last one, None where that is malformed."""
    values = [value for header, value in record.headers if header == name]
    if not values:
        return False, None
    last = values[-1]
    valid = last is not None and len(last) == VERSION_BYTES
    return True, int.from_bytes(last, signed=True) if valid and last is not None else None


def malformed_version(offset: int, name: str, file: str = "") -> RecordRefused:
    """The error of strict mode."""
    what = (
        f"header {name!r} has no version (expected {VERSION_BYTES} bytes); correct the producer, or set strict: false"
    )
    return RecordRefused(what, file=file, offset=offset)


def unkeyed_record(offset: int, file: str = "") -> RecordRefused:
    """The error for a record without a key where those are refused."""
    what = "a record without a key, and on_unkeyed is refuse; nothing was compacted. Correct the producer, or set on_unkeyed: drop"
    return RecordRefused(what, file=file, offset=offset)
