"""Sends a prepared segment's two objects and reads back that the store has what was sent."""

from __future__ import annotations

from contextlib import ExitStack

from sidecar.archive.keys import below
from sidecar.commits.checked_upload import send, send_bytes, send_checked
from sidecar.commits.commit_window import AgeCheck
from sidecar.errors import FROM_STORE, SidecarError
from sidecar.host.journal import Attempt
from sidecar.model import ArchivedSegment
from sidecar.partition.domain_events import SegmentUploaded, SegmentUploadFailed, SegmentUploadStarted
from sidecar.pipeline.bundle import PreparedSegment
from sidecar.pipeline.tools import Tools
from sidecar.storage.leftovers import list_uploads


def upload_segment(tools: Tools, prepared: PreparedSegment) -> ArchivedSegment:
    """Upload `.log`, then `.indexes`, under the attempt's fresh keys, and check both.

    Until a commit names them, the objects are nobody's; the journal knows them, so that a crash leaves nothing uncounted.
    Raises StoreError, SegmentChanged.
    """
    segment, begun_s = prepared.segment, tools.clock.monotonic_s()
    tools.emit(SegmentUploadStarted(segment))
    with ExitStack() as unless_sent:
        unless_sent.callback(tools.emit, SegmentUploadFailed(segment))
        entry = _upload(tools, prepared)
        unless_sent.pop_all()
    tools.emit(SegmentUploaded(segment, entry.size_bytes, tools.clock.monotonic_s() - begun_s))
    return entry


def _upload(tools: Tools, prepared: PreparedSegment) -> ArchivedSegment:
    attempt = prepared.attempt
    log_crc32c = attempt.log_crc32c
    if log_crc32c is None:
        tools.journal.begin(attempt)
        key = below(attempt.root, attempt.log_key)
        if prepared.copy is None:
            log_crc32c = send(tools.store, key, prepared.log_source)
        else:
            log_crc32c = prepared.copy.checked.crc32c
            send_checked(tools.store, key, prepared.log_source, log_crc32c)
        tools.journal.log_uploaded(attempt.segment_id, log_crc32c)
    key = below(attempt.root, attempt.indexes_key)
    send_bytes(tools.store, key, prepared.indexes)
    return prepared.archived(log_crc32c)


def resumable(attempt: Attempt, ages: AgeCheck) -> bool:
    """Whether the `.log` object of an interrupted attempt is complete in the store, and young enough to be committed.

    False also if the store cannot tell now: a second upload costs time, no data.
    """
    if attempt.log_crc32c is None:
        return False
    try:
        return not ages.fault_of(below(attempt.root, attempt.log_key), attempt.size_bytes, attempt.log_crc32c)
    except FROM_STORE:
        return False


def discard(tools: Tools, attempt: Attempt) -> None:
    """Remove what an attempt left in the store; it was never committed, so no reader can know it."""
    keys = [below(attempt.root, attempt.log_key), below(attempt.root, attempt.indexes_key)]
    tools.store.delete(keys)
    for key in keys:
        # A store that does not list uploads is reported at the start: trying again would change nothing.
        for unfinished in list_uploads(tools.store, key).uploads:
            tools.store.abort_upload(unfinished)
    tools.journal.end(attempt.segment_id)


def discard_quietly(tools: Tools, attempt: Attempt) -> bool:
    """`discard`, leaving the attempt in the journal for the next start if store or journal cannot do it now."""
    try:
        discard(tools, attempt)
    except SidecarError:  # Of any class: a redirect, for one, is a SettingsError.
        return False
    return True
