"""Segments of one partition between preparation and commit: how commits are reported, and transfers given up."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import structlog

from producer_state.compare import Conformance
from sidecar.commits.commit_window import CommitWindow
from sidecar.errors import SidecarError
from sidecar.model import ArchivedSegment
from sidecar.partition.domain_events import DomainEvent, SegmentCommitted, SnapshotMismatch
from sidecar.pipeline.bundle import PreparedSegment
from sidecar.pipeline.preparing import LogPosition
from sidecar.pipeline.tools import Tools
from sidecar.pipeline.upload import discard_quietly

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Transfer:
    """A segment, its upload, where the preparation stood after it, and until when it may be committed."""

    prepared: PreparedSegment
    upload: Future[ArchivedSegment]
    position: LogPosition
    window: CommitWindow


InFlight: TypeAlias = deque[list[Transfer]]
"""In offset order, the transfers of each commit: of one segment, or of a group that was compacted before its upload."""


def committed_segment_events(prepared: PreparedSegment, entry: ArchivedSegment) -> Iterator[DomainEvent]:
    """What there is to report of a segment that is in the archive now."""
    segment, snapshot = prepared.segment, prepared.snapshot
    yield SegmentCommitted(segment, entry, snapshot.result, tuple(prepared.reading.replaced_indexes))
    if snapshot.result in {Conformance.WRONG, "corrupt"}:
        yield SnapshotMismatch(segment, entry, snapshot.note)


def finish_transfers(in_flight: InFlight) -> None:
    """Wait for what is on its way. Nothing can be committed now, but the journal knows it, and a later look goes on with it."""
    for transfer in chain.from_iterable(in_flight):
        error = transfer.upload.exception()
        _log.info("upload_kept", segment=str(transfer.prepared.segment), error=str(error) if error else None)


def abandon(tools: Tools, in_flight: InFlight, *, keep: bool = False) -> None:
    """End all transfers, close all files, and remove what was uploaded, unless a later look will go on with it.

    Args:
        keep: it will.
    """
    transfers = list(chain.from_iterable(in_flight))
    for transfer in transfers:
        # The transfer must end before its objects are removed, and its descriptor stays open until then.
        if not transfer.upload.cancel() and not isinstance(error := transfer.upload.exception(), SidecarError | None):
            _log.error("transfer_crashed", segment=str(transfer.prepared.segment), exc_info=error)
        transfer.prepared.close()
    if keep or tools.stop.is_set():
        return  # The journal knows them; the next start, or the next look, goes on with them.
    for transfer in transfers:
        try:
            discard_quietly(tools, transfer.prepared.attempt)
        except SidecarError as found:
            # One that cannot be removed must not keep the others, or hide why the partition stopped.
            _log.error("attempt_not_discarded", segment=str(transfer.prepared.segment), error=str(found))
