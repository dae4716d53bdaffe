"""`compact --what-if`: what each strategy would save, and for which keys it would keep another record than Kafka does."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sidecar.compaction.decoded import decode_batch
from sidecar.compaction.rules import CompactionRules, Strategy, version_of
from sidecar.compaction.segments import Split, chunks
from sidecar.logformat.record import Record
from sidecar.pipeline.compaction.job import CompactedOutput, CompactionJob
from sidecar.pipeline.compaction.output_files import write_file
from sidecar.pipeline.compaction.run import ScannedRun, only, rewritten, scanned
from sidecar.pipeline.compaction.sources import CompactionSource
from sidecar.ports import Row, StageEngine

SAMPLES: Final = 10

Ordinals = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """One record of a key. `version` is that of the header, None without a valid one."""

    offset: int
    timestamp_ms: int
    version: int | None
    is_tombstone: bool


@dataclass(frozen=True, slots=True)
class OtherWinner:
    """A key for which the strategy keeps another record than the offset does."""

    key: bytes
    by_offset: KeptRecord
    by_strategy: KeptRecord

    def to_json(self) -> dict[str, Any]:
        """The key as text where it is UTF-8, and always in base64."""
        kept = {"by_offset": self.by_offset, "by_strategy": self.by_strategy}
        return {
            "key": self.key.decode("utf-8", "replace"),
            "key_base64": base64.b64encode(self.key).decode("ascii"),
            **{
                name: {
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp_ms,
                    "version": record.version,
                    "tombstone": record.is_tombstone,
                }
                for name, record in kept.items()
            },
        }


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one strategy would leave. `others` are all keys with another winner than by offset, in order of that winner."""

    strategy: Strategy
    outputs: tuple[CompactedOutput[CompactionSource], ...]
    records_before: int
    unkeyed: int
    malformed_versions: int
    others: tuple[OtherWinner, ...]

    @property
    def bytes_before(self) -> int:
        """Of the segments that would be compacted."""
        return sum(source.size_bytes for output in self.outputs for source in output.sources)

    @property
    def bytes_after(self) -> int:
        """Of what would come of them."""
        return sum(output.size_bytes for output in self.outputs)

    @property
    def records_after(self) -> int:
        """Markers included, as in `records_before`."""
        return sum(output.counts.kept_records for output in self.outputs)

    @property
    def samples(self) -> tuple[OtherWinner, ...]:
        """The first of the others."""
        return self.others[:SAMPLES]

    def to_json(self) -> dict[str, Any]:
        """Names are stable."""
        return {
            "strategy": str(self.strategy),
            "bytes_before": self.bytes_before,
            "bytes_saved": self.bytes_before - self.bytes_after,
            "records_before": self.records_before,
            "records_saved": self.records_before - self.records_after,
            "unkeyed_records": self.unkeyed,
            "malformed_versions": self.malformed_versions,
            "keys_with_another_winner": len(self.others),
            "samples": [other.to_json() for other in self.samples],
        }


def what_if(
    job: CompactionJob[CompactionSource], strategies: Iterable[Strategy], engine: StageEngine
) -> Iterator[Outlook]:
    """The outlook of each strategy, of offset first. Raises as the compaction would.

    Memory: 4 bytes for each surviving record, and every key that has another winner.
    """
    by_offset: dict[int, Ordinals] = {}
    for strategy in (Strategy.OFFSET, *(found for found in strategies if found is not Strategy.OFFSET)):
        planned = replace(job, rules=replace(job.rules, strategy=strategy))
        with scanned([planned], engine) as run:
            found = only(run.results)
            winners = _winners(run)
            outputs = only(rewritten(run, None))
        by_offset = by_offset or winners
        yield Outlook(
            strategy,
            outputs,
            sum(scan.record_count for scan in found.scans),
            sum(scan.unkeyed for scan in found.scans),
            sum(scan.malformed_versions for scan in found.scans),
            _others(planned, by_offset, winners) if strategy is not Strategy.OFFSET else (),
        )


def write_others(outlooks: Sequence[Outlook], path: Path) -> None:
    """All keys with another winner, a JSON object on each line. Raises StagingFull."""
    lines = (
        json.dumps({"strategy": str(outlook.strategy), **other.to_json()}, ensure_ascii=False).encode() + b"\n"
        for outlook in outlooks
        for other in outlook.others
    )
    write_file(path, lines)


class WinnerOrdinals:
    """A third stage that only hands over who won: (split, ordinals ascending)."""

    def __call__(self, rows: Iterable[Row], _plan: None) -> Iterator[tuple[int, Ordinals]]:
        """See StagedRun.third."""
        found: dict[int, list[Ordinals]] = {}
        for split, ordinals in rows:
            found.setdefault(split, []).append(np.frombuffer(ordinals, dtype=np.uint32))
        for split, pieces in found.items():
            yield split, np.sort(np.concatenate(pieces))


def _winners(found: ScannedRun[CompactionSource]) -> dict[int, Ordinals]:
    return dict(found.run.third(WinnerOrdinals(), [None] * found.stages.third_tasks))


def _others(
    job: CompactionJob[CompactionSource], by_offset: dict[int, Ordinals], winners: dict[int, Ordinals]
) -> tuple[OtherWinner, ...]:
    """Every key has one winner by either rule: what only one of them keeps belongs to the keys in question."""
    nothing: Ordinals = np.empty(0, dtype=np.uint32)
    pairs: dict[bytes, list[KeptRecord | None]] = {}
    for split in job.splits():
        first, second = by_offset.get(split.number, nothing), winners.get(split.number, nothing)
        for place, ordinals in enumerate((np.setdiff1d(first, second), np.setdiff1d(second, first))):
            for record in _records_at(job, split, ordinals):
                pairs.setdefault(record.key or b"", [None, None])[place] = _kept(record, job.rules)
    others = [
        OtherWinner(key, before, after)
        for key, (before, after) in pairs.items()
        if before is not None and after is not None
    ]
    return tuple(sorted(others, key=lambda other: other.by_strategy.offset))


def _kept(record: Record, rules: CompactionRules) -> KeptRecord:
    version = version_of(record, rules.header_name)[1] if rules.header_name else None
    return KeptRecord(record.offset, record.timestamp_ms, version, record.value is None)


def _records_at(job: CompactionJob[CompactionSource], split: Split, ordinals: Ordinals) -> Iterator[Record]:
    """The records of a split with these ordinals; only batches that hold one are decoded."""
    if not len(ordinals):
        return
    before = 0
    with job.files[split.segment].opened() as segment:
        for chunk in chunks(segment, split, check_crc=False):
            columns = chunk.columns()
            for row in range(chunk.rows):
                # How many messages a legacy wrapper holds only its content tells.
                count = int(columns.record_count[row]) if columns.magic[row] == 2 else -1
                begin = int(np.searchsorted(ordinals, before))
                if count < 0 or (begin < len(ordinals) and int(ordinals[begin]) < before + count):
                    records = decode_batch(bytes(chunk.batch(row)), columns, row).records
                    count = len(records)
                    end = int(np.searchsorted(ordinals, before + count))
                    yield from (records[int(ordinal) - before] for ordinal in ordinals[begin:end])
                before += count
