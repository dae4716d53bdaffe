"""Keys for which a strategy keeps another record than the offset does: any number of them, on disk, in order of the winner."""

from __future__ import annotations

import base64
import heapq
import pickle
import tempfile
import weakref
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from sidecar.compaction.rules import CompactionRules, version_of
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting.output_files import cannot_be_written
from sidecar.spark.scratch import Scratch

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
        """What is told of a record."""
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
