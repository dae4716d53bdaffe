"""Segments read by the tasks of an engine instead of by this process: the same function on the same bytes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass

from producer_state.table import ProducerTable
from sidecar.engine_ports import TaskEngine
from sidecar.errors import PartitionError, SidecarError
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import SegmentFiles
from sidecar.segment.reading import SegmentReading, read_segment


@dataclass(frozen=True, slots=True)
class ReadingTask:
    """`read_segment` as a value. `open_file`: the path of an open descriptor, since the broker may have deleted the file."""

    segment: SegmentFiles
    open_file: str
    state_at_base: ProducerTable
    checkpoint: LeaderEpochs | None
    log_start_offset: int
    index_interval_bytes: int


@dataclass(frozen=True, slots=True)
class ReadingOnEngine:
    """A `ReadSegment`. The engine's tasks must run on this machine, as this user."""

    engine: TaskEngine

    def __call__(
        self,
        segment: SegmentFiles,
        descriptor: int,
        state_at_base: ProducerTable,
        checkpoint: LeaderEpochs | None,
        *,
        log_start_offset: int,
        index_interval_bytes: int,
        taken: Callable[[int], None] = lambda _bytes: None,
    ) -> SegmentReading:
        """See `read_segment`. Raises what the engine raises, too.

        `taken` cannot go to the task, so it is told of the whole segment before: a limit holds on average, not window by window.
        """
        taken(segment.size_bytes)
        open_file = f"/proc/{os.getpid()}/fd/{descriptor}"
        task = ReadingTask(segment, open_file, state_at_base, checkpoint, log_start_offset, index_interval_bytes)
        try:
            answer = self._run(task)
        except SidecarError:
            # A reload of the compaction's settings ends the JVM that both share; the next task starts another.
            answer = self._run(task)
        found = pickle.loads(answer)  # noqa: S301 - from our own task
        if isinstance(found, SidecarError):
            raise found
        if not isinstance(found, SegmentReading):
            raise TypeError(f"a task answered with {type(found).__name__}")
        return found

    def _run(self, task: ReadingTask) -> bytes:
        (answer,) = self.engine.run(read_on_engine, [task])
        return answer


def read_on_engine(task: ReadingTask) -> bytes:
    """The pickled reading, or the error that belongs to the segment: what a task raises would end the run."""
    answer: SegmentReading | SidecarError
    try:
        descriptor = _opened(task)
        try:
            answer = read_segment(
                task.segment,
                descriptor,
                task.state_at_base,
                task.checkpoint,
                log_start_offset=task.log_start_offset,
                index_interval_bytes=task.index_interval_bytes,
            )
        finally:
            os.close(descriptor)
    except SidecarError as error:
        answer = error
    return pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)


def _opened(task: ReadingTask) -> int:
    try:
        return os.open(task.open_file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PartitionError(
            f"{task.segment.log_name}: a worker of Spark cannot open it: {error.strerror}; set spark.engine: local"
        ) from error
