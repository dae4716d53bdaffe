"""A large segment is digested in parts, and work is handed out in groups."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sidecar.config.topic_filter import TopicFilter
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.reporting.progress import Progress
from sidecar.snapshots import folding
from sidecar.snapshots.folding import parts_of
from sidecar.snapshots.jobs import Forgetting, StateAt
from sidecar.snapshots.local_engine import LocalEngine
from sidecar.snapshots.rebuild import rebuild
from sidecar.snapshots.targets import find_targets
from sidecar.snapshots.tasks import LocalSegment, SegmentTask, digest_segment
from tests.snapshots.log_dirs import NOW_MS, log_dir_of


def one_large_segment(parent: Path) -> SegmentTask:
    """About 200 KB with a sound offset index that has an entry every 4 KB."""
    from sidecar.logformat.batches import scan_bytes
    from sidecar.logformat.indexes.rebuild import IndexBuilder

    value = Random(7).randbytes(900)
    log = b"".join(
        build_batch(
            [Record(offset, NOW_MS + offset, None, value)], producer_id=offset % 7, producer_epoch=0, base_sequence=0
        )
        for offset in range(0, 400, 2)
    )
    path = parent / "t-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(log)
    builder = IndexBuilder(0, 4096)
    for columns in scan_bytes(log, base_offset=0):
        builder.add(columns)
    path.with_suffix(".index").write_bytes(builder.finish([]).offset_index)
    return SegmentTask(LocalSegment(str(path), len(log)), 0, 400)


def test_parts_of_a_large_segment_give_the_digest_of_the_whole(tmp_path: Path) -> None:
    task = one_large_segment(tmp_path)
    parts = parts_of(task, 20_000)
    assert len(parts) >= 8
    assert sum(part.size_bytes for part in parts) == task.size_bytes
    results = [digest_segment(part) for part in parts]
    assert folding._joined(task, results) == digest_segment(task)
    assert pickle.loads(pickle.dumps(results[0])) == results[0]  # noqa: S301


@pytest.mark.parametrize("damage", ["position", "batch", "no index"])
def test_a_wrong_index_or_a_damaged_batch_is_found_by_reading_the_whole(tmp_path: Path, damage: str) -> None:
    task = one_large_segment(tmp_path)
    path = Path(task.source.name)
    index = path.with_suffix(".index")
    if damage == "position":
        entries = bytearray(index.read_bytes())
        for at in range(7, len(entries), 8):
            entries[at] ^= 1
        index.write_bytes(entries)
    elif damage == "batch":
        log = bytearray(path.read_bytes())
        log[100_000] ^= 1
        path.write_bytes(log)
    else:
        index.unlink()
    parts = parts_of(task, 20_000)
    assert (len(parts) == 1) == (damage == "no index")
    joined = folding._joined(task, [digest_segment(part) for part in parts])
    assert joined == digest_segment(task)
    assert bool(joined.problem) == (damage == "batch")


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

    jobs = [plan_full(log, log.bases) for log in targets.partitions]
    for reached, (_, event) in enumerate(folding.fold(jobs, engine, folding.Counting(jobs, None))):
        if isinstance(event, StateAt):
            assert engine.taken == reached + 1
    assert engine.taken == 8
