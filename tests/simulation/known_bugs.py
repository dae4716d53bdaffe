"""Bugs that the product had, or could have had, each as a patch: the simulation must find every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias
from unittest import mock

from sidecar.clock import Clock
from sidecar.commits import commit_log
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.commit_window import CommitWindow
from sidecar.commits.stored_commits import StoredCommits
from sidecar.archive.commit import Commit
from sidecar.errors import ObjectExists
from sidecar.pipeline import copying, garbage, recovery
from sidecar.pipeline.bundle import PreparedSegment
from sidecar.pipeline.compaction import clearing_up
from sidecar.segment import producer_snapshot

Patch: TypeAlias = Callable[[], "mock._patch[object]"]


def _put_without_proof(stored: StoredCommits, _clock: Clock, commit: Commit, body: bytes, _settle_s: float) -> bool:
    """Whoever put a commit of this number was us."""
    try:
        stored.put(commit.number, body)
    except ObjectExists:
        return True
    return True


KNOWN_BUGS: Final[dict[str, Patch]] = {
    # An error after the put was sent was taken for a commit that failed: its objects were deleted.
    "commit-discard": lambda: mock.patch.object(copying, "proves_not_committed", lambda _error: True),
    # A checkpoint was believed whose commit the store had lost.
    "checkpoint-without-its-commit": lambda: mock.patch.object(CommitLog, "require_commit", lambda *_: None),
    "commit-of-expired-upload": lambda: mock.patch.object(CommitWindow, "require_open", lambda *_: None),
    "orphans-without-grace": lambda: mock.patch.object(clearing_up, "orphaned_until_ms", lambda now_ms, _grace_ms: now_ms),
    "put-taken-for-ours": lambda: mock.patch.object(commit_log, "put_once", _put_without_proof),
    "descriptor-kept": lambda: mock.patch.object(PreparedSegment, "close", lambda _self: None),
    "resumed-unseen": lambda: mock.patch.object(recovery, "resumable", lambda attempt, _ages: attempt.log_crc32c is not None),
    "gc-names-nothing": lambda: mock.patch.object(garbage, "_named", lambda _state: frozenset()),
}
