"""Stage three: the batches of a split, each dropped, copied, rebuilt or emptied, go to a sink in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field, replace
from operator import add, sub

import crc32c
import numpy as np
import numpy.typing as npt

from producer_state.facts import Int64Column
from sidecar.compaction import library as kernels
from sidecar.compaction import rewrite_places as places
from sidecar.compaction.inflating import Body, Inflater
from sidecar.compaction.key_table import Blob
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.legacy import LegacyBatch
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.scan import SplitScan
from sidecar.compaction.segments import Chunk, SegmentInput, chunks
from sidecar.errors import CorruptFile, RowsLost, SegmentChanged
from sidecar.logformat.headers import BATCH_HEADER, CODEC_MASK, CRC_FROM, CURRENT_MAGIC


@dataclass(frozen=True, slots=True)
class RewriteCounts:
    """Batches copied as they were, rebuilt with fewer records, kept without records, and dropped; and the records kept."""

    verbatim: int = 0
    rebuilt: int = 0
    emptied: int = 0
    dropped: int = 0
    kept_records: int = 0

    def __add__(self, other: RewriteCounts) -> RewriteCounts:
        return RewriteCounts(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: RewriteCounts) -> RewriteCounts:
        return RewriteCounts(*map(sub, astuple(self), astuple(other)))

    @property
    def written_batches(self) -> int:
        return self.verbatim + self.rebuilt + self.emptied

    @property
    def identical(self) -> bool:
        """Whether every batch was copied as it was."""
        return not (self.rebuilt or self.emptied or self.dropped)


Sink = Callable[[memoryview], None]
"""Takes whole batches in log order; the bytes are void after the call."""

OUTPUT_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Ending:
    """Which batches of a split stay even without records.

    `ends_segment`: the split holds the last batch of its segment. If that batch loses all records, its ending is written
    separately: an output needs it only if the segment is the output's last one. `kept_next_offset`: a batch that ends there
    stays (-1: none), which is Kafka's rule for one cleaning.
    """

    ends_segment: bool = False
    kept_next_offset: int = -1


@dataclass(frozen=True, slots=True)
class RewrittenSplit:
    """What a sink got of a split: `size_bytes` of batches, then the ending, if any.

    The ending keeps the end of the segment's last batch, whose records all lost: an empty batch.
    An output that ends with this split has it, and `ending_counts` are added to `counts`. Any other output leaves it out.
    `crc32c` and `ending_crc32c`: of these bytes, as the sink got them.
    """

    counts: RewriteCounts
    size_bytes: int = 0
    crc32c: int = 0
    ending_bytes: int = 0
    ending_crc32c: int = 0
    ending_counts: RewriteCounts = field(default_factory=RewriteCounts)


def rewrite_split(
    segment: SegmentInput,
    scan: SplitScan,
    winners: Iterable[Blob],
    winner_count: int,
    rules: CompactionRules,
    sink: Sink,
    *,
    ending: Ending,
    inflater: Inflater,
    verdicts: npt.NDArray[np.uint8],
    last_batches: LastBatches,
    keeps_legacy_tombstones: bool,
) -> RewrittenSplit:
    """Write what stays of the split that `scan` has read.

    Args:
        winners: the ordinals of surviving records (uint32), in any number of pieces and any order.
        winner_count: as many winners were decided on.
        verdicts: by batch, as for the scan; markers too. Of length 0 where all are 0.
    Memory: a byte for each record of the split, a window, and an output buffer of the size of the largest batch at least.
    Raises CorruptFile for damage that has come about since the scan, SegmentChanged if the split holds something else,
    RowsLost if the winners are others than as many as were decided on.
    """
    kept = _marked(segment, scan, winners, winner_count)
    first, last = scan.first_offset, scan.last_offset
    keeps_some = winner_count or len(scan.events) or last_batches.any_within(first, last)
    keeps_some = keeps_some or first < ending.kept_next_offset <= last + 1
    if not (keeps_some or ending.ends_segment):
        return RewrittenSplit(RewriteCounts(dropped=scan.batch_count))  # without reading it again
    rewriting = _Rewriting(
        segment, scan, kept, rules, sink, ending, inflater, verdicts, last_batches, keeps_legacy_tombstones
    )
    return rewriting.run() if keeps_some else rewriting.only_ending()


def _marked(
    segment: SegmentInput, scan: SplitScan, winners: Iterable[Blob], winner_count: int
) -> npt.NDArray[np.uint8]:
    """By record of the split, 1 where it survives."""
    kept = np.zeros(scan.record_count, dtype=np.uint8)
    received, right = 0, True
    for piece in winners:
        ordinals = np.frombuffer(piece, dtype=np.uint32)
        received += len(ordinals)
        right = kernels.mark(kept, ordinals) and right
    if not right or not received == int(np.count_nonzero(kept)) == winner_count:
        raise RowsLost(
            f"{segment.file}: {winner_count} records must be kept, but the rewrite received {received}: rows were "
            "lost or duplicated between the stages. Nothing was replaced: compact again"
        )
    return kept


class _Rewriting:
    def __init__(
        self,
        segment: SegmentInput,
        scan: SplitScan,
        kept: npt.NDArray[np.uint8],
        rules: CompactionRules,
        sink: Sink,
        ending: Ending,
        inflater: Inflater,
        verdicts: npt.NDArray[np.uint8],
        last_batches: LastBatches,
        keeps_legacy_tombstones: bool,
    ) -> None:
        self._segment, self._scan, self._rules, self._sink = segment, scan, rules, sink
        self._ends_segment, self._written_bytes, self._written_crc = ending.ends_segment, 0, 0
        self._inflater, self._verdicts = inflater, verdicts
        self._producers = last_batches.producer_id, last_batches.last_offset, last_batches.producer_epoch
        self._keeps_legacy_tombstones = keeps_legacy_tombstones
        self._kept = kept
        self._out: Body = np.empty(min(OUTPUT_BYTES, 2 * (scan.split.end - scan.split.begin) + 4096), dtype=np.uint8)
        self._scratch: Body = np.empty(0, dtype=np.uint8)
        job = self._job = np.zeros(places.JOB_WORDS, dtype=np.int64)
        job[places.NOW_MS], job[places.NEW_HORIZON_MS] = rules.horizons_passed_ms, rules.new_horizon_ms
        job[places.CONVERTS_LEGACY], job[places.KEEPS_LEGACY_TOMBSTONES] = (
            rules.converts_legacy,
            keeps_legacy_tombstones,
        )
        job[places.LAST_POSITION], job[places.KEPT_NEXT_OFFSET] = -1, ending.kept_next_offset
        job[places.NO_TOMBSTONES] = not scan.tombstones
        job[places.OUT_BYTES] = len(self._out)

    def run(self) -> RewrittenSplit:
        job, ended, checksum = self._job, None, 0
        for chunk in chunks(self._segment, self._scan.split, check_crc=False):
            checksum, last = chunk.crc32c(checksum), chunk.rows - 1
            if not self._ends_segment or int(chunk.blocks[0][0, last]) != self._scan.last_position:
                self._rewrite_rows(chunk, 0, chunk.rows)
                continue
            self._rewrite_rows(chunk, 0, last)
            self._flush()
            before = job.copy()
            self._rewrite_rows(chunk, last, chunk.rows)
            if job[places.DROPPED] > before[places.DROPPED]:
                ended = self._ended(chunk, before)
        if job[places.ORDINAL] != self._scan.record_count or job[places.BATCH] != self._scan.batch_count:
            raise self._changed(f"{job[places.BATCH]} batches with {job[places.ORDINAL]} records")
        self._require_same(checksum, self._scan.crc32c)
        self._flush()
        return ended or RewrittenSplit(self._counts(), self._written_bytes, self._written_crc)

    def only_ending(self) -> RewrittenSplit:
        """Nothing stays of the split: only its last batch is read, for the ending."""
        split = replace(self._scan.split, begin=self._scan.last_position)
        for chunk in chunks(self._segment, split, check_crc=False):
            if chunk.rows != 1:
                break
            self._require_same(chunk.crc32c(), self._scan.last_batch_crc32c)
            before = self._job.copy()
            before[places.BATCH] = self._scan.batch_count - 1
            self._job[places.DROPPED] = 1
            return replace(self._ended(chunk, before), counts=RewriteCounts(dropped=self._scan.batch_count))
        raise self._changed(f"no batch from byte {split.begin} on")

    def _ended(self, chunk: Chunk, before: Int64Column) -> RewrittenSplit:
        """Write what stays of the last batch of a chunk if it is the last of its output, behind what was written of the split.

        `before`: the job as it was before that batch, which has been dropped since. Nothing waits to be flushed.
        """
        dropped, written_bytes, written_crc = self._counts(), self._written_bytes, self._written_crc
        self._written_crc = 0
        before[places.OUT_BYTES] = len(self._out)
        self._job[:] = before
        self._job[places.LAST_POSITION] = self._scan.last_position
        self._rewrite_rows(chunk, chunk.rows - 1, chunk.rows)
        self._flush()
        return RewrittenSplit(
            dropped,
            written_bytes,
            written_crc,
            self._written_bytes - written_bytes,
            self._written_crc,
            self._counts() - dropped,
        )

    def _counts(self) -> RewriteCounts:
        first = places.VERBATIM
        return RewriteCounts(*(int(count) for count in self._job[first : first + 5]))

    def _require_same(self, found: int, scanned: int) -> None:
        """What was read again must be what the scan read, where batches' own checksums do not look, too."""
        if found != scanned:
            raise SegmentChanged(
                f"{self._where}: CRC-32C {found:08x}, but the scan read {scanned:08x}; a later run compacts it again"
            )

    def _changed(self, found: str) -> SegmentChanged:
        expected = f"{self._scan.batch_count} batches with {self._scan.record_count} records"
        return SegmentChanged(f"{self._where}: {found}, the scan found {expected}; a later run compacts it again")

    @property
    def _where(self) -> str:
        return f"{self._segment.file} bytes {self._scan.split.begin} to {self._scan.split.end}"

    def _rewrite_rows(self, chunk: Chunk, row: int, rows: int) -> None:
        job = self._job
        while row < rows:
            row, stop = kernels.rewrite_rows(
                chunk.buffer, chunk.file_position, *chunk.blocks, row, rows, self._verdicts, self._kept,
                *self._producers, self._out, job,
            )  # fmt: skip
            if stop == places.OUT_FULL:
                self._flush()
                if job[places.NEEDED] > len(self._out):
                    self._out = np.empty(int(job[places.NEEDED]), dtype=np.uint8)
                    job[places.OUT_BYTES] = len(self._out)
            elif stop == places.NEEDS_PYTHON:
                self._rewrite_one(chunk, row)
                row += 1
            elif stop == places.BAD_CRC:
                raise self._bad(chunk, row, "the checksum is wrong, but was right when the segment was scanned")
            elif stop == places.BAD_RECORD:
                raise self._bad(chunk, row, "other records than the scan read")

    def _bad(self, chunk: Chunk, row: int, what: str) -> CorruptFile:
        wide = chunk.blocks[0]
        return CorruptFile(what, file=self._segment.file, position=int(wide[0, row]), offset=int(wide[1, row]))

    def _flush(self) -> None:
        used = int(self._job[places.OUT_USED])
        if used:
            self._put(self._out[:used].data)
        self._job[places.OUT_USED] = 0

    def _put(self, batches: memoryview) -> None:
        self._written_bytes += len(batches)
        self._written_crc = crc32c.crc32c(batches, self._written_crc)
        self._sink(batches)

    def _rewrite_one(self, chunk: Chunk, row: int) -> None:
        """A legacy message that must be rebuilt, or a compressed batch with winners; what comes of it goes to the sink."""
        current = int(chunk.blocks[3][0, row]) == CURRENT_MAGIC
        try:
            data, counter, records = self._compressed(chunk, row) if current else self._legacy(chunk, row)
        except CorruptFile as error:
            raise self._bad(chunk, row, error.what) from error
        job = self._job
        job[counter] += 1
        job[places.BATCH] += 1
        job[places.ORDINAL] += records
        if len(data) > len(self._out) - job[places.OUT_USED]:
            self._flush()
        if len(data) > len(self._out):
            self._put(data)
        else:
            begin = int(job[places.OUT_USED])
            self._out[begin : begin + len(data)] = np.frombuffer(data, dtype=np.uint8)
            job[places.OUT_USED] += len(data)

    def _must_stay(self, chunk: Chunk, row: int) -> bool:
        wide, _, halves, bytes_ = chunk.blocks
        return bool(kernels.must_stay(*self._producers, wide, halves, bytes_, row, self._job))

    def _compressed(self, chunk: Chunk, row: int) -> tuple[memoryview, int, int]:
        """(bytes, counter of what happened, records)."""
        wide, words, halves, _ = chunk.blocks
        batch = chunk.batch(row)
        header, count, codec = np.frombuffer(batch, np.uint8), int(words[4, row]), int(halves[0, row]) & CODEC_MASK
        if crc32c.crc32c(batch[CRC_FROM[CURRENT_MAGIC] :]) != wide[3, row]:
            raise self._bad(chunk, row, "the checksum is wrong, but was right when the segment was scanned")
        body, size_bytes = self._inflater.inflate(codec, batch[BATCH_HEADER.size_bytes :])
        room = size_bytes + BATCH_HEADER.size_bytes + places.CHANGED_RECORD_BYTES * count
        if room > len(self._scratch):
            self._scratch = np.empty(room, dtype=np.uint8)
        first = int(self._job[places.ORDINAL])
        written, staying = kernels.rebuild(header, body, size_bytes, self._kept, first, self._scratch, self._job)
        if written == places.UNDECODABLE:
            raise self._bad(chunk, row, "other records than the scan read")
        self._job[places.KEPT_RECORDS] += staying
        if written == places.UNCHANGED:
            return batch, places.VERBATIM, count
        if written == places.NOTHING_LEFT:
            if not self._must_stay(chunk, row):
                return memoryview(b""), places.DROPPED, count
            kernels.write_empty(header, CURRENT_MAGIC, 0, 0, self._scratch)
            return self._scratch[: BATCH_HEADER.size_bytes].data, places.EMPTIED, count
        head = self._scratch[: BATCH_HEADER.size_bytes].tobytes()
        stream = self._inflater.deflate(codec, self._scratch[BATCH_HEADER.size_bytes : written].data)
        sealed = np.frombuffer(bytearray(head + stream), dtype=np.uint8)
        kernels.seal_buffer(sealed, len(sealed))
        return sealed.data, places.REBUILT, count

    def _legacy(self, chunk: Chunk, row: int) -> tuple[memoryview, int, int]:
        batch = LegacyBatch.of(bytes(chunk.batch(row)), chunk.columns(), row)
        first, count = int(self._job[places.ORDINAL]), len(batch.records)
        if first + count > len(self._kept):
            raise self._changed(f"more than {first} records")
        kept = [
            record
            for index, record in enumerate(batch.records)
            if self._kept[first + index] and (record.value is not None or self._keeps_legacy_tombstones)
        ]
        if not kept and not self._must_stay(chunk, row):
            return memoryview(b""), places.DROPPED, count
        data = batch.with_records(kept, self._rules) if kept else batch.emptied()
        self._job[places.KEPT_RECORDS] += len(kept)
        changed = places.REBUILT if kept else places.EMPTIED
        return memoryview(data), places.VERBATIM if data == batch.data else changed, count
