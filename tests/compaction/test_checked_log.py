"""An output before anything replaces its sources: joined parts hold as much as the rewriting says it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.errors import CorruptFile, SegmentChanged
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting.job import CompactedOutput, LogFile, RewrittenPiece
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.run import required, rewritten, scanned
from sidecar.rewriting.segment_files import checked_log, joined, write_log
from sidecar.rewriting.work_files import LocalParts
from tests.compaction.engine import Source, job_of, reader
from tests.compaction.reference.values import ReferenceSegment

KEYS = b"aabc"


def batch(base_offset: int, keys: bytes, size_bytes: int = 200) -> bytes:
    """A batch of just so many bytes."""
    for filling in range(size_bytes):
        values = [*(b"" for _ in keys[1:]), bytes(filling)]
        records = [Record(base_offset + at, 5, bytes([key]), values[at]) for at, key in enumerate(keys)]
        made = build_batch(records)
        if len(made) == size_bytes:
            return made
    raise AssertionError(size_bytes)


SEGMENT = ReferenceSegment(0, 4, b"".join(batch(at, KEYS[at : at + 1]) for at in range(4)))


def rewritten_in(directory: Path) -> tuple[CompactedOutput[Source], bytes]:
    """One output of two parts: the second half of the segment, and what the first half keeps."""
    job = job_of([SEGMENT], CompactionRules(10**12), split_bytes=len(SEGMENT.log) // 2)
    parts = LocalParts(directory)
    with scanned([job], LocalEngine()) as run:
        (output,) = required(rewritten(run, parts)[0])
    assert [type(piece) for piece in output.pieces] == [RewrittenPiece, RewrittenPiece]
    return output, b"".join(map(bytes, joined(output, parts)))


def test_an_output_as_it_was_rewritten_is_right(tmp_path: Path) -> None:
    output, log = rewritten_in(tmp_path)
    checked = checked_log(reader(log), len(log), output, "out")
    assert (checked.batch_count, output.counts.kept_records) == (3, 3)


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (batch(1, b"a") + batch(2, b"bc", 400), "2 batches with 3 records"),
        (batch(0, b"aa") + batch(2, b"b") + batch(3, b"c"), "3 batches with 4 records"),
    ],
)
def test_other_batches_or_records_of_the_same_size_are_found(log: bytes, found: str, tmp_path: Path) -> None:
    output, right = rewritten_in(tmp_path)
    assert len(log) == len(right)
    with pytest.raises(SegmentChanged, match=f"{found} were joined, the rewrite wrote 3 with 3. Nothing was replaced"):
        checked_log(reader(log), len(log), output, "out")


def test_a_flipped_bit_is_found_where_no_batch_has_a_checksum(tmp_path: Path) -> None:
    output, right = rewritten_in(tmp_path)
    log = bytearray(right)
    log[15] ^= 4  # the leader epoch
    with pytest.raises(SegmentChanged, match=r"of what was joined, expected .* Nothing was replaced"):
        checked_log(reader(bytes(log)), len(log), output, "out")


def test_a_lost_part_is_found_though_the_size_was_added_up_without_it(tmp_path: Path) -> None:
    output, _ = rewritten_in(tmp_path)
    for number, piece in enumerate(output.pieces):
        log = b"".join(map(bytes, joined(replace(output, pieces=(piece,)), LocalParts(tmp_path))))
        with pytest.raises(SegmentChanged, match=f"{number + 1} batches .* the rewrite wrote 3 with 3"):
            checked_log(reader(log), len(log), replace(output, size_bytes=len(log)), "out")


def test_a_doubled_part_is_found_though_the_size_was_added_up_with_it(tmp_path: Path) -> None:
    output, _ = rewritten_in(tmp_path)
    first, second = output.pieces
    log = b"".join(map(bytes, joined(replace(output, pieces=(first, second, second)), LocalParts(tmp_path))))
    with pytest.raises(CorruptFile, match="expected at least 4"):
        checked_log(reader(log), len(log), replace(output, size_bytes=len(log)), "out")


def test_each_part_is_deleted_before_the_next_is_joined(tmp_path: Path) -> None:
    """The copy then needs no more room, in memory and on the disk, than the log and one part."""
    output, log = rewritten_in(tmp_path)
    waiting: list[int] = []

    class Counted(LocalParts):
        def pieces(self, number: int, size_bytes: int) -> Iterator[memoryview]:
            waiting.append(len(list(self.directory.glob("*.part"))))
            return super().pieces(number, size_bytes)

    source = LogFile(tmp_path / "source.log", 0, 4, len(SEGMENT.log), mtime_ns=5_000_000)
    of_file = CompactedOutput((source,), output.pieces, False, len(log), output.crc32c, output.counts, ())
    write_log(tmp_path / "out.log", Counted(tmp_path), of_file)
    assert (tmp_path / "out.log").read_bytes() == log
    assert waiting == [2, 1]
    assert not list(tmp_path.glob("*.part"))
