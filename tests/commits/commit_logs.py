"""Commit logs of one made-up lineage, in memory."""

from __future__ import annotations

from sidecar.archive.actions import Add
from sidecar.archive.keys import below, checkpoint_key, commit_key
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitLog
from tests.archive.builders import LINEAGE, WRITER, a_segment
from tests.fakes.memory_store import MemoryStore

ROOT = LINEAGE.root
CHECKPOINT_9 = below(ROOT, checkpoint_key(9))
CHECKPOINT_19 = below(ROOT, checkpoint_key(19))


def a_log(store: MemoryStore, checkpoint_every: int = 100) -> CommitLog:
    """The commit log of the lineage under test."""
    return CommitLog(store, ROOT, store.clock, checkpoint_every=checkpoint_every)


def key_of(number: int) -> str:
    """Full key of a commit."""
    return below(ROOT, commit_key(number))


def filled(store: MemoryStore, count: int, checkpoint_every: int = 100) -> PartitionState:
    """Append so many commits of one segment each."""
    log = a_log(store, checkpoint_every)
    state = log.read()
    for _ in range(count):
        state = log.append([Add(a_segment(state.end_offset or 0))], WRITER, state)
    return state
