"""`compact --what-if`: what each strategy would save, and for which keys it would keep another record than Kafka does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sidecar.compaction.decoded import decode_batch
from sidecar.compaction.segments import Split, chunks
from sidecar.compaction_strategy import Strategy
from sidecar.engine_ports import Row, StageEngine
from sidecar.logformat.bodies.record import Record
from sidecar.model import TopicPartition
from sidecar.rewriting.divergent_winners import OtherWinner, OtherWinners, Pairing
from sidecar.rewriting.figures import CompactionFigures
from sidecar.rewriting.job import CompactionJob
from sidecar.rewriting.output_files import write_file
from sidecar.rewriting.run import Scanned, ScannedRun, only, rewritten, scanned
from sidecar.rewriting.sources import CompactionSource

SAMPLES: Final = 10

Bits = npt.NDArray[np.uint8]
"""One for each record of a split: whether it wins."""


@dataclass(frozen=True, slots=True)
class Outlook(CompactionFigures[CompactionSource]):
    """What one strategy would leave. `others` are all keys with another winner than by offset, in order of that winner."""

    strategy: Strategy
    others: OtherWinners

    @property
    def samples(self) -> tuple[OtherWinner, ...]:
        """The first of the others."""
        return tuple(islice(self.others, SAMPLES))

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
            "deleted_records": self.deleted,
            "keys_with_another_winner": len(self.others),
            "samples": [other.to_json() for other in self.samples],
        }


def what_if(
    job: CompactionJob[CompactionSource], strategies: Iterable[Strategy], engine: StageEngine
) -> Iterator[Outlook]:
    """The outlook of each strategy, of offset first. Raises as the compaction would.

    Memory: a bit for each record, and of the keys that have another winner 1/256; the others wait in temporary files.
    """
    by_offset: dict[int, Bits] = {}
    for strategy in (Strategy.OFFSET, *(found for found in strategies if found is not Strategy.OFFSET)):
        planned = replace(job, rules=replace(job.rules, strategy=strategy))
        with scanned([planned], engine) as run:
            found = only(run.results)
            winners = _winners(run, found)
            outputs = only(rewritten(run, None))
        by_offset = by_offset or winners
        yield Outlook(
            strategy,
            _others(found, by_offset, winners) if strategy is not Strategy.OFFSET else OtherWinners(),
            outputs=outputs,
            records_before=found.record_count,
            unkeyed=found.unkeyed,
            malformed_versions=found.malformed_versions,
            deleted=found.deleted,
        )


def write_others(outlooks: Iterable[tuple[TopicPartition, Outlook]], path: Path) -> None:
    """All keys with another winner, a JSON object on each line. Raises StagingFull."""
    lines = (
        json.dumps({**place, "strategy": str(outlook.strategy), **other.to_json()}, ensure_ascii=False).encode() + b"\n"
        for name, outlook in outlooks
        for place in [{"topic": name.topic, "partition": name.partition}]
        for other in outlook.others
    )
    write_file(path, lines)


class WinnerBits:
    """A third stage that only hands over who won: (split, a bit for each of its records). The plan: records by split."""

    def __call__(self, rows: Iterable[Row], plan: dict[int, int]) -> Iterator[tuple[int, Bits]]:
        """See StagedRun.third."""
        found: dict[int, list[bytes]] = {}
        for split, ordinals in rows:
            found.setdefault(split, []).append(ordinals)
        for split, pieces in found.items():
            wins = np.zeros(plan[split], dtype=np.uint8)
            for piece in pieces:
                wins[np.frombuffer(piece, dtype=np.uint32)] = 1
            yield split, np.packbits(wins)


def _winners(run: ScannedRun[CompactionSource], found: Scanned[CompactionSource]) -> dict[int, Bits]:
    counts = {found.first_split + scan.split.number: scan.record_count for scan in found.scans}
    return dict(run.run.third(WinnerBits(), [counts] * run.stages.third_tasks))


def _others(found: Scanned[CompactionSource], by_offset: dict[int, Bits], winners: dict[int, Bits]) -> OtherWinners:
    """Every key has one winner by either rule: what only one of them keeps belongs to the keys in question."""
    with Pairing(found.job.rules) as pairing:
        for scan in found.scans:
            none: Bits = np.zeros(-(-scan.record_count // 8), dtype=np.uint8)
            first, second = by_offset.get(scan.split.number, none), winners.get(scan.split.number, none)
            for bits, wins in ((first & ~second, False), (second & ~first, True)):
                ordinals = np.flatnonzero(np.unpackbits(bits, count=scan.record_count))
                for record in _records_at(found.job, scan.split, ordinals):
                    pairing.put(record, wins=wins)
        return pairing.paired()


def _records_at(
    job: CompactionJob[CompactionSource], split: Split, ordinals: npt.NDArray[np.int64]
) -> Iterator[Record]:
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
