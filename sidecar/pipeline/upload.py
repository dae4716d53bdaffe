"""Sends a prepared segment's two objects and reads back that the store has what was sent."""

from __future__ import annotations

import structlog

from sidecar.archive.keys import below
from sidecar.errors import SidecarError, StagingFull, StoreDenied, StoreError
from sidecar.metrics import Stage
from sidecar.model import ArchivedSegment
from sidecar.pipeline.bundle import PreparedSegment
from sidecar.pipeline.checked_upload import send, send_bytes
from sidecar.pipeline.journal import Attempt
from sidecar.pipeline.tools import Tools

_log = structlog.get_logger(__name__)

RESUMED_WITHIN_MS = 12 * 3_600_000
"""Half of what objects without a commit are kept for: the other half is there for going on."""


def upload_segment(tools: Tools, prepared: PreparedSegment) -> ArchivedSegment:
    """Upload `.log`, then `.indexes`, under the attempt's fresh keys, and check both.

    Until a commit names them, the objects are nobody's; the journal knows them, so that a crash leaves nothing uncounted.
    Raises StoreError, SegmentChanged.
    """
    try:
        with tools.board.uploading(prepared.segment):
            return _upload(tools, prepared)
    except SidecarError:
        tools.metrics.segment_failed(Stage.UPLOADED)
        raise


def _upload(tools: Tools, prepared: PreparedSegment) -> ArchivedSegment:
    attempt = prepared.attempt
    started_s = tools.clock.monotonic_s()
    log_crc32c = attempt.log_crc32c
    if log_crc32c is None:
        tools.journal.begin(attempt)
        key = below(attempt.root, attempt.log_key)
        log_crc32c = send(tools.store, key, prepared.log_source)
        tools.journal.log_uploaded(attempt.segment_id, log_crc32c)
    key = below(attempt.root, attempt.indexes_key)
    send_bytes(tools.store, key, prepared.indexes)
    entry = prepared.archived(log_crc32c)
    tools.metrics.uploaded(entry.size_bytes, tools.clock.monotonic_s() - started_s)
    return entry


def resumable(tools: Tools, attempt: Attempt) -> bool:
    """Whether the `.log` object of an interrupted attempt is complete in the store, and not so old that it may be cleared away."""
    if attempt.log_crc32c is None or tools.clock.now_ms() - attempt.begun_ms > RESUMED_WITHIN_MS:
        return False
    facts = tools.store.head(below(attempt.root, attempt.log_key))
    return facts is not None and facts.size_bytes == attempt.size_bytes and facts.crc32c in (None, attempt.log_crc32c)


def discard(tools: Tools, attempt: Attempt) -> None:
    """Remove what an attempt left in the store; it was never committed, so no reader can know it."""
    keys = [below(attempt.root, attempt.log_key), below(attempt.root, attempt.indexes_key)]
    tools.store.delete(keys)
    try:
        for key in keys:
            for unfinished in tools.store.unfinished_uploads(key):
                tools.store.abort_upload(unfinished)
    except StoreDenied as error:
        # Whoever may not list uploads has a lifecycle rule that ends them; trying again would change nothing.
        _log.warning("unfinished_uploads_not_listed", key=keys[0], reason=str(error))
    tools.journal.end(attempt.segment_id)


def discard_quietly(tools: Tools, attempt: Attempt) -> bool:
    """`discard`, leaving the attempt in the journal for the next start if store or journal cannot do it now."""
    try:
        discard(tools, attempt)
    except (StoreError, StagingFull):
        return False
    return True
