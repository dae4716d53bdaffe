"""Imported by the process from which Spark forks its workers: each kernel is loaded once, not once per worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from producer_state.replay import CompletedTransaction
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.segments import SegmentInput
from sidecar.compaction_strategy import Strategy
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.legacy import build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.headers import Codec
from sidecar.rewriting.job import CompactionJob, Cutter, input_of
from sidecar.rewriting.local_stages import LocalStages
from sidecar.rewriting.run import required, rewritten, scanned

__all__ = ["warm_up"]


@dataclass(frozen=True, slots=True)
class _Sample:
    """A source in memory."""

    log: bytes
    end_offset: int
    name: str = "sample"
    base_offset: int = 0
    last_modified_ms: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.log)

    @contextmanager
    def opened(self) -> Iterator[SegmentInput]:
        yield input_of(self, self._read_at)

    def _read_at(self, position: int, buffer: memoryview) -> int:
        piece = self.log[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


def _sample() -> tuple[_Sample, CompletedTransaction]:
    """A batch of each kind that has kernels of its own; and the aborted transaction among them."""

    def records(base_offset: int) -> list[Record]:
        return [Record(base_offset + at, 0, key, b"") for at, key in enumerate((b"k", b"%d" % base_offset))]

    # Each of these batches loses a record to the next one; the wrapper loses its only one.
    batches = [build_legacy_wrapper(records(0)[:1], codec=Codec.GZIP)]
    batches += [build_batch(records(2 * at), codec=codec) for at, codec in enumerate(reversed(Codec), start=1)]
    first = 2 * len(batches)
    batches += [
        build_batch(records(first), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        build_marker(first + 2, commit=False, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0),
    ]
    return _Sample(b"".join(batches), first + 3), CompletedTransaction(1, first, first + 2, first + 2, aborted=True)


def warm_up() -> None:
    """Call every kernel of a compaction once."""
    source, aborted = _sample()
    cutter = Cutter(source.size_bytes)
    for columns in scan_bytes(source.log):
        cutter.add(columns)
    pieces = (cutter.finish(),)
    for strategy in Strategy:
        rules = CompactionRules(0, strategy=strategy, header="v")
        job = CompactionJob((source,), pieces, (aborted,), rules, LastBatches(), bytes(16))
        with scanned([job], LocalStages()) as run:
            required(rewritten(run, None)[0])


warm_up()
