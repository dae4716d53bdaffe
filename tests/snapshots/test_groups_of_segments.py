"""Segments are handed out in groups, and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sidecar.discovery.scan import TopicFilter
from sidecar.reporting.progress import Progress
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.snapshots import folding
from sidecar.snapshots.jobs import Forgetting, StateAt
from sidecar.snapshots.rebuild import rebuild
from sidecar.snapshots.resolve_paths import Targets, find_targets
from tests.snapshots.log_dirs import NOW_MS, log_dir_of


def test_progress_ends_with_everything_read(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, partitions=3)
    reported: list[Progress] = []
    rebuild(
        find_targets([log_dir], TopicFilter()),
        tmp_path / "out",
        LocalEngine(1),
        Forgetting(NOW_MS, None),
        watcher=reported.append,
    )
    assert (reported[0].segments_done, reported[-1].segments_done, reported[-1].segments_total) == (0, 9, 9)
    assert reported[-1].bytes_done == reported[-1].bytes_total > 0


def test_bytes_are_counted_for_each_stretch_of_a_partition(tmp_path: Path) -> None:
    """An archive with a gap has a partition in several stretches."""
    (log,) = find_targets([log_dir_of(tmp_path)], TopicFilter()).partitions
    report = rebuild(Targets((log, log), ()), tmp_path / "out", LocalEngine(1), Forgetting(NOW_MS, None))
    whole = sum(segment.log.size_bytes for segment in log.files.segments)
    assert [found.read_bytes for found in report.partitions] == [whole, whole]


class Counted:
    """An engine that counts how far ahead of its consumer it is asked to go."""

    def __init__(self) -> None:
        self.taken = 0

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        for task in tasks:
            self.taken += 1
            yield function(task)


def test_digests_are_taken_one_group_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with the log: nothing is read before what came before is folded."""
    monkeypatch.setattr(folding, "GROUP_TASKS", 1)
    engine = Counted()
    targets = find_targets([log_dir_of(tmp_path, segments=9)], TopicFilter())
    from sidecar.snapshots.planning import plan_full

    work = [(log, plan_full(log, log.bases)) for log in targets.partitions]
    for reached, (_, event) in enumerate(folding.fold(work, engine, None)):
        if isinstance(event, StateAt):
            assert engine.taken == reached + 1
    assert engine.taken == 8
