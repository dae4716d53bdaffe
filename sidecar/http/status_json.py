"""The status model as JSON for `/status`: for scripts, with stable names."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sidecar.http.page.ranges import ranges_of
from sidecar.http.page.rows import state_of
from sidecar.reporting.figures import PartitionFigures, StatusFigures, Upload
from sidecar.reporting.status_model import StatusModel


def status_json(model: StatusModel) -> dict[str, Any]:
    """Partitions, uploads, errors and snapshots, as of now. Offsets `end_*` are exclusive."""
    figures: StatusFigures = model.figures()
    return {
        "archive": figures.archive,
        "instance": figures.instance,
        "began_ms": figures.began_ms,
        "partitions": [_partition(found) for found in figures.partitions],
        "uploads": [_upload(upload) for upload in figures.uploads],
        "errors": [asdict(error) for error in figures.errors],
        "snapshots": dict(figures.snapshots),
    }


def _partition(figures: PartitionFigures) -> dict[str, Any]:
    status, extent = figures.status, figures.extent
    return {
        "topic": status.topic_partition.topic,
        "partition": status.topic_partition.partition,
        "state": state_of(figures),
        "archived_start_offset": extent.start_offset,
        "archived_end_offset": status.archived_end_offset,
        "archived_segments": extent.segments,
        "archived_bytes": extent.size_bytes,
        "segments_archived": figures.segments_archived,
        "segments_waiting": status.pending_segments,
        "bytes_waiting": status.pending_bytes,
        "held_deleted_bytes": status.held_deleted_bytes,
        "oldest_waiting_ms": status.oldest_pending_ms,
        "deadline_ms": status.deadline_ms,
        "active_deadline_ms": status.active_deadline_ms,
        "retention_known": status.is_retention_known,
        "ranges": [asdict(found) for found in ranges_of(figures)],
        "reason": figures.reason,
        "error": status.error,
    }


def _upload(upload: Upload) -> dict[str, Any]:
    partition = upload.topic_partition
    fields = {name: value for name, value in asdict(upload).items() if name != "topic_partition"}
    return {"topic": partition.topic, "partition": partition.partition, **fields}
