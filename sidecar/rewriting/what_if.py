"""`compact --what-if`: what each strategy would save, and for which keys it would keep another record than Kafka does."""

from __future__ import annotations

import base64
import heapq
import json
import pickle
import tempfile
import weakref
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import numpy as np
import numpy.typing as npt

from sidecar.compaction.decoded import decode_batch
from sidecar.compaction.rules import CompactionRules, version_of
from sidecar.compaction.segments import Split, chunks
from sidecar.compaction_strategy import Strategy
from sidecar.engine_ports import Row, StageEngine
from sidecar.logformat.bodies.record import Record
from sidecar.model import TopicPartition
from sidecar.rewriting.job import CompactionFigures, CompactionJob
from sidecar.rewriting.run import Scanned, ScannedRun, only, rewritten, scanned
from sidecar.rewriting.sources import CompactionSource
from sidecar.rewriting.work_files import cannot_be_written, write_file
from sidecar.spark.scratch import Scratch

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


_FILES: Final = 256
"""Keys are told apart by so many files: memory holds the keys of one at a time."""


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """One record of a key. `version` is that of the header, None without a valid one."""

    offset: int
    timestamp_ms: int
    version: int | None
    is_tombstone: bool

    @classmethod
    def of(cls, record: Record, rules: CompactionRules) -> KeptRecord:
        version = version_of(record, rules.header_name)[1] if rules.header_name else None
        return cls(record.offset, record.timestamp_ms, version, record.value is None)


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


class OtherWinners:
    """All of them, to be read as often as need be; the file is gone when nobody holds this any more."""

    def __init__(self, file: IO[bytes] | None = None, count: int = 0) -> None:
        self._file, self._count = file, count
        if file is not None:
            weakref.finalize(self, file.close)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[OtherWinner]:
        if self._file is not None:
            self._file.seek(0)
            yield from _pickled(self._file)


class Pairing:
    """Takes records that only one of two rules keeps, in any order, and pairs those of a key. A context manager.

    Memory: the records of 1/256 of the keys. Raises StagingFull.
    """

    def __init__(self, rules: CompactionRules) -> None:
        self._rules = rules
        self._place = Path(tempfile.gettempdir())

    def __enter__(self) -> Self:
        with cannot_be_written(self._place):
            self._scratch = Scratch(self._place, "what-if")
            self._files = [(self._scratch.path / str(number)).open("w+b") for number in range(_FILES)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for file in self._files:
            file.close()
        self._scratch.remove()

    def put(self, record: Record, *, wins: bool) -> None:
        """A record that only the strategy keeps, or (`wins` False) only the offset."""
        key = record.key or b""
        with cannot_be_written(self._place):
            pickle.dump((key, wins, KeptRecord.of(record, self._rules)), self._files[zlib.crc32(key) % _FILES])

    def paired(self) -> OtherWinners:
        """Every key of which both records are known, in order of the strategy's."""
        with cannot_be_written(self._place):
            for file in self._files:
                _pair(file)
            merged = heapq.merge(*(_pickled(file) for file in self._files), key=_offset)
            # Held open by what reads it, and nameless: it is gone with its reader, also with one that is killed.
            written = tempfile.TemporaryFile()  # noqa: SIM115 - see above
            count = 0
            for other in merged:
                pickle.dump(other, written)
                count += 1
        return OtherWinners(written, count)


_offset = attrgetter("by_strategy.offset")


def _pair(file: IO[bytes]) -> None:
    """Put pairs, in order, in the place of a file's records."""
    found: dict[bytes, list[KeptRecord | None]] = {}
    file.seek(0)
    for key, wins, kept in _pickled(file):
        found.setdefault(key, [None, None])[wins] = kept
    others = [
        OtherWinner(key, before, after)
        for key, (before, after) in found.items()
        if before is not None and after is not None
    ]
    file.seek(0)
    file.truncate()
    for other in sorted(others, key=_offset):
        pickle.dump(other, file)
    file.seek(0)


def _pickled(file: IO[bytes]) -> Iterator[Any]:
    while True:
        try:
            found = pickle.load(file)  # noqa: S301  written above, into files that have our name or none
        except EOFError:
            return
        yield found
