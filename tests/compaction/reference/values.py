"""What a round takes and gives, and the best records of its keys."""

from __future__ import annotations

from dataclasses import dataclass, field

from producer_state.replay import CompletedTransaction
from sidecar.compaction.rules import CompactionRules
from sidecar.logformat.bodies.record import Record
from tests.compaction.reference.ranks import SortKey, sort_key


@dataclass(frozen=True, slots=True)
class ReferenceSegment:
    """The batches `[base_offset, end_offset)`; `end_offset` is the base of the next segment."""

    base_offset: int
    end_offset: int
    log: bytes
    last_modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """One output segment, made of `sources`; `transactions` are the aborted ones whose marker it still holds."""

    sources: tuple[ReferenceSegment, ...]
    log: bytes
    transactions: tuple[CompletedTransaction, ...]

    @property
    def segment(self) -> ReferenceSegment:
        """The output as input of a next round; its time is that of the last source."""
        first, last = self.sources[0], self.sources[-1]
        return ReferenceSegment(first.base_offset, last.end_offset, self.log, last.last_modified_ms)


@dataclass(frozen=True, slots=True)
class CleanedRange:
    """`end_offset`: where the next round's dirty part begins."""

    groups: tuple[CleanedGroup, ...]
    end_offset: int
    unkeyed_records: int


@dataclass(slots=True)
class Winners:
    """The best sort key per key of the offsets `[first dirty, latest_offset]`, raised by better ones below."""

    rules: CompactionRules
    latest_offset: int
    max_keys: int | None = None
    best: dict[bytes, SortKey] = field(default_factory=dict)

    def put(self, record: Record, key: bytes) -> None:
        rank = sort_key(record, self.rules)
        self.best[key] = max(rank, self.best.get(key, rank))

    def raised_by(self, record: Record, key: bytes) -> None:
        if key in self.best:
            self.put(record, key)

    def keep(self, record: Record, key: bytes) -> bool:
        return key not in self.best or sort_key(record, self.rules) >= self.best[key]
