"""The stages that ship over reference segments in memory, and what they give held against the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.segments import SPLIT_BYTES, SegmentInput
from sidecar.engine_ports import StagedRun, Stages
from sidecar.logformat.batches import SegmentScanner
from sidecar.logformat.window import ReadAt
from sidecar.rewriting.job import CompactedOutput, CompactionJob, Cutter, Piece, input_of
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.run import required, rewritten, scanned
from sidecar.rewriting.segment_files import checked_log, joined
from sidecar.rewriting.stages import JobShare
from sidecar.rewriting.work_files import LocalParts
from tests.compaction.partitions import Partition
from tests.compaction.reference.cleaning import clean
from tests.compaction.reference.values import ReferenceSegment

DAY_MS = 86_400_000


HASH_KEY = bytes(range(16))


def reader(log: bytes) -> ReadAt:
    data = memoryview(log)

    def read_at(position: int, buffer: memoryview) -> int:
        piece = data[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    return read_at


@dataclass(frozen=True, slots=True)
class Source:
    """A `CompactionSource` in memory. `held`: the bytes that are read, where they are not the listed ones."""

    segment: ReferenceSegment
    held: bytes | None = None
    forgets_below: ClassVar = False

    @property
    def name(self) -> str:
        return f"{self.segment.base_offset:020d}.log"

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @property
    def end_offset(self) -> int:
        return self.segment.end_offset

    @property
    def size_bytes(self) -> int:
        return len(self.segment.log)

    @property
    def last_modified_ms(self) -> int:
        return self.segment.last_modified_ms

    @contextmanager
    def opened(self) -> Iterator[SegmentInput]:
        yield input_of(self, reader(self.segment.log if self.held is None else self.held))


def as_input(segment: ReferenceSegment) -> SegmentInput:
    return input_of(Source(segment), reader(segment.log))


def pieces_of(segment: ReferenceSegment, split_bytes: int) -> tuple[Piece, ...]:
    """As a survey finds them: by the headers alone."""
    source = Source(segment)
    scanner = SegmentScanner(
        reader(segment.log), source.size_bytes, base_offset=source.base_offset, file=source.name, check_crc=False
    )
    cutter = Cutter(split_bytes)
    for columns in scanner:
        cutter.add(columns)
    scanner.require_exact()
    return cutter.finish()


class LargeJobStages(LocalEngine):
    """Treats a small job as a large one: a key table has `slots` slots; if `apart`, each split is a task's share of its own."""

    def __init__(self, slots: int | None, *, apart: bool, threads: int = 1, in_memory_bytes: int = 1 << 26) -> None:
        super().__init__(threads, in_memory_bytes=in_memory_bytes)
        self._slots, self._apart = slots, apart

    def staged(self, stages: Stages, tasks: Sequence[Any]) -> AbstractContextManager[StagedRun]:
        return super().staged(stages, [tuple(self._shares(task)) for task in tasks])

    def _shares(self, task: Sequence[JobShare]) -> Iterator[JobShare]:
        for share in task:
            small = replace(share, slots=self._slots or share.slots)
            if self._apart:
                yield from (replace(small, is_whole=False, splits=(split,)) for split in share.splits)
            else:
                yield small


def job_of(
    segments: Sequence[ReferenceSegment],
    rules: CompactionRules,
    partition: Partition | None = None,
    *,
    last_batches: LastBatches | None = None,
    split_bytes: int = SPLIT_BYTES,
    start_offset: int = 0,
    first_dirty_offset: int | None = None,
) -> CompactionJob[Source]:
    return CompactionJob(
        tuple(map(Source, segments)),
        tuple(pieces_of(segment, split_bytes) for segment in segments),
        () if partition is None else partition.completed,
        rules,
        last_batches or LastBatches(),
        HASH_KEY,
        start_offset,
        first_dirty_offset,
    )


def compact(
    segments: Sequence[ReferenceSegment],
    rules: CompactionRules,
    partition: Partition | None = None,
    *,
    slots: int | None = None,
    apart: bool = False,
    threads: int = 1,
    in_memory_bytes: int = 1 << 26,
    **options: Any,
) -> tuple[list[CompactedOutput[Source]], list[bytes]]:
    """The outputs and their logs, each checked as before a commit. `options`: as of `job_of`."""
    job = job_of(segments, rules, partition, **options)
    stages = LargeJobStages(slots, apart=apart, threads=threads, in_memory_bytes=in_memory_bytes)
    with TemporaryDirectory() as place, scanned([job], stages) as run:
        parts = LocalParts(Path(place))
        outputs = required(rewritten(run, parts)[0])
        logs = [b"".join(map(bytes, joined(output, parts))) for output in outputs]
    for output, log in zip(outputs, logs, strict=True):
        checked_log(reader(log), len(log), output, f"output at {output.base_offset}")
        if output.unchanged:
            assert log == output.sources[0].segment.log
    return list(outputs), logs


def compare(
    partition: Partition, rules: CompactionRules, *, active: bool = True, **options: Any
) -> list[ReferenceSegment]:
    """Compact the rolled segments by both and compare; returns the outputs. `active`: the last segment is left out."""
    rolled = partition.segments[:-1] if active else partition.segments
    if not rolled:
        return []
    producers = partition.last_batches(rules.now_ms)
    results, logs = compact(rolled, rules, partition, last_batches=producers, **options)
    expected = clean(
        rolled,
        rules,
        groups=[len(result.sources) for result in results],
        last_batches=producers,
        aborted=partition.aborted,
    )
    for group, result, log in zip(expected.groups, results, logs, strict=True):
        assert log == group.log, (result, [len(log), len(group.log)])
        assert result.transactions == group.transactions
        assert result.size_bytes == len(log)
    return [group.segment for group in expected.groups]
