"""The last stable offset without a broker: is every transaction that a segment holds decided below the stable end?"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from producer_state.table import ProducerTable
from sidecar.logformat.batches import scan_file
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles
from sidecar.partition.wait_reason import OpenTransaction
from sidecar.segment.transaction_batches import batches_left


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Transactions that keep a segment from being archived.

    `first_offsets`: by producer id. `searched_to`: file (None: none yet) and position up to which the log behind the segment
    was searched for their markers, as far as it was stable then. `stable_end_offset`: when that was.
    """

    segment: SegmentFiles
    first_offsets: Mapping[int, int]
    stable_end_offset: int = -1
    searched_to: tuple[FileIdentity | None, int] = (None, 0)

    @property
    def oldest(self) -> tuple[int, int]:
        """Producer id and first offset of the transaction that began first."""
        return min(self.first_offsets.items(), key=lambda item: item[1])

    @property
    def reason(self) -> OpenTransaction:
        producer_id, first_offset = self.oldest
        return OpenTransaction(self.segment.base_offset, producer_id, first_offset, self.stable_end_offset)


def open_transactions(segment: SegmentFiles, at_end: ProducerTable) -> OpenTransactions | None:
    """The transactions that are open at a segment's end, None if it may be archived without reading the log behind it.

    A segment may go when its end lies at or below the last stable offset: no transaction that began below the end is open
    at the stable end. `look_ahead` finds which of these have ended by then.

    Source: RemoteLogManager.candidateLogSegments, UnifiedLog.lastStableOffset.
    """
    waiting = at_end.open_transactions()
    return OpenTransactions(segment, waiting) if waiting else None


def look_ahead(
    files: PartitionFiles,
    waiting: OpenTransactions,
    stable_end_offset: int,
    beat: Callable[[], None] = lambda: None,
    taken: Callable[[int], None] = lambda _bytes: None,
) -> OpenTransactions | None:
    """What still waits at a later stable end, None if nothing does. Reads what was not searched before."""
    first_offsets = dict(waiting.first_offsets)
    searched_to = waiting.searched_to
    for base_offset, log in logs_behind(files, waiting.segment.end_offset, searched_to[0]):
        if base_offset >= stable_end_offset:
            break
        beat()
        searched, position = searched_to
        goes_on = searched is not None and searched.inode == log.inode and position <= log.size_bytes
        scanner = scan_file(log.path, base_offset=base_offset, start_position=position if goes_on else 0)
        searched_to = (log, scanner.valid_bytes)
        # The active segment's tail may be half written; batches below the stable end are whole.
        for columns in scanner:
            taken(int(columns.size_bytes.sum()))
            stable = columns.base_offset < stable_end_offset
            for producer_id in columns.producer_id[(columns.marker_type >= 0) & stable].tolist():
                first_offsets.pop(producer_id, None)
            if not first_offsets:
                return None
            if not stable.all():
                searched_to = (log, int(columns.position[np.flatnonzero(~stable)[0]]))
                break
            searched_to = (log, scanner.valid_bytes)
    return replace(waiting, first_offsets=first_offsets, stable_end_offset=stable_end_offset, searched_to=searched_to)


def undecided(files: PartitionFiles, waiting: OpenTransactions) -> OpenTransactions | None:
    """Without those of which a cleaner has taken all batches, perhaps the marker, too: it works below the last stable offset.

    What retention took proves nothing. Raises SegmentChanged. Source: LogCleanerManager.cleanableOffsets.
    """
    left, start_offset = batches_left(files, waiting.first_offsets, waiting.segment.end_offset), files.first_offset or 0
    kept = {number: first for number, first in waiting.first_offsets.items() if number in left or first < start_offset}
    return replace(waiting, first_offsets=kept) if kept else None


def logs_behind(
    files: PartitionFiles, end_offset: int, searched: FileIdentity | None = None
) -> Iterator[tuple[int, FileIdentity]]:
    """The `.log` files from `end_offset` on with their base offsets, those before the one searched last left out."""
    for segment in files.segments:
        is_done = searched is not None and segment.log.name < searched.name
        if segment.base_offset >= end_offset and not is_done:
            yield segment.base_offset, segment.log
    if files.active_base_offset is not None and files.active_log is not None:
        yield files.active_base_offset, files.active_log
