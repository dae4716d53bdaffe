"""Commit logs of one made-up lineage, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sidecar.archive.actions import Add
from sidecar.archive.keys import below, checkpoint_key, commit_key
from sidecar.archive.state import PartitionState
from sidecar.commits import commit_log
from sidecar.commits.commit_log import CHECKPOINT_EVERY, CommitLog
from tests.archive.builders import LINEAGE, WRITER, a_segment
from tests.fakes.memory_store import MemoryStore

ROOT = LINEAGE.root
CHECKPOINT_9 = below(ROOT, checkpoint_key(9))
CHECKPOINT_19 = below(ROOT, checkpoint_key(19))


@contextmanager
def checkpoints_every(commits: int) -> Iterator[None]:
    """While it lasts, writers make a checkpoint after so many commits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "CHECKPOINT_EVERY", commits)
        yield


def a_log(store: MemoryStore) -> CommitLog:
    """The commit log of the lineage under test."""
    return CommitLog(store, ROOT, store.clock)


def key_of(number: int) -> str:
    """Full key of a commit."""
    return below(ROOT, commit_key(number))


def filled(store: MemoryStore, count: int, checkpoint_every: int = CHECKPOINT_EVERY) -> PartitionState:
    """Append so many commits of one segment each."""
    log = a_log(store)
    state = log.read()
    with checkpoints_every(checkpoint_every):
        for _ in range(count):
            state = log.append([Add(a_segment(state.end_offset or 0))], WRITER, state)
    return state
