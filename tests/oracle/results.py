"""What the oracle is asked and what it answers, as values. Names and "none" values are Kafka's (-1 where Kafka has -1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Boundary:
    """The producer state written at one offset. `first_unstable_offset` is None when no transaction is open there."""

    offset: int
    producer_count: int
    first_unstable_offset: int | None

    @property
    def last_stable_offset(self) -> int:
        """The LSO of a log that ends here."""
        return self.offset if self.first_unstable_offset is None else self.first_unstable_offset


@dataclass(frozen=True, slots=True)
class Replay:
    """Boundaries in ascending order. `stopped` says why the replay ended early (corrupt batch, InvalidTxnState), else None.

    `stopped_at_offset` is the offset up to which the state was complete.
    """

    boundaries: tuple[Boundary, ...]
    stopped: str | None
    stopped_at_offset: int | None


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """A segment after LogSegment.recover; `truncated_bytes` were cut from its end."""

    base_offset: int
    size_bytes: int
    truncated_bytes: int


@dataclass(frozen=True, slots=True)
class CleanRound:
    """One round to run. `first_uncleanable_offset` None: the offset that LogCleanerManager computes; it may only be lowered."""

    now_ms: int
    first_uncleanable_offset: int | None = None


@dataclass(frozen=True, slots=True)
class CleanedRound:
    """One round as it went. `cleaned` False: there was nothing to clean, the counts are 0.

    `first_uncleanable_offset` is rounded down to a segment base, as Kafka does. `end_offset` becomes the next first dirty offset.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    cleaned: bool
    end_offset: int
    bytes_read: int
    bytes_written: int
    messages_read: int
    messages_written: int
    invalid_messages: int
    map_messages_read: int


@dataclass(frozen=True, slots=True)
class CleanedLog:
    """The offsets of the log as it was loaded, and its rounds."""

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    active_base_offset: int
    rounds: tuple[CleanedRound, ...]


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One batch as FileLogInputStream reads it; all fields of a v0/v1 message that it has not are -1."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    magic: int
    codec: int
    timestamp_type: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int
    partition_leader_epoch: int
    is_valid: bool
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    record_count: int


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One record as its batch's iterator gives it; `batch_position` is its batch's byte position."""

    batch_position: int
    offset: int
    timestamp_ms: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
