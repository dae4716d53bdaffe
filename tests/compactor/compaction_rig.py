"""A worker over made-up partitions, whose jobs end as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from sidecar.compactor.candidate_queue import Candidate, LedPartition
from sidecar.compactor.policy import Assessment, Trigger
from sidecar.compactor.topic_counts import InvalidRecords
from sidecar.compactor.worker import CompactionWorker
from sidecar.config import CompactionPolicy, CompactionSettings
from sidecar.errors import SidecarError
from sidecar.metrics import Metrics
from sidecar.model import ObjectKey, TopicPartition
from tests.fakes.manual_clock import ManualClock

NOW_MS = 1_700_000_000_000


def led(name: str, *, end_offset: int = 100, leader_epoch: int = 3, partition: int = 0) -> LedPartition:
    return LedPartition(
        TopicPartition(name, partition), ObjectKey(f"cluster/{name}/{partition}/0"), leader_epoch, end_offset
    )


def ended(
    one: Candidate,
    error: SidecarError | None,
    bytes_before: int = 0,
    bytes_after: int = 0,
    records_before: int = 0,
    records_after: int = 0,
    unkeyed: int = 0,
    new_malformed_versions: int = 0,
) -> Any:
    """What the worker reads of a `PartitionCompaction`."""
    return SimpleNamespace(
        request=SimpleNamespace(root=one.led.root),
        error=error,
        bytes_before=bytes_before,
        bytes_after=bytes_after,
        records_before=records_before,
        records_after=records_after,
        unkeyed=unkeyed,
        new_malformed_versions=new_malformed_versions,
    )


class Rig:
    """A worker over an archive that is nothing but a dirty size by topic."""

    def __init__(self, dirty: dict[str, int], **settings: Any) -> None:
        self.dirty = dirty
        self.clean = dict.fromkeys(dirty, 100)
        self.clean_end = dict.fromkeys(dirty, 0)
        self.looks: list[str] = []
        self.jobs: list[list[str]] = []
        self.odd: dict[str, tuple[int, int]] = {}
        """By topic: records without a key, and malformed versions that are new."""
        self.ends: dict[str, Exception] = {}
        """By topic: what a partition's own result is."""
        self.job_ends: Callable[[list[str]], Exception | None] = lambda _topics: None
        self.clock = ManualClock(NOW_MS)
        self.metrics = Metrics(self.clock)
        self.stop = threading.Event()
        given = CompactionSettings.model_validate({"topics": [".*"], **settings})
        self.status: Mapping[str, Any] = {}
        self.worker = CompactionWorker(
            given,
            self.look,
            self.compact,
            self.clock,
            self.metrics,
            self.stop.is_set,
            self.tell,
            given.of_topic,
            InvalidRecords(count=self.metrics.compaction.invalid_records),
        )

    def tell(self, status: Mapping[str, Any]) -> None:
        self.status = status

    def look(self, partition: LedPartition, _policy: CompactionPolicy) -> Assessment:
        topic = partition.topic_partition.topic
        self.looks.append(topic)
        dirty, clean = self.dirty[topic], self.clean[topic]
        trigger = Trigger.DIRTY_RATIO if dirty > clean else None
        return Assessment(self.clean_end[topic], partition.end_offset, clean, dirty, trigger, None)

    def compact(self, work: Sequence[Candidate]) -> Iterable[Any]:
        topics = [compacting.led.topic_partition.topic for compacting in work]
        self.jobs.append(topics)
        if (error := self.job_ends(topics)) is not None:
            raise error
        for compacting in work:
            name = compacting.led.topic_partition
            error = self.ends.get(name.topic)
            if isinstance(error, SidecarError):
                yield ended(compacting, error)
                continue
            before = self.dirty[name.topic] + self.clean[name.topic]
            self.dirty[name.topic], self.clean_end[name.topic] = 0, compacting.led.end_offset
            yield ended(compacting, None, before, 100, 20, 10, *self.odd.get(name.topic, ()))

    def offer(self, *partitions: LedPartition) -> None:
        self.worker.offer(partitions or [led(topic) for topic in self.dirty])

    def row(self, topic: str) -> dict[str, Any]:
        return next(row for row in self.status["partitions"] if row["topic"] == topic)

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"tiered_sidecar_compaction_{name}", labels) or 0.0


def turns(rig: Rig) -> int:
    """Until there is nothing left to do at once."""
    count = 1
    while rig.worker.cycle():
        count += 1
        assert count < 100
    return count
