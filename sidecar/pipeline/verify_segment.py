"""Are a segment's objects in the store what its commit says? Shallow: sizes, checksums, small parts. Deep: every byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from crc32c import crc32c

from producer_state.snapshot import read_snapshot
from producer_state.wire import ProducerStateError
from sidecar.archive.bundle import INDEXES_BYTES_MAX, cut_part, indexes_size_bytes, log_size_bytes
from sidecar.archive.keys import below
from sidecar.errors import CorruptFile, ObjectMissing, SegmentChanged
from sidecar.logformat import offset_index, time_index, transaction_index
from sidecar.logformat.batches import ScanEnd, SegmentScanner
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from sidecar.ports import MIB, ObjectStore

WINDOW_BYTES = 8 * MIB


class ProblemKind(StrEnum):
    """What is wrong, for programs."""

    MISSING_OBJECT = "missing_object"
    SIZE_MISMATCH = "size_mismatch"
    CHECKSUM_MISMATCH = "checksum_mismatch"
    CORRUPT_CONTENT = "corrupt_content"
    COMMIT_LOG = "commit_log"
    CHECKPOINT = "checkpoint"
    COVERAGE = "coverage"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. `what` says what was expected, what was found, and where."""

    kind: ProblemKind
    key: str
    what: str


def check_segment_objects(
    store: ObjectStore, root: str, segment: ArchivedSegment, *, deep: bool
) -> tuple[Problem, ...]:
    """All that is wrong with a committed segment's two objects. Raises StoreError where the store itself fails."""
    return (*_check_log(store, root, segment, deep=deep), *_check_indexes(store, root, segment, deep=deep))


def _check_log(store: ObjectStore, root: str, segment: ArchivedSegment, *, deep: bool) -> Iterator[Problem]:
    key = below(root, segment.log_key)
    size_bytes = log_size_bytes(segment)
    problem = _check_head(store, key, size_bytes, next(part.crc32c for part in segment.parts))
    if problem:
        yield problem
    elif deep:
        try:
            yield from _read_log(store, key, segment)
        except ObjectMissing:
            yield Problem(ProblemKind.MISSING_OBJECT, key, "vanished while it was read")


def _check_head(store: ObjectStore, key: ObjectKey, size_bytes: int, checksum: int | None) -> Problem | None:
    facts = store.head(key)
    if facts is None:
        return Problem(ProblemKind.MISSING_OBJECT, key, "committed, but not in the store")
    if facts.size_bytes != size_bytes:
        return Problem(
            ProblemKind.SIZE_MISMATCH, key, f"has {facts.size_bytes} bytes in the store, committed were {size_bytes}"
        )
    if checksum is not None and facts.crc32c not in {None, checksum}:
        return _checksum_problem(key, facts.crc32c or 0, checksum, "by the store's own account")
    return None


def _checksum_problem(key: str, found: int, committed: int, how: str) -> Problem:
    return Problem(ProblemKind.CHECKSUM_MISMATCH, key, f"has CRC-32C {found:08x} {how}, committed was {committed:08x}")


class _ChecksummedReads:
    """Ranged reads of one object for a scanner, each byte put into one checksum the first time it passes."""

    def __init__(self, store: ObjectStore, key: ObjectKey, size_bytes: int) -> None:
        self._store = store
        self._key = key
        self._size_bytes = size_bytes
        self._position = 0
        self._crc = 0

    def read_at(self, position: int, buffer: memoryview) -> int:
        """As the scanner wants it: fills the buffer, returns the number of bytes."""
        data = self._store.read(self._key, position, min(len(buffer), self._size_bytes - position))
        buffer[: len(data)] = data
        if position <= self._position < position + len(data):
            self._crc = crc32c(memoryview(data)[self._position - position :], self._crc)
            self._position = position + len(data)
        return len(data)

    def finish(self) -> int:
        """The CRC-32C of the whole object; reads what the scanner left."""
        rest = bytearray(min(WINDOW_BYTES, self._size_bytes - self._position))
        while self._position < self._size_bytes and self.read_at(self._position, memoryview(rest)):
            continue
        return self._crc


def _read_log(store: ObjectStore, key: ObjectKey, segment: ArchivedSegment) -> Iterator[Problem]:
    """Every byte once: the checksum of the object, and every batch in it."""
    size_bytes = log_size_bytes(segment)
    reads = _ChecksummedReads(store, key, size_bytes)
    scanner = SegmentScanner(
        reads.read_at, size_bytes, base_offset=segment.base_offset, file=key, window_bytes=WINDOW_BYTES
    )
    first_crc = last_crc = None
    last_offset, highest_epoch = segment.base_offset - 1, -1
    try:
        for columns in scanner:
            first_crc = int(columns.crc[0]) if first_crc is None else first_crc
            last_crc, last_offset = int(columns.crc[-1]), int(columns.last_offset[-1])
            highest_epoch = max(highest_epoch, int(columns.leader_epoch.max()))
        checksum = reads.finish()
    except SegmentChanged as error:
        yield Problem(ProblemKind.SIZE_MISMATCH, key, str(error))
        return
    committed = segment.parts[0].crc32c
    if checksum != committed:
        yield _checksum_problem(key, checksum, committed, "when read")
    if scanner.end is not ScanEnd.EXACT:
        yield Problem(ProblemKind.CORRUPT_CONTENT, key, str(scanner.problem))
        return
    found = (last_offset < segment.end_offset, scanner.batch_count, highest_epoch, first_crc, last_crc)
    expected = (
        True,
        segment.batch_count,
        segment.highest_batch_leader_epoch,
        first_crc if segment.first_batch_crc is None else segment.first_batch_crc,
        last_crc if segment.last_batch_crc is None else segment.last_batch_crc,
    )
    if found != expected:
        yield Problem(
            ProblemKind.CORRUPT_CONTENT,
            key,
            f"its batches end at offset {last_offset}; batches, highest leader epoch, first and last batch CRC are "
            f"{found[1:]}: committed were an end below {segment.end_offset} and {expected[1:]}",
        )


def _check_indexes(store: ObjectStore, root: str, segment: ArchivedSegment, *, deep: bool) -> Iterator[Problem]:
    key = below(root, segment.indexes_key)
    size_bytes = indexes_size_bytes(segment)
    if problem := _check_head(store, key, size_bytes, None):
        yield problem
        return
    if size_bytes > INDEXES_BYTES_MAX:
        yield Problem(
            ProblemKind.SIZE_MISMATCH, key, f"has {size_bytes} bytes, no writer of ours exceeds {INDEXES_BYTES_MAX}"
        )
        return
    try:
        data = store.read(key)
    except ObjectMissing:
        yield Problem(ProblemKind.MISSING_OBJECT, key, "vanished while it was read")
        return
    parts: dict[PartName, bytes] = {}
    for part in segment.parts[1:]:
        try:
            parts[part.name] = cut_part(data, part, key)
        except CorruptFile as error:
            yield Problem(ProblemKind.CHECKSUM_MISMATCH, key, error.what)
    if deep:
        yield from _parse_parts(parts, key, segment.base_offset)


def _parse_parts(parts: Mapping[PartName, bytes], key: str, base_offset: int) -> Iterator[Problem]:
    parsers: dict[PartName, Callable[[bytes], object]] = {
        PartName.OFFSET_INDEX: lambda data: offset_index.check_as_broker(data, base_offset),
        PartName.TIME_INDEX: lambda data: time_index.check_as_broker(data, base_offset),
        PartName.TRANSACTION_INDEX: lambda data: transaction_index.check_as_broker(data, base_offset),
        PartName.PRODUCER_SNAPSHOT: read_snapshot,
        PartName.LEADER_EPOCHS: read_leader_epochs,
    }
    for name, parse in parsers.items():
        if name in parts:
            try:
                parse(parts[name])
            except (CorruptFile, ProducerStateError) as error:
                yield Problem(ProblemKind.CORRUPT_CONTENT, key, f"part {name}: {error}")
