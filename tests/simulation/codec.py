"""Commits and checkpoints as tokens: most schedules need not write and parse JSON, which takes half of their time.

That bytes give back what they were made of is for the tests of the formats, and for the schedules that do without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from sidecar.archive import fold
from sidecar.archive.checkpoint import decode_checkpoint
from sidecar.archive.commit import Commit, decode_commit, digest
from sidecar.archive.keys import Lineage
from sidecar.archive.segment_json import check_segment
from sidecar.archive.state import PartitionState
from sidecar.commits import commit_log, stored_commits
from sidecar.model import ArchivedSegment


class Codec:
    """Of one schedule after the other. What it did not write it takes for what the product would write."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._commits: dict[bytes, Commit] = {}
        self._checkpoints: dict[bytes, PartitionState] = {}
        self._checked: dict[str, ArchivedSegment] = {}
        self._digests: dict[bytes, str] = {}

    def forget(self) -> None:
        """A new schedule has other commits."""
        self._commits.clear()
        self._checkpoints.clear()
        self._checked.clear()
        self._digests.clear()

    def encode_commit(self, commit: Commit) -> bytes:
        """See `sidecar.archive.commit`. A nonce is in one commit only."""
        body = f"commit {commit.number} {commit.nonce}".encode()
        self._commits[body] = commit
        return body

    def decode_commit(self, data: bytes, file: str = "") -> Commit:
        """See `sidecar.archive.commit`."""
        found = self._commits.get(data)
        return decode_commit(data, file) if found is None else found

    def digest(self, data: bytes) -> str:
        """See `sidecar.archive.commit`."""
        found = self._digests.get(data)
        if found is None:
            found = self._digests[data] = digest(data)
        return found

    def encode_checkpoint(self, state: PartitionState) -> bytes:
        """See `sidecar.archive.checkpoint`."""
        body = f"checkpoint {state.next_number - 1} {len(self._checkpoints)} {state.last_sha256}".encode()
        self._checkpoints[body] = state
        return body

    def decode_checkpoint(self, data: bytes, number: int, lineage: Lineage, file: str = "") -> PartitionState:
        """See `sidecar.archive.checkpoint`."""
        found = self._checkpoints.get(data)
        if found is None or (found.next_number, found.lineage) != (number + 1, lineage):
            return decode_checkpoint(data, number, lineage, file)
        return found

    def check_segment(self, segment: ArchivedSegment) -> None:
        """See `sidecar.archive.segment_json`."""
        if self._checked.get(segment.segment_id) is not segment:
            check_segment(segment)
            self._checked[segment.segment_id] = segment

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Whoever reads or writes commits uses it, while this lasts."""
        places: tuple[tuple[Any, str], ...] = (
            (commit_log, "encode_commit"),
            (commit_log, "decode_commit"),
            (stored_commits, "decode_commit"),
            (commit_log, "digest"),
            (stored_commits, "digest"),
            (commit_log, "encode_checkpoint"),
            (stored_commits, "decode_checkpoint"),
            (fold, "check_segment"),
        )
        with ExitStack() as stack:
            for module, name in places:
                stack.enter_context(patch.object(module, name, getattr(self, name)))
            yield
