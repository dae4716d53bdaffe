"""Numbers that shape the work: how much at once, how long, and what is waited for."""

import math
from dataclasses import dataclass, field
from typing import Protocol

from sidecar.partition.plan import Settling
from sidecar.topic_policy import TopicPolicy


@dataclass(frozen=True, slots=True)
class RunLimits:
    """`uploads_ahead`: segments of one partition that may be in flight at once; commits stay in order.
    `producer_id_expiration_ms`: the brokers' `producer.id.expiration.ms`, None for never; what the broker itself says counts
    instead, unless `expiration_is_given`. See `expiration_ms`.
    `index_interval_bytes`: the topics' `index.interval.bytes`, for indexes that must be rebuilt.
    `max_queue`: segments that wait for upload at once, over all partitions; it does not limit the pins. `task_s`: when this has
    passed, a task begins no further segments, so that others get their turn. `retry_wait_s`: how long a partition backs off after
    an error.
    `spares_cache`: give back what only we brought into the page cache. `readers_per_disk`, `pause_above_percent`: of `DiskReaders`.
    `record_lost`: continue above a gap and record it, instead of stopping the partition.
    """

    workers: int = 2
    uploads_ahead: int = 2
    settling: Settling = field(default_factory=lambda: Settling(settle_ms=5_000, snapshot_grace_ms=5_000))
    producer_id_expiration_ms: int | None = 604_800_000
    expiration_is_given: bool = False
    index_interval_bytes: int = 4096
    record_lost: bool = False
    max_queue: int = 1_000_000
    task_s: float = math.inf
    retry_wait_s: float = 0.0
    spares_cache: bool = True
    readers_per_disk: int = 1
    pause_above_percent: float | None = None

    def expiration_ms(self, reported: TopicPolicy) -> int | None:
        """How long a topic's producers are remembered, None for ever: `topics.policies`, else the settings, else the broker."""
        reported_ms = reported.producer_id_expiration_ms
        is_override = "producer_id_expiration_ms" in reported.overridden
        if reported_ms is None or (self.expiration_is_given and not is_override):
            return self.producer_id_expiration_ms
        return reported_ms


class HasLimits(Protocol):
    @property
    def policy(self) -> RunLimits: ...
