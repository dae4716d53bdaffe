"""The board as `/status` tells it: for scripts, with stable names."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sidecar.http.board import Board
from sidecar.http.figures import BoardFigures, PartitionFigures, Upload
from sidecar.http.page.ranges import ranges_of
from sidecar.http.page.rows import state_of


def board_json(board: Board) -> dict[str, Any]:
    """Partitions, uploads, errors and snapshots, as of now. Offsets `end_*` are exclusive."""
    figures: BoardFigures = board.figures()
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
    look, extent = figures.look, figures.extent
    return {
        "topic": look.topic_partition.topic,
        "partition": look.topic_partition.partition,
        "state": state_of(figures),
        "archived_start_offset": extent.start_offset,
        "archived_end_offset": look.archived_end_offset,
        "archived_segments": extent.segments,
        "archived_bytes": extent.size_bytes,
        "segments_archived": figures.segments_archived,
        "segments_waiting": look.pending_segments,
        "bytes_waiting": look.pending_bytes,
        "held_deleted_bytes": look.held_deleted_bytes,
        "oldest_waiting_ms": look.oldest_pending_ms,
        "deadline_ms": look.deadline_ms,
        "active_deadline_ms": look.active_deadline_ms,
        "retention_known": look.is_retention_known,
        "ranges": [asdict(found) for found in ranges_of(figures)],
        "reason": look.reason,
        "error": look.error,
    }


def _upload(upload: Upload) -> dict[str, Any]:
    partition = upload.topic_partition
    fields = {name: value for name, value in asdict(upload).items() if name != "topic_partition"}
    return {"topic": partition.topic, "partition": partition.partition, **fields}
