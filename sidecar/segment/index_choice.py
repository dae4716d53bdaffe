"""Which indexes go into a bundle: the broker's own where they agree with the log, rebuilt ones else."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.errors import CorruptFile
from sidecar.host.listed_files import SMALL_FILE_BYTES_MAX, read_unless_deleted
from sidecar.logformat.batches import BatchColumns
from sidecar.logformat.indexes.offset_index import OffsetIndexCheck
from sidecar.logformat.indexes.rebuild import BuiltIndexes
from sidecar.logformat.indexes.time_index import TimeIndexCheck
from sidecar.logformat.indexes.transaction_index import TransactionIndexCheck, merged
from sidecar.logformat.indexes.verdict import IndexState, IndexVerdict
from sidecar.model import FileIdentity, SegmentFiles


@dataclass(frozen=True, slots=True)
class ChosenIndexes:
    """The bytes to archive, and why the broker's were not taken, one sentence each."""

    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    replaced: tuple[str, ...]


class IndexChoice:
    """The index files of a segment against its batches."""

    def __init__(self, segment: SegmentFiles) -> None:
        """Reads the files. Raises SegmentChanged for one that is not what was listed."""
        # What is larger than its log could need is no index; it is rebuilt without being read.
        limit_bytes = max(SMALL_FILE_BYTES_MAX, segment.log.size_bytes // 4)
        base_offset = segment.base_offset
        self._segment = segment
        self._offsets = OffsetIndexCheck(read_unless_deleted(segment, segment.offset_index, limit_bytes), base_offset)
        self._times = TimeIndexCheck(read_unless_deleted(segment, segment.time_index, limit_bytes), base_offset)
        self._aborted = TransactionIndexCheck(read_unless_deleted(segment, segment.transaction_index), base_offset)

    def add(self, columns: BatchColumns) -> None:
        """Take the next batches in file order."""
        self._offsets.add(columns)
        self._times.add(columns)
        self._aborted.add(columns)

    def finish(self, built: BuiltIndexes) -> ChosenIndexes:
        """After the last batch. Raises CorruptFile for an index that contradicts the log."""
        segment, offsets, times, aborted = self._segment, self._offsets, self._times, self._aborted
        replaced: list[str] = []
        offset_index = _choose(
            offsets.finish(built.offset_index), offsets.data, built.offset_index, segment.offset_index, replaced
        )
        time_index = _choose(times.finish(built.time_index), times.data, built.time_index, segment.time_index, replaced)
        verdict = aborted.finish(built.transaction_index)
        transaction_index = _choose(
            verdict, aborted.data, _merged(aborted.data, built), segment.transaction_index, replaced
        )
        return ChosenIndexes(offset_index or b"", time_index or b"", transaction_index, tuple(replaced))


def _merged(found: bytes | memoryview | None, built: BuiltIndexes) -> bytes | None:
    try:
        return merged(found, built.transaction_index) or None
    except CorruptFile:
        return built.transaction_index or None


def _choose(
    verdict: IndexVerdict,
    found: bytes | memoryview | None,
    rebuilt: bytes | None,
    file: FileIdentity | None,
    replaced: list[str],
) -> bytes | None:
    match verdict.state:
        case IndexState.FINE:
            return None if found is None else bytes(found)
        case IndexState.REBUILD:
            replaced.append(verdict.reason)
            return rebuilt
        case IndexState.DISAGREES:
            raise CorruptFile(
                f"{verdict.reason}: the index disagrees with its log",
                file=str(file.path) if file else "",
                position=verdict.position,
                advice="compare with a replica, or stop the broker and delete the segment's .index file (whichever index is "
                "wrong): at its start the broker then rebuilds all three",
            )
