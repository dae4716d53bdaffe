"""Rounds whose store goes away when all is planned, and what they hold open then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sidecar.errors import StoreUnavailable
from sidecar.host.pinned_files import PinnedFiles
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.context import RunContext
from tests.descriptors import open_below
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import (
    copy_partitions,
    rounds_over,
    tools_for,
)


class Outage:
    """A store that takes nothing while it is away, after so many uploads."""

    def __init__(self, uploads: int = 0) -> None:
        self.left: int | None = uploads
        self.store = MemoryStore(before=self.before)

    def before(self, operation: str, _key: str) -> None:
        if operation == "upload" and self.left is not None:
            if self.left <= 0:
                raise StoreUnavailable("no answer")
            self.left -= 1

    def is_away(self, _operation: str, _key: str) -> None:
        raise StoreUnavailable("no answer")


@contextmanager
def after_an_outage(
    tmp_path: Path, partition: str = "orders-0", uploads: int = 0, pinned: PinnedFiles | None = None
) -> Iterator[tuple[RunContext, ArchiveLoop, Outage, Path]]:
    """All was planned, and failed after some segments: two uploads each."""
    log_dir, outage = copy_partitions(tmp_path, partition), Outage(uploads)
    with tools_for(log_dir, outage.store, tmp_path / "state", record_lost=True, uploads_ahead=1) as context:
        context = context if pinned is None else replace(context, pinned=pinned)
        rounds = rounds_over(context, log_dir)
        (failed,) = rounds.run_once().outcomes
        assert isinstance(failed.error, StoreUnavailable)
        outage.left = None
        yield context, rounds, outage, log_dir / partition
        context.pinned.release()


def held_names(context: RunContext) -> list[int]:
    return sorted(int(file.path.stem) for file in context.pinned._pinned)


def open_deleted(log_dir: Path) -> list[str]:
    return [link for link in open_below(log_dir) if link.endswith("(deleted)")]
