"""What `/status` shows of the partitions that `run` may compact."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sidecar.model import TopicPartition
from sidecar.pipeline.compaction.quarantine import Quarantine, Quarantined
from sidecar.pipeline.compaction.waiting_list import Waiting, WaitingList


def status_rows(
    waiting: WaitingList, quarantine: Quarantine, running: Collection[TopicPartition]
) -> list[dict[str, Any]]:
    """One row for each partition, ascending. `running`: those that are being compacted now."""
    return [
        _row(name, waiting.of(name), quarantine.of(name), running=name in running)
        for name in sorted(waiting.partitions())
    ]


def _row(name: TopicPartition, entry: Waiting | None, held: Quarantined | None, *, running: bool) -> dict[str, Any]:
    assessment = entry.assessment if entry is not None else None
    row: dict[str, Any] = {"topic": name.topic, "partition": name.partition, "running": running}
    if entry is not None and assessment is not None:
        row |= {
            "clean_end_offset": assessment.first_dirty_offset,
            "cleanable_bytes": assessment.cleanable_bytes,
            "dirty_ratio": round(assessment.dirty_ratio, 4),
            "due": assessment.trigger,
            "due_since_ms": entry.due_since_ms,
        }
    if entry is not None and entry.led.waits_because:
        row["waiting"] = entry.led.waits_because
    if held is not None:
        row["quarantined"] = {
            "error": held.error,
            "reason": held.reason,
            "failures": held.failures,
            "failed_at_ms": held.failed_at_ms,
        }
    return row
