"""`compact --what-if`: what each strategy would save, and for which keys it would keep another record than Kafka does."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sidecar.compaction.key_table import Blob
from sidecar.compaction.rules import CompactionRules, version_of
from sidecar.compaction.segments import Split, chunks
from sidecar.compaction_strategy import Strategy
from sidecar.engine_ports import Row, StageEngine
from sidecar.errors import StagingFull
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.files import cannot_be_written
from sidecar.rewriting.job import CompactionFigures, CompactionJob, CompactionSource
from sidecar.rewriting.run import Scanned, required, rewritten, scanned
from sidecar.rewriting.work_files import WorkFile

SAMPLES: Final = 10

Bits = npt.NDArray[np.uint8]
"""One for each record of a split: whether it wins."""


@dataclass(frozen=True, slots=True)
class Outlook(CompactionFigures[CompactionSource]):
    """What one strategy would leave. `others`: keys whose retained record differs from strategy offset, in its order."""

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

    Memory: a bit for each record; keys whose retained record differs wait in a temporary file.
    """
    by_offset: dict[int, Bits] = {}
    for strategy in (Strategy.OFFSET, *(found for found in strategies if found is not Strategy.OFFSET)):
        planned = replace(job, rules=replace(job.rules, strategy=strategy))
        with scanned([planned], engine) as run:
            found = required(run.results[0])
            counts = {found.first_split + scan.split.number: scan.record_count for scan in found.scans}
            winners: dict[int, Bits] = dict(run.run.third(winner_bits, [counts] * run.stages.third_tasks, False))
            outputs = required(rewritten(run, None)[0])
        by_offset = by_offset or winners
        yield Outlook(
            strategy,
            _others(found, by_offset, winners) if strategy is not Strategy.OFFSET else OtherWinners(job.rules),
            outputs=outputs,
            **found.figures(),
        )


@contextmanager
def list_of_keys(path: Path | None) -> Iterator[WorkFile | None]:
    """The file for `write_others`, None without a path. After an error it is gone: a part would be taken for all of it.

    Raises StagingFull.
    """
    if path is None:
        yield None
        return
    with cannot_be_written(path):
        file = path.open("wb", buffering=0)
    with ExitStack() as failing, file:
        failing.callback(_forget, path)
        yield WorkFile(path, file)
        with cannot_be_written(path):
            os.fsync(file.fileno())
        failing.pop_all()


def _forget(path: Path) -> None:
    """Not a device. What cannot be removed stays."""
    if path.is_file():
        with suppress(OSError):
            path.unlink()


def write_others(file: WorkFile | None, place: Mapping[str, Any], outlooks: Iterable[Outlook]) -> None:
    """All keys whose retained record differs, a JSON object on each line, with the fields of `place`. Raises StagingFull."""
    if file is None:
        return
    for outlook in outlooks:
        of_strategy = {**place, "strategy": str(outlook.strategy)}
        for other in outlook.others:
            file.write(json.dumps({**of_strategy, **other.to_json()}, ensure_ascii=False).encode() + b"\n")


def winner_bits(rows: Iterable[Row], plan: dict[int, int]) -> Iterator[tuple[int, Bits]]:
    """A third stage that only hands over who won: (split, a bit for each of its records). The plan: records by split."""
    found: dict[int, list[Blob]] = {}
    for split, ordinals in rows:
        found.setdefault(split, []).append(ordinals)
    for split, pieces in found.items():
        wins = np.zeros(plan[split], dtype=np.uint8)
        for piece in pieces:
            wins[np.frombuffer(piece, dtype=np.uint32)] = 1
        yield split, np.packbits(wins)


def _others(found: Scanned[CompactionSource], by_offset: dict[int, Bits], winners: dict[int, Bits]) -> OtherWinners:
    """Every key has one winner by either rule: what only one of them keeps belongs to the keys in question."""
    others = OtherWinners(found.job.rules)
    for scan in found.scans:
        none: Bits = np.zeros(-(-scan.record_count // 8), dtype=np.uint8)
        first, second = by_offset.get(scan.split.number, none), winners.get(scan.split.number, none)
        for bits, wins in ((first & ~second, False), (second & ~first, True)):
            ordinals = np.flatnonzero(np.unpackbits(bits, count=scan.record_count))
            for record in _records_at(found.job, scan.split, ordinals):
                others.put(record, wins=wins)
    return others


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
                # Only its content shows how many messages a legacy wrapper holds.
                count = int(columns.record_count[row]) if columns.magic[row] == 2 else -1
                begin = int(np.searchsorted(ordinals, before))
                if count < 0 or (begin < len(ordinals) and int(ordinals[begin]) < before + count):
                    records = tuple(read_records(chunk.batch(row), int(columns.position[row])))
                    count = len(records)
                    end = int(np.searchsorted(ordinals, before + count))
                    yield from (records[int(ordinal) - before] for ordinal in ordinals[begin:end])
                before += count


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """One record of a key. `version` is that of the header, None without a valid one. Names are those of the JSON form."""

    offset: int
    timestamp_ms: int
    version: int | None
    tombstone: bool


@dataclass(frozen=True, slots=True)
class OtherWinner:
    """A key for which the strategy keeps another record than the offset does."""

    key: bytes
    by_offset: KeptRecord
    by_strategy: KeptRecord

    def to_json(self) -> dict[str, Any]:
        """The key as text where it is UTF-8, and always in base64."""
        return {
            "key": self.key.decode("utf-8", "replace"),
            "key_base64": base64.b64encode(self.key).decode("ascii"),
            "by_offset": asdict(self.by_offset),
            "by_strategy": asdict(self.by_strategy),
        }


_TABLES: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE by_offset (key BLOB PRIMARY KEY, offset, timestamp_ms, version, tombstone) WITHOUT ROWID;
CREATE TABLE by_strategy (key BLOB, offset INTEGER PRIMARY KEY, timestamp_ms, version, tombstone);
BEGIN;
"""
"""By offset in the second one, so that nothing is sorted. One transaction that never ends: it is read only here."""


class OtherWinners:
    """Pairs records that only one of two rules keeps by their keys, and gives the pairs in order of the strategy's.

    They wait in a temporary file, which is gone with the last reader, also with one that is killed. Memory: SQLite's page
    cache. Raises StagingFull.
    """

    def __init__(self, rules: CompactionRules) -> None:
        self._header = rules.header_name
        with _in_a_file():
            descriptor, name = tempfile.mkstemp(prefix="tiered-sidecar-what-if-")
            os.close(descriptor)
            # The garbage collector may close it in any thread.
            self._rows = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._rows.close)
            try:
                self._rows.executescript(_TABLES)
            finally:
                Path(name).unlink()

    def put(self, record: Record, *, wins: bool) -> None:
        """A record that only the strategy keeps, or (`wins` False) only the offset."""
        key = record.key or b""
        version = version_of(record, self._header)[1] if self._header else None
        table = "by_strategy" if wins else "by_offset"
        with _in_a_file():
            self._rows.execute(
                f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?, ?)",  # noqa: S608 - one of two names
                (key, record.offset, record.timestamp_ms, version, record.value is None),
            )

    def __len__(self) -> int:
        with _in_a_file():
            (count,) = self._rows.execute("SELECT count(*) FROM by_strategy JOIN by_offset USING (key)").fetchone()
        return int(count)

    def __iter__(self) -> Iterator[OtherWinner]:
        pairs = "SELECT o.*, s.* FROM by_strategy AS s JOIN by_offset AS o USING (key) ORDER BY s.offset"
        for row in self._rows.execute(pairs):
            yield OtherWinner(row[0], _kept(row[1:5]), _kept(row[6:]))


def _kept(values: Sequence[Any]) -> KeptRecord:
    offset, timestamp_ms, version, tombstone = values
    return KeptRecord(offset, timestamp_ms, version, bool(tombstone))


@contextmanager
def _in_a_file() -> Iterator[None]:
    place = Path(tempfile.gettempdir())
    try:
        with cannot_be_written(place):
            yield
    except sqlite3.OperationalError as error:
        raise StagingFull(
            f"{place}: cannot be written: {error}; free some space there, or name another place"
        ) from error
