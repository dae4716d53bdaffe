"""What must be read of a partition to know its producers at given offsets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

from producer_state.snapshot import HEADER, CorruptSnapshot
from producer_state.table import ProducerTable
from sidecar.errors import PartitionError, SegmentChanged
from sidecar.logformat.names import Suffix, file_name
from sidecar.model import PartitionFiles
from sidecar.pipeline.snapshots.folding import PartitionJob
from sidecar.pipeline.snapshots.tasks import LocalSegment, SegmentTask

EMPTY_SNAPSHOT_BYTES = HEADER.size_bytes


def snapshot_path(files: PartitionFiles, offset: int) -> Path:
    """Where the snapshot at an offset is or would be."""
    return files.directory / file_name(offset, Suffix.SNAPSHOT)


def log_start(files: PartitionFiles) -> int:
    """Base of the first segment. Raises PartitionError where there is none."""
    start = files.segments[0].base_offset if files.segments else files.active_base_offset
    if start is None:
        raise PartitionError(f"{files.topic_partition}: no segments in {files.directory}")
    return start


def segment_bases(files: PartitionFiles) -> tuple[int, ...]:
    """The bases of all segments above the first: where tiering asks for a snapshot."""
    return tuple(segment.end_offset for segment in files.segments)


def plan_job(files: PartitionFiles, boundaries: Collection[int], *, builds_on: Collection[int] = ()) -> PartitionJob:
    """The job that gives the states at these offsets, each above the log's start.

    Args:
        builds_on: offsets of snapshots from which the replay may begin. The one at the log's start is taken in any case:
            producers whose batches are gone stand nowhere else.

    Raises SegmentChanged if segments vanished while they were listed, PartitionError if a snapshot cannot be read.
    """
    first = log_start(files)
    lowest, highest = min(boundaries, default=first), max(boundaries, default=first)
    bases = {first, *segment_bases(files)}
    start = ProducerTable.blank(first)
    for offset in sorted(bases & {first, *builds_on}, reverse=True):
        found = _state_to_build_on(files, offset) if offset <= lowest else None
        if found is not None:
            start = found
            break
    tasks = _tasks(files, start.end_offset, highest, sorted(boundaries))
    return PartitionJob(files, start, tasks, frozenset(boundaries))


def _state_to_build_on(files: PartitionFiles, offset: int) -> ProducerTable | None:
    """What a snapshot says, None where it says nothing that replay from below would not find.

    An empty one is never taken: it is what a broker writes that finds none, and where it is true nothing is lost.
    """
    if offset == 0 or offset not in files.snapshot_offsets:
        return None
    path = snapshot_path(files, offset)
    try:
        table = ProducerTable.from_snapshot(offset, path.read_bytes())
    except (CorruptSnapshot, FileNotFoundError):
        return None
    except OSError as error:
        raise PartitionError(f"{path}: cannot be read: {error.strerror}") from error
    return table if len(table) else None


def _tasks(files: PartitionFiles, start_offset: int, last: int, cuts: Sequence[int]) -> tuple[SegmentTask, ...]:
    tasks = [
        SegmentTask(
            LocalSegment(str(segment.log.path), segment.log.size_bytes),
            segment.base_offset,
            segment.end_offset,
            tuple(cut for cut in cuts if segment.base_offset < cut < segment.end_offset),
        )
        for segment in files.segments
        if start_offset <= segment.base_offset < last
    ]
    active = files.active_base_offset
    if active is not None and active < last:
        path = files.directory / file_name(active, Suffix.LOG)
        try:
            source = LocalSegment(str(path), path.stat().st_size, growing=True)
        except FileNotFoundError as error:
            raise SegmentChanged(f"{path}: vanished while the directory was listed; look again") from error
        tasks.append(SegmentTask(source, active, None, tuple(cut for cut in cuts if cut > active)))
    for before, after in pairwise(tasks):
        if before.end_offset != after.base_offset:
            raise SegmentChanged(f"{files.directory}: the segment at {before.end_offset} vanished while it was listed")
    return tuple(tasks)
