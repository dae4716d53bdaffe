"""One bit of what goes from one stage to the next flips, in a file or on the network: no compaction is made of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.engine_ports import TO_DRIVER, Row, StagedRun, Stages
from sidecar.errors import RowsLost
from sidecar.exchange import packed, unpacked
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.run import required, rewritten, scanned
from sidecar.rewriting.work_files import LocalParts, WorkFile
from tests.compaction.engine import LargeJobStages, job_of
from tests.compaction.partitions import partition_in
from tests.golden import golden
from tests.runner.archives import NOW_MS, archived, compact_one, only_state, use

RULES = CompactionRules(NOW_MS)
BITS = {"the first value": 0, "in the middle": 4, "the checksum": 7}
"""Which eighth of a row is hit."""


def flipped(row: bytes, eighth: int) -> bytes:
    found = bytearray(row)
    found[eighth * (len(found) - 1) // 7] ^= 4
    return bytes(found)


@dataclass(frozen=True)
class Damaging:
    """A stage, of which one bit of the first row flips that goes to the driver, or else to the next stage."""

    stage: Callable[..., Iterator[Any]]
    eighth: int
    to_driver: bool

    def __call__(self, *arguments: Any) -> Iterator[Row]:
        done = False
        for number, value in self.stage(*arguments):
            is_hit = not done and (number == TO_DRIVER) == self.to_driver
            done = done or is_hit
            yield number, flipped(value, self.eighth) if is_hit else value


@dataclass(frozen=True)
class DamagingStages:
    """A `StageEngine`. `stage`: "first", "second", or "third", whose answers go to the driver."""

    engine: LocalEngine
    stage: str
    eighth: int
    to_driver: bool = False

    @property
    def cores(self) -> int:
        return self.engine.cores

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any], *, uploads: bool = False) -> Generator[Any]:
        """See `TaskEngine`."""
        return self.engine.run(function, tasks, uploads=uploads)

    @contextmanager
    def staged(self, stages: Stages, tasks: Sequence[Any]) -> Iterator[StagedRun]:
        if self.stage != "third":
            stage = Damaging(getattr(stages, self.stage), self.eighth, self.to_driver)
            stages = replace(stages, **{self.stage: stage})
        with self.engine.staged(stages, tasks) as run:
            if self.stage == "third":

                def damaged(*arguments: Any) -> list[Any]:
                    first, *rest = run.third(*arguments)
                    return [flipped(first, self.eighth), *rest]

                yield replace(run, third=damaged)
            else:
                yield run


def outcome(engine: LocalEngine | DamagingStages, place: Path) -> None:
    job = job_of(partition_in(golden("4.3.0") / "logs" / "compacted-0").segments, RULES, split_bytes=4096)
    with scanned([job], engine) as run:
        required(run.results[0])
        required(rewritten(run, LocalParts(place))[0])


@pytest.mark.parametrize("eighth", BITS.values(), ids=BITS)
@pytest.mark.parametrize(
    ("stage", "to_driver", "apart"),
    [
        *itertools.product(("first",), (False, True), (False, True)),
        ("second", False, False),  # Of a small job it counts no winners: the first one did.
        *itertools.product(("second",), (False, True), (True,)),
        *itertools.product(("third",), (True,), (False, True)),
    ],
)
def test_a_flipped_bit_of_a_row_ends_a_compaction(
    stage: str, to_driver: bool, apart: bool, eighth: int, tmp_path: Path
) -> None:
    engine = DamagingStages(LargeJobStages(None, apart=apart), stage, eighth, to_driver)
    with pytest.raises(RowsLost, match=r"damaged between the stages\. Nothing was replaced"):
        outcome(engine, tmp_path)


@pytest.mark.parametrize("apart", [False, True])
def test_a_flipped_bit_in_the_file_where_rows_wait_ends_a_compaction(
    apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at = WorkFile.read_at
    monkeypatch.setattr(WorkFile, "read_at", lambda *arguments: flipped(read_at(*arguments), 4))
    with pytest.raises(RowsLost, match="damaged"):
        outcome(LargeJobStages(None, apart=apart, in_memory_bytes=0), tmp_path)


@pytest.mark.parametrize("value", [b"", b"12345678", (1, b"2"), None])
@pytest.mark.parametrize("number", [TO_DRIVER, 0, 2**40])
def test_every_bit_of_a_row_and_its_number_count(value: object, number: int) -> None:
    row = packed(number, value)
    assert unpacked(number, row) == value
    bits = [row[:at] + bytes([row[at] ^ 1 << bit]) + row[at + 1 :] for at in range(len(row)) for bit in range(8)]
    wrong: Iterable[tuple[int, bytes]] = [(number, bits_) for bits_ in bits if not _is_the_same(bits_, row)]
    for other, damaged in [(number + 1, row), (number, row[:-1]), (number, b""), *wrong]:
        with pytest.raises(RowsLost, match="damaged"):
            unpacked(other, damaged)


def _is_the_same(row: bytes, right: bytes) -> bool:
    """Whether a row differs only in how it says that its value was pickled: anything but zero."""
    return row[-5] != 0 != right[-5] and row[:-5] + row[-4:] == right[:-5] + right[-4:]


@pytest.mark.parametrize("place", ["a work directory", "the store"])
def test_a_flipped_bit_of_a_part_replaces_nothing(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the leader epoch of a batch, of which no batch's own checksum knows."""
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    before, objects = only_state(store), dict(store.objects)
    write = WorkFile.write

    def damaged(file: WorkFile, piece: bytes | memoryview) -> None:
        content = bytearray(piece)
        content[15] |= 4  # set: pieces of the joined segment are written here, too
        write(file, content)

    monkeypatch.setattr(WorkFile, "write", damaged)
    found = compact_one(store, before, RULES, tmp_path if place == "a work directory" else None)
    assert found.commit_number is None
    assert "CRC-32C" in str(found.error)
    assert store.objects == objects
