"""The last stable offset without a broker: is every transaction that a segment holds decided below the stable end?"""

from __future__ import annotations

from collections.abc import Callable

from producer_state.table import ProducerTable
from sidecar.logformat.batches import scan_file
from sidecar.logformat.names import Suffix, file_name
from sidecar.model import PartitionFiles, SegmentFiles


def undecided_transaction(
    files: PartitionFiles,
    segment: SegmentFiles,
    at_end: ProducerTable,
    stable_end_offset: int,
    beat: Callable[[], None] = lambda: None,
) -> str:
    """Why the segment may not be archived yet, "" if it may.

    A segment may go when its end lies at or below the last stable offset: no transaction that began below the end is open
    at the stable end. Looks ahead, beyond the segment, only while such transactions wait for their markers.

    Source: RemoteLogManager.candidateLogSegments, UnifiedLog.lastStableOffset.
    """
    if at_end.first_open_transaction_offset() is None:
        return ""
    found = ((entry.producer_id, entry.current_txn_first_offset) for entry in at_end.entries())
    waiting = {producer_id: first_offset for producer_id, first_offset in found if first_offset is not None}
    later = [following for following in files.segments if following.base_offset >= segment.end_offset]
    paths = [(following.log.path, following.base_offset) for following in later]
    if files.active_base_offset is not None:
        paths.append((files.directory / file_name(files.active_base_offset, Suffix.LOG), files.active_base_offset))
    for path, base_offset in paths:
        if base_offset >= stable_end_offset or not waiting:
            break
        beat()
        # The active segment's tail may be half written; batches below the stable end are whole.
        for columns in scan_file(path, base_offset=base_offset):
            markers = (columns.marker_type >= 0) & (columns.base_offset < stable_end_offset)
            for producer_id in columns.producer_id[markers].tolist():
                waiting.pop(producer_id, None)
            if not waiting or int(columns.base_offset[-1]) >= stable_end_offset:
                break
    if not waiting:
        return ""
    producer_id, first_offset = min(waiting.items(), key=lambda item: item[1])
    return (
        f"{segment} waits for a transaction of producer {producer_id}, open since offset {first_offset} and not decided below "
        f"{stable_end_offset}"
    )
