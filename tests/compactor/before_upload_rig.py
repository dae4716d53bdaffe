"""Rounds over log dirs of which topics are compacted before their upload."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sidecar.archive.keys import below
from sidecar.clock import Clock
from sidecar.compactor.before_upload import BeforeUpload
from sidecar.compactor.group_compactor import GroupCompactor
from sidecar.compactor.topic_rule import topic_rule
from sidecar.config import CompactionSettings
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import Scan, scan_log_dirs
from sidecar.rewriting.local_engine import LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.checks import CycleReport
from sidecar.runner.context import RunContext
from sidecar.topic_policy import TopicPolicy
from tests.fakes.memory_store import MemoryStore
from tests.golden import wall_clock_ms
from tests.runner.rig import archived_states, copy_partitions, tools_for

NOW_MS = wall_clock_ms("4.3.0")


DELAY_MS = 600_000


HANGS = {"transactions-0": 777}
"""Offsets of transactions that never end: nothing that reaches above is archived."""


@dataclass
class Rig:
    """Rounds and a compactor beside them, turned by hand."""

    log_dir: Path
    store: MemoryStore
    context: RunContext
    waiting: BeforeUpload
    compactor: GroupCompactor
    rounds: ArchiveLoop
    copies: Path

    def round(self) -> CycleReport:
        return self.rounds.run_once()

    def stored_logs(self, partition: str) -> dict[int, bytes]:
        state = archived_states(self.store)[partition]
        return {s.base_offset: self.store.objects[below(state.lineage.root, s.log_key)] for s in state.segments}

    def generations(self, partition: str) -> list[int]:
        return [segment.generation for segment in archived_states(self.store)[partition].segments]


def before_upload(given: CompactionSettings, clock: Clock) -> BeforeUpload:
    """By the settings alone."""
    return BeforeUpload(given, clock, lambda topic: topic_rule(given, topic, TopicPolicy()))


@contextmanager
def rig(
    tmp_path: Path, *partitions: str, engines: Any = None, store: MemoryStore | None = None, **settings: Any
) -> Iterator[Rig]:
    log_dir = copy_partitions(tmp_path, *partitions)
    given = CompactionSettings.model_validate(
        {"when": "before_upload", "topics": [".*"], "max_upload_delay_ms": DELAY_MS, **settings}
    )
    copies = tmp_path / "copies"
    copies.mkdir()
    found = store or MemoryStore()
    with tools_for(log_dir, found, tmp_path / "state", producer_id_expiration_ms=None) as context:
        waiting = before_upload(given, context.clock)
        compactor = GroupCompactor(waiting, context, engines or LocalEngines(), lambda: copies)
        rounds = ArchiveLoop(context, rounds_scan(log_dir), waiting)
        yield Rig(log_dir, found, context, waiting, compactor, rounds, copies)


def rounds_scan(log_dir: Path) -> Scan:
    return partial(scan_log_dirs, [log_dir], TopicFilter((".*",)))
