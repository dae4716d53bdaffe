"""The check of a segment's batches and indexes: before a compacted segment is committed, by `verify --deep`, and at a restore."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from producer_state.snapshot import read_snapshot
from producer_state.wire import ProducerStateError
from sidecar.archive.keys import below
from sidecar.errors import CorruptFile, SegmentChanged
from sidecar.logformat.batches import BatchColumns, SegmentScanner
from sidecar.logformat.headers import LARGEST_POSITION
from sidecar.logformat.indexes import offset_index, time_index, transaction_index
from sidecar.logformat.indexes.offset_index import OffsetIndexCheck
from sidecar.logformat.indexes.time_index import TimeIndexCheck
from sidecar.logformat.indexes.transaction_index import TransactionIndexCheck
from sidecar.logformat.indexes.verdict import IndexState
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.logformat.window import ReadAt
from sidecar.model import ArchivedSegment, PartName
from sidecar.ports import MIB, ObjectStore
from sidecar.segment.archived_objects import read_parts
from sidecar.storage.checksums import hex_text

if TYPE_CHECKING:
    from sidecar.logformat.indexes.rebuild import BuiltIndexes

WINDOW_BYTES: Final = MIB
"""What was read is checked while it is in the processor's cache."""
_REST_BYTES: Final = 16 * MIB
"""What follows a problem has been read once already: from a store each read is a request."""


@dataclass(frozen=True, slots=True)
class ExpectedLog:
    """What the batches of a segment `[base_offset, end_offset)` must add up to. A checksum of None is not known."""

    base_offset: int
    end_offset: int
    batch_count: int
    highest_leader_epoch: int
    first_batch_crc: int | None
    last_batch_crc: int | None

    @classmethod
    def of_commit(cls, segment: ArchivedSegment) -> ExpectedLog:
        return cls(
            segment.base_offset,
            segment.end_offset,
            segment.batch_count,
            segment.highest_batch_leader_epoch,
            segment.first_batch_crc,
            segment.last_batch_crc,
        )

    @classmethod
    def of_built(cls, base_offset: int, end_offset: int, built: BuiltIndexes) -> ExpectedLog:
        epoch = built.leader_epochs.latest_epoch
        return cls(base_offset, end_offset, built.batch_count, epoch, built.first_batch_crc, built.last_batch_crc)


class LogCheck:
    """A fold over the batches of a segment, in file order."""

    def __init__(self, expected: ExpectedLog, file: str) -> None:
        self._expected = expected
        self._file = file
        self._first_crc: int | None = None
        self._last_crc: int | None = None
        self._highest_epoch = -1
        self.last_offset = expected.base_offset - 1

    def add(self, columns: BatchColumns) -> None:
        self._first_crc = int(columns.crc[0]) if self._first_crc is None else self._first_crc
        self._last_crc, self.last_offset = int(columns.crc[-1]), int(columns.last_offset[-1])
        self._highest_epoch = max(self._highest_epoch, int(columns.leader_epoch.max()))

    def finish(self, scanner: SegmentScanner) -> None:
        """Raise CorruptFile unless these were the expected batches, to the last byte."""
        scanner.require_exact()
        if scanner.valid_bytes > LARGEST_POSITION:
            raise CorruptFile(
                f"{scanner.valid_bytes} bytes; a segment holds at most {LARGEST_POSITION}", file=self._file
            )
        expected = self._expected
        found = (scanner.batch_count, self._highest_epoch, self._first_crc, self._last_crc)
        wanted = (
            expected.batch_count,
            expected.highest_leader_epoch,
            self._first_crc if expected.first_batch_crc is None else expected.first_batch_crc,
            self._last_crc if expected.last_batch_crc is None else expected.last_batch_crc,
        )
        if found != wanted or self.last_offset >= expected.end_offset:
            raise CorruptFile(
                f"its batches end at offset {self.last_offset}, and their number, highest leader epoch, first and "
                f"last batch CRC are {_counts_text(*found)}; the commit says an end below {expected.end_offset} and "
                f"{_counts_text(*wanted)}",
                file=self._file,
            )


def _counts_text(batches: int, leader_epoch: int, first_crc: int | None, last_crc: int | None) -> str:
    return f"({batches}, {leader_epoch}, {hex_text(first_crc)}, {hex_text(last_crc)})"


_INDEX_CHECKS: Final[dict[PartName, type[OffsetIndexCheck | TimeIndexCheck | TransactionIndexCheck]]] = {
    PartName.OFFSET_INDEX: OffsetIndexCheck,
    PartName.TIME_INDEX: TimeIndexCheck,
    PartName.TRANSACTION_INDEX: TransactionIndexCheck,
}


def check_log(
    read_at: ReadAt,
    size_bytes: int,
    expected: ExpectedLog,
    indexes: Mapping[PartName, bytes],
    *,
    file: str,
    indexes_file: str,
) -> tuple[int, CorruptFile | None]:
    """The CRC-32C of a `.log`, and the first thing wrong with its batches or with these indexes.

    Reads every byte once, but for what follows a problem. Checks each batch's checksum, size and offsets, what the batches
    add up to, and that no index contradicts them.
    Raises SegmentChanged if the file ends early, whatever else is wrong with it, and what `read_at` raises.
    """
    scanner = SegmentScanner(
        read_at, size_bytes, base_offset=expected.base_offset, file=file, window_bytes=WINDOW_BYTES
    )
    log, base_offset = LogCheck(expected, file), expected.base_offset
    checks = {name: check(indexes[name], base_offset) for name, check in _INDEX_CHECKS.items() if name in indexes}
    problem: CorruptFile | None = None
    try:
        for columns in scanner:
            log.add(columns)
            for check in checks.values():
                check.add(columns)
        log.finish(scanner)
    except CorruptFile as error:
        problem = error
    else:
        for name, check in checks.items():
            # An index with fewer entries than possible does not contradict the batches.
            if problem is None and (verdict := check.finish(b"")).state is IndexState.DISAGREES:
                what = f"part {name} contradicts the batches: {verdict.reason}"
                problem = CorruptFile(what, file=indexes_file, position=verdict.position)
    return _continued(scanner.crc32c, read_at, scanner.valid_bytes, size_bytes, file), problem


def _continued(crc: int, read_at: ReadAt, position: int, size_bytes: int, file: str) -> int:
    """The CRC-32C of a whole file, from that of its bytes up to `position`."""
    buffer = memoryview(bytearray(min(_REST_BYTES, size_bytes - position)))
    while position < size_bytes:
        count = read_at(position, buffer[: size_bytes - position])
        if count <= 0:
            raise SegmentChanged(f"{file}: ended at byte {position} of {size_bytes} while it was read")
        crc = crc32c(buffer[:count], crc)
        position += count
    return crc


def fetch_parts(store: ObjectStore, root: str, segment: ArchivedSegment) -> Mapping[PartName, bytes]:
    """The small parts of a segment, each checked against its commit and by what a broker demands of it.

    Raises CorruptFile, StoreError.
    """
    key = below(root, segment.indexes_key)
    parts = read_parts(store, root, segment)
    for name, problem in unreadable_parts(parts, segment.base_offset):
        raise CorruptFile(f"part {name}: {problem}", file=key) from problem
    return parts


def unreadable_parts(
    parts: Mapping[PartName, bytes], base_offset: int
) -> Iterator[tuple[PartName, CorruptFile | ProducerStateError]]:
    """The small parts of a segment that a broker would refuse, each with the reason."""
    readers: dict[PartName, Callable[[bytes], object]] = {
        PartName.OFFSET_INDEX: lambda data: offset_index.check_as_broker(data, base_offset),
        PartName.TIME_INDEX: lambda data: time_index.check_as_broker(data, base_offset),
        PartName.TRANSACTION_INDEX: lambda data: transaction_index.check_as_broker(data, base_offset),
        PartName.PRODUCER_SNAPSHOT: read_snapshot,
        PartName.LEADER_EPOCHS: read_leader_epochs,
    }
    for name, read in readers.items():
        if name in parts:
            try:
                read(parts[name])
            except (CorruptFile, ProducerStateError) as error:
                yield name, error
