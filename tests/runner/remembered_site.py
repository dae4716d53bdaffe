"""A partition that was archived once, and sidecars that start beside it with what was remembered."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sidecar.archive.keys import COMMITS
from sidecar.host.archive_cache import ArchiveCache
from sidecar.model import ObjectKey, TopicPartition
from sidecar.runner.checks import CycleReport
from sidecar.runner.context import RunContext
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.golden import wall_clock_ms
from tests.runner.rig import archive, copy_partitions, rolled_ranges, tools_for

PARTITION = "orders-0"


NAME = TopicPartition("orders", 0)


KEYS = ObjectKey("segments/x.log"), ObjectKey("segments/x.indexes")


class Site:
    """One partition of the golden broker, its archive, and a state directory that outlives each process."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = MemoryStore(ManualClock(wall_clock_ms("4.3.0")))
        self.log_dir = copy_partitions(tmp_path, PARTITION)
        self.state_dir = tmp_path / "state"
        self.listed: list[str] = []

    @contextmanager
    def process(self) -> Iterator[RunContext]:
        with tools_for(self.log_dir, self.store, self.state_dir) as context:
            memory = ArchiveCache(self.state_dir)
            try:
                yield replace(context, memory=memory)
            finally:
                memory.close()

    def run(self) -> tuple[CycleReport, dict[str, int]]:
        """A process of one round; the report, and how often it asked what of the store."""
        self.store.calls.clear()
        self.listed.clear()
        self.store.before = lambda operation, key: self.listed.append(key) if operation == "list" else None
        with self.process() as context:
            report = archive(context, self.log_dir, "orders")
        return report, dict(self.store.calls)

    @property
    def is_read_anew(self) -> bool:
        """Whether the last process read the archive itself, as nobody does who resumes what was remembered."""
        return any(not key.endswith(COMMITS) for key in self.listed)

    def hide(self, count: int) -> Callable[[], None]:
        """Take away the newest segments of the broker's log; returns what brings them back."""
        directory = self.log_dir / PARTITION
        aside = directory.with_name("aside")
        aside.mkdir()
        bases = [base for base, _ in rolled_ranges(self.log_dir, PARTITION)][-count + 1 :]
        for file in directory.iterdir():
            if file.name[:20].isdigit() and file.suffix != ".snapshot" and int(file.name[:20]) > bases[0]:
                shutil.move(file, aside / file.name)

        def bring_back() -> None:
            for file in aside.iterdir():
                shutil.move(file, directory / file.name)

        return bring_back
