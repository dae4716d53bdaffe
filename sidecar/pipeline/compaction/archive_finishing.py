"""The two objects of a compacted segment, as a task: parts joined, indexes built, both uploaded under a fresh id."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sidecar.archive.bundle import INDEXES_BYTES_MAX, assemble_indexes, log_part
from sidecar.archive.keys import below, fresh_id, indexes_key, log_key
from sidecar.compaction.rules import CompactionRules, Strategy
from sidecar.compaction.segments import SegmentInput, Split, chunks
from sidecar.engine_ports import TO_DRIVER, Row, StageEngine
from sidecar.errors import PartitionError, SidecarError, StoreError
from sidecar.logformat.leader_epochs import epochs_of
from sidecar.logformat.positional import PositionalFile
from sidecar.logformat.rebuild import BuiltIndexes, IndexBuilder
from sidecar.model import ArchivedSegment, LeaderEpoch, PartName
from sidecar.pipeline import process_store
from sidecar.pipeline.checked_upload import send, send_bytes
from sidecar.pipeline.compaction.archive_bundle import small_parts
from sidecar.pipeline.compaction.archived_log import LAST_MODIFIED, ArchivedLog
from sidecar.pipeline.compaction.job import CompactedOutput
from sidecar.pipeline.compaction.output_files import cannot_be_written, write_all
from sidecar.pipeline.compaction.parts import Parts
from sidecar.pipeline.compaction.tasks import on_engine
from sidecar.ports import ObjectStore
from sidecar.storage import FileSource


@dataclass(frozen=True, slots=True)
class FinishTask:
    """Make a segment of an output. `staging`: where its log is put together; None: the machine's temporary directory.

    `job` and `number` come back with the answer.
    """

    job: int
    number: int
    output: CompactedOutput[ArchivedLog]
    rules: CompactionRules
    parts: Parts
    staging: Path | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The segment, whose objects are in the store but in no commit; or the error for which there is none."""

    job: int
    number: int
    segment: ArchivedSegment | None
    error: SidecarError | None = None


def finish_all(tasks: Sequence[FinishTask], engine: StageEngine) -> tuple[Finished, ...]:
    """All answers, in any order. Raises what the engine raises."""
    return tuple(on_engine(finish, tasks, engine))


def finish(task: FinishTask) -> Iterator[Row]:
    """What an engine runs: `Finished` to the driver. Each attempt has an id of its own, so that no two get in each other's way."""
    try:
        yield TO_DRIVER, Finished(task.job, task.number, _finish(task))
    except SidecarError as error:
        yield TO_DRIVER, Finished(task.job, task.number, None, error)


def strategy_parameters(rules: CompactionRules) -> dict[str, str]:
    """What besides the strategy decided on the result, as commits hold it."""
    found = {"now_ms": str(rules.now_ms), "delete_retention_ms": str(rules.delete_retention_ms)}
    if rules.effective_strategy is Strategy.HEADER:
        found["header"] = rules.header_name
    return found


def discard(store: ObjectStore, root: str, segments: Sequence[ArchivedSegment]) -> None:
    """Take uploaded segments away that no commit names. What cannot be deleted now is left to the garbage collection."""
    with suppress(StoreError):
        store.delete([below(root, key) for segment in segments for key in (segment.log_key, segment.indexes_key)])


def _finish(task: FinishTask) -> ArchivedSegment:
    place = task.staging or Path(tempfile.gettempdir())
    with cannot_be_written(place):
        file = tempfile.TemporaryFile(dir=place, buffering=0)  # noqa: SIM115  closed below
    with file:
        size_bytes = _join(task, place, file)
        built = _indexes(task.output, file, size_bytes)
        segment_id = fresh_id(os.urandom)
        last = task.output.sources[-1]
        store, root = process_store.store_of(last.store), last.root
        old = small_parts(store, root, last.segment)
        indexes, parts = assemble_indexes(
            built.offset_index,
            built.time_index,
            # Of the log before compaction, both: what was compacted away still counts for them.
            old[PartName.PRODUCER_SNAPSHOT],
            old[PartName.LEADER_EPOCHS],
            built.transaction_index or None,
        )
        if len(indexes) > INDEXES_BYTES_MAX:
            raise PartitionError(
                f"{root}: indexes and snapshot of [{task.output.base_offset}, {task.output.end_offset}) would take {len(indexes)} "
                f"bytes, readers take {INDEXES_BYTES_MAX}; compact with a smaller segment_bytes"
            )
        log_at = log_key(task.output.base_offset, segment_id)
        indexes_at = indexes_key(task.output.base_offset, segment_id)
        try:
            checksum = send(store, below(root, log_at), FileSource(file.fileno(), size_bytes, below(root, log_at)))
            send_bytes(store, below(root, indexes_at), indexes)
        except SidecarError:
            with suppress(StoreError):
                store.delete([below(root, log_at), below(root, indexes_at)])
            raise
    sources = [source.segment for source in task.output.sources]
    return ArchivedSegment(
        segment_id=segment_id,
        base_offset=task.output.base_offset,
        end_offset=task.output.end_offset,
        log_key=log_at,
        indexes_key=indexes_at,
        parts=(log_part(size_bytes, checksum), *parts),
        leader_epochs=_epochs(sources),
        highest_batch_leader_epoch=built.leader_epochs.latest_epoch,
        max_timestamp_ms=built.max_timestamp_ms,
        batch_count=built.batch_count,
        snapshot=sources[-1].snapshot,
        generation=max(source.generation for source in sources) + 1,
        strategy=str(task.rules.effective_strategy),
        strategy_parameters={
            **strategy_parameters(task.rules),
            LAST_MODIFIED: str(max(source.last_modified_ms for source in task.output.sources)),
        },
        first_batch_crc=built.first_batch_crc,
        last_batch_crc=built.last_batch_crc,
        # Another broker's log is known by the batches that the log had, not by those that were made of them.
        compacted_from=next((raw for source in reversed(sources) if (raw := source.raw_batches)), None),
    )


def _join(task: FinishTask, place: Path, file: IO[bytes]) -> int:
    size_bytes = 0
    for number in task.output.parts:
        for piece in task.parts.pieces(number):
            with cannot_be_written(place):
                write_all(file, piece)
            size_bytes += len(piece)
    return size_bytes


def _indexes(output: CompactedOutput[ArchivedLog], file: IO[bytes], size_bytes: int) -> BuiltIndexes:
    """Read back what was written, every checksum, and build its indexes."""
    builder = IndexBuilder(output.base_offset)
    written = SegmentInput(
        output.base_offset,
        output.end_offset,
        size_bytes,
        PositionalFile(file.fileno()),
        file=f"compacted segment at {output.base_offset}",
    )
    for chunk in chunks(written, Split(0, 0, 0, size_bytes)):
        builder.add(chunk.columns())
    return builder.finish(output.transactions)


def _epochs(sources: Sequence[ArchivedSegment]) -> tuple[LeaderEpoch, ...]:
    """The segments' own maps joined: an epoch that goes on over a border begins once."""
    return epochs_of((entry.epoch, entry.start_offset) for source in sources for entry in source.leader_epochs).entries
