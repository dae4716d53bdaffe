"""The first look at archived segments, as tasks: where splits may begin, and which transactions end.

Each segment is replayed from the archived state at its base, so that no task waits for another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from producer_state.replay import CompletedTransaction, replay
from producer_state.table import ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.compaction.segments import SPLIT_BYTES
from sidecar.compactor.archive.archived_log import ArchivedLog, reader
from sidecar.compactor.archive.bundle import table_at_end
from sidecar.engine_ports import TO_DRIVER, Row, StageEngine
from sidecar.errors import CorruptFile, PartitionError, SidecarError
from sidecar.host import process_store
from sidecar.logformat.batches import SegmentScanner
from sidecar.model import ArchivedSegment
from sidecar.rewriting.engines import on_engine
from sidecar.rewriting.job import Cutter, Piece

_GROUP_BYTES: Final = 64 * 1024 * 1024
_GROUP_SEGMENTS: Final = 64
_WINDOW_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LookTask:
    """Look at a segment. `before`: the segment that ends at its base, None where nothing is known there.

    `job` and `number` come back with the answer.
    """

    job: int
    number: int
    log: ArchivedLog
    before: ArchivedSegment | None
    split_bytes: int = SPLIT_BYTES


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen, or the error that ended it."""

    job: int
    number: int
    pieces: tuple[Piece, ...]
    completed: tuple[CompletedTransaction, ...]
    error: SidecarError | None = None


def look_at(tasks: Iterable[LookTask], engine: StageEngine) -> tuple[Looked, ...]:
    """All answers, in any order. Raises what the engine raises."""
    return tuple(on_engine(look, list(_grouped(tasks)), engine))


def look(group: Sequence[LookTask]) -> Iterator[Row]:
    """What an engine runs: `Looked`s to the driver."""
    for task in group:
        try:
            yield TO_DRIVER, _look(task)
        except SidecarError as error:
            yield TO_DRIVER, Looked(task.job, task.number, (), (), error)


def _grouped(tasks: Iterable[LookTask]) -> Iterator[tuple[LookTask, ...]]:
    """Small segments share a task."""
    group: list[LookTask] = []
    size_bytes = 0
    for task in tasks:
        if group and (size_bytes + task.log.size_bytes > _GROUP_BYTES or len(group) == _GROUP_SEGMENTS):
            yield tuple(group)
            group, size_bytes = [], 0
        group.append(task)
        size_bytes += task.log.size_bytes
    if group:
        yield tuple(group)


def _look(task: LookTask) -> Looked:
    log = task.log
    store = process_store.store_of(log.store)
    table = ProducerTable.blank(log.base_offset)
    if task.before is not None:
        table = table_at_end(store, log.root, task.before)
    # The stages check checksums of all that they read.
    scanner = SegmentScanner(
        reader(store, log.key, log.size_bytes),
        log.size_bytes,
        base_offset=log.base_offset,
        check_crc=False,
        file=log.key,
        window_bytes=_WINDOW_BYTES,
    )
    cutter = Cutter(task.split_bytes)
    completed: list[CompletedTransaction] = []
    last_offset = -1
    for columns in scanner:
        try:
            table, ended = replay(table, columns.facts())
        except ProducerStateError as error:
            raise PartitionError(f"{log.key}: {error}; verify --deep tells whether the object is damaged") from error
        completed += ended
        cutter.add(columns)
        last_offset = int(columns.last_offset[-1])
    scanner.require_exact()
    if last_offset >= log.end_offset:
        raise CorruptFile(f"holds offset {last_offset}, but the segment ends at {log.end_offset}", file=log.key)
    return Looked(task.job, task.number, cutter.finish(), tuple(completed))
