"""A process that ends, or a disk that is full, while a segment with an added marker is archived: the next one continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.errors import SidecarError, StagingFull, StoreUnavailable
from sidecar.host.journal import Journal
from sidecar.model import ObjectKey
from sidecar.runner.context import RunContext
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archive, archived_states, copy_partitions, ranges, tools_for
from tests.runner.test_crashes import Killed
from tests.segment.made_logs import roll
from tests.segment.test_markers_that_the_cleaner_took import ABORTED, NEXT, PRODUCER, data, marker, read_archive
from tests.verifying import verify_partition

CLEANED = {0: [data(1, b"x")], 2: [data(3, b"y")], 4: NEXT, 6: []}


@dataclass
class Site:
    """A cleaned log of which the segment from 0 to 2 is archived."""

    directory: Path
    store: MemoryStore

    @contextmanager
    def started(self) -> Iterator[RunContext]:
        """A process."""
        with tools_for(self.directory / "logs", self.store, self.directory / "state") as context:
            yield replace(context, facts=FileBrokerFacts([self.directory / "logs"], assume_leader=True))

    def archive(self, context: RunContext) -> list[Exception]:
        return list(archive(context, self.directory / "logs", "orders").errors)

    def require_no_half(self) -> None:
        """All that is committed is there, and what was aborted is not visible."""
        assert 0 not in read_archive(self.store).visible

    def require_whole(self) -> None:
        """All is archived, with one marker of ours, and no object is left that no commit names."""
        state = archived_states(self.store)["orders-0"]
        assert ranges(state) == [(0, 2), (2, 4), (4, 6)]
        seen = read_archive(self.store)
        assert (seen.markers, seen.committed) == ([2, 5], {b"x": 1, b"y": 3, b"k": 4})
        assert (PRODUCER, 0, 2) in seen.aborted
        found = verify_partition(self.store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
        assert (found.problems, found.orphans) == ((), ())


def site_in(directory: Path) -> Site:
    log_dir, site = copy_partitions(directory, "orders-0"), Site(directory, MemoryStore())
    with site.started() as context:
        roll(log_dir, {0: ABORTED, 2: [marker(2, commit=False)]}, 3)
        assert site.archive(context) == []
    roll(log_dir, CLEANED, 6)
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    return site


class Calls:
    """Counts calls of the store and writes to the journal. Raises an error before the n-th (from 0), or before all from it on."""

    def __init__(self, nth: int, error: Callable[[str], BaseException], *, for_good: bool = False) -> None:
        self.nth, self.error, self.for_good, self.count = nth, error, for_good, 0

    def __call__(self, operation: str, key: str) -> None:
        self.count += 1
        if self.count == self.nth + 1 or (self.for_good and self.count > self.nth):
            raise self.error(f"{operation} {key}")

    @contextmanager
    def of(self, site: Site) -> Iterator[None]:
        run = Journal._run

        def watched(journal: Journal, statement: str, *values: Any) -> list[Any]:
            if not statement.startswith("SELECT"):
                self("journal", statement)
            return run(journal, statement, *values)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "_run", watched)
            patch.setattr(site.store, "before", self)
            yield


def number_of_calls(directory: Path) -> int:
    site, calls = site_in(directory), Calls(10**9, Killed)
    with site.started() as context, calls.of(site):
        assert site.archive(context) == []
    site.require_whole()
    return calls.count


def test_a_process_that_ends_at_any_call_leaves_nothing_half(tmp_path: Path) -> None:
    for call in range(number_of_calls(tmp_path / "whole")):
        site = site_in(tmp_path / str(call))
        with pytest.raises(Killed), site.started() as context, Calls(call, Killed, for_good=True).of(site):
            site.archive(context)
        site.require_no_half()
        with site.started() as context:
            assert site.archive(context) == []
        site.require_whole()


def full(what: str) -> SidecarError:
    """As a journal and a directory store report it."""
    return (StagingFull if what.startswith("journal ") else StoreUnavailable)(f"{what}: no space left on device")


def test_a_disk_that_is_full_at_any_call_leaves_nothing_half(tmp_path: Path) -> None:
    failed = 0
    for call in range(number_of_calls(tmp_path / "whole")):
        site = site_in(tmp_path / str(call))
        with site.started() as context:
            with Calls(call, full).of(site):
                errors = site.archive(context)
            assert all(isinstance(error, StagingFull | StoreUnavailable) for error in errors)
            failed += bool(errors)
            site.require_no_half()
            assert site.archive(context) == []
        site.require_whole()
    assert failed
