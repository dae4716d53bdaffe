"""Work files of an archive compaction: bounded, refused with a figure, and gone after a disk that is full."""

from __future__ import annotations

import errno
import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sidecar.compaction.rules import CompactionRules, Strategy
from sidecar.compactor.archive import finishing as archive_finishing
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.errors import StagingFull, StagingTooSmall
from sidecar.logformat.files import cannot_be_written
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.packing import SegmentNeed, require_room, steps
from sidecar.rewriting.work_files import WorkFile, nameless_file
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import (
    NOW_MS,
    SETTINGS,
    WRITER,
    archived,
    log_of,
    only_state,
    reference_logs,
    sound,
    use,
)
from tests.runner.rig import archived_states

RULES = CompactionRules(NOW_MS)
PARTITIONS = ["compacted-0", "transactions-0", "orders-0"]


def rewritten(*sizes: int) -> tuple[SegmentNeed, ...]:
    return tuple(SegmentNeed(number, 2 * size, True) for number, size in enumerate(sizes))


def test_steps_hold_as_much_as_fits_in_order() -> None:
    jobs = {0: rewritten(10, 10, 10), 2: rewritten(5, 40)}
    assert steps(jobs, 60) == ({0: range(3)}, {2: range(1)}, {2: range(1, 2)})
    assert steps(jobs, 50) == ({0: range(2)}, {0: range(2, 3), 2: range(1)}, {2: range(1, 2)})
    assert steps(jobs, 10**6) == ({0: range(3), 2: range(2)},)
    assert steps({}, 1) == ()


def test_what_is_not_rewritten_takes_no_more_than_it_is_joined_for() -> None:
    stays, joined = SegmentNeed(0, 0, False), SegmentNeed(1, 10, False)
    assert steps({0: [stays, joined, *rewritten(5)]}, 20) == ({0: range(3)},)


@pytest.mark.parametrize("seed", range(20))
def test_steps_cover_everything_once_and_keep_to_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    jobs = {job: rewritten(*(rng.randint(0, 50) for _ in range(rng.randint(1, 9)))) for job in range(rng.randint(1, 5))}
    bound = rng.randint(100, 200)
    found = steps(jobs, bound)
    assert [(job, number) for step in found for job, chosen in step.items() for number in chosen] == [
        (job, number) for job, needs in jobs.items() for number in range(len(needs))
    ]
    for step in found:
        assert sum(jobs[job][number].staging_bytes for job, chosen in step.items() for number in chosen) <= bound


def test_a_segment_that_cannot_fit_is_refused_with_the_figure() -> None:
    require_room("orders-0", rewritten(50), 100)
    require_room("orders-0", [SegmentNeed(0, 10**9, False)], 100)
    with pytest.raises(StagingTooSmall) as refused:
        require_room("orders-0", rewritten(50, 51), 100)
    assert str(refused.value) == (
        "orders-0: work files of the segment at offset 1 would take 102 bytes, compaction.max_staging_bytes allows 100. The "
        "partition stays as it is, and is not compacted. Raise the setting, and give compaction.staging_dir that space"
    )


def staged_bytes(staging: Path) -> int:
    return sum(path.stat().st_size for path in staging.rglob("*.part"))


def largest_need(store: MemoryStore) -> int:
    return 2 * max(segment.parts[0].size_bytes for segment in only_state(store).segments)


@pytest.mark.parametrize("strategy", [Strategy.OFFSET, Strategy.TIMESTAMP])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_partition_larger_than_the_bound_is_compacted_in_steps_and_committed_once(
    partition: str, strategy: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, partition)
    use(monkeypatch, store)
    before = only_state(store)
    bound = largest_need(store)
    rules = CompactionRules(NOW_MS, strategy=strategy)
    staging = tmp_path / "staging"
    staging.mkdir()
    waiting: list[int] = []

    def tell(step: str) -> None:
        if step == "uploading":
            waiting.append(staged_bytes(staging))

    compactor = ArchiveCompactor(
        SETTINGS, LocalEngine(), store.clock, staging, split_bytes=4096, max_staging_bytes=bound, tell=tell
    )
    (result,) = compactor.compact([CompactionRequest(before.lineage.root, rules, WRITER)])
    assert result.error is None
    assert len(waiting) > 1
    assert 0 < max(waiting) <= bound // 2  # the other half is for the segments that are joined of them
    after = only_state(store)
    assert after.next_number == before.next_number + 1
    groups = [len(output.sources) for output in result.outputs]
    live = after.segments[: len(groups)]
    assert [log_of(store, after, segment) for segment in live] == reference_logs(store, before, rules, groups)
    assert sum(groups) + result.left_alone == len(before.segments)
    sound(store)
    assert list(staging.iterdir()) == []
    (again,) = compactor.compact([CompactionRequest(before.lineage.root, rules, WRITER)])
    assert (again.error, again.records_after) == (None, result.records_after)


def test_what_waits_in_a_file_between_the_stages_counts_as_work_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "compacted-0")
    use(monkeypatch, store)
    bounds: list[int] = []

    def recorded(needs: Any, max_bytes: int) -> Any:
        bounds.append(max_bytes)
        return steps(needs, max_bytes)

    monkeypatch.setattr("sidecar.compactor.archive.compactor.steps", recorded)
    request = CompactionRequest(only_state(store).lineage.root, RULES, WRITER)
    for engine in (LocalEngine(), LocalEngine(1, tmp_path, in_memory_bytes=0)):
        compactor = ArchiveCompactor(SETTINGS, engine, store.clock, tmp_path, max_staging_bytes=10**9)
        (result,) = compactor.compact([request], dry_run=True)
        assert result.error is None
    in_memory, in_file = bounds
    assert 0 < in_memory - in_file < in_memory


def test_a_refused_partition_stays_as_it_is_and_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = archived(tmp_path, "compacted-0")
    use(monkeypatch, store)
    other = archived(tmp_path / "other", "orders-0")
    store.objects |= other.objects
    store.modified_ms |= other.modified_ms
    requests = [CompactionRequest(state.lineage.root, RULES, WRITER) for state in archived_states(store).values()]
    needs = [
        (2 * max(source.size_bytes for output in found.outputs for source in output.sources), found.request)
        for found in ArchiveCompactor(SETTINGS, LocalEngine(), store.clock, tmp_path).compact(requests, dry_run=True)
    ]
    (bound, small), (needed, large) = sorted(needs, key=lambda need: need[0])
    assert bound < needed
    before = next(state for state in archived_states(store).values() if state.lineage.root == large.root)
    compactor = ArchiveCompactor(
        SETTINGS, LocalEngine(), store.clock, tmp_path, split_bytes=4096, max_staging_bytes=bound
    )
    refused, done = compactor.compact([large, small])
    assert isinstance(refused.error, StagingTooSmall)
    assert f"{large.root}: work files of the segment at offset" in str(refused.error)
    assert f"would take {needed} bytes" in str(refused.error)
    assert f"compaction.max_staging_bytes allows {bound}" in str(refused.error)
    assert (done.error, done.commit_number is not None) == (None, True)
    after = next(state for state in archived_states(store).values() if state.lineage.root == large.root)
    assert after == before


@contextmanager
def files_no_larger_than(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("cause", ["full", "limit"])
@pytest.mark.parametrize("in_steps", [False, True])
def test_a_disk_that_is_full_while_segments_are_joined_loses_nothing(
    cause: str, in_steps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "compacted-0")
    use(monkeypatch, store)
    before, objects = only_state(store), dict(store.objects)
    staging = tmp_path / "staging"
    staging.mkdir()
    bound = largest_need(store) if in_steps else 2**62
    compactor = ArchiveCompactor(
        SETTINGS, LocalEngine(), store.clock, staging, split_bytes=4096, max_staging_bytes=bound
    )
    request = CompactionRequest(before.lineage.root, RULES, WRITER)
    if cause == "full":
        joined = 0

        class Filling(WorkFile):
            def write(self, piece: bytes | memoryview) -> None:
                nonlocal joined
                joined += 1
                with cannot_be_written(self.place):
                    if joined > 2:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                WorkFile.write(self, piece)

        @contextmanager
        def filling(place: Path) -> Iterator[WorkFile]:
            with nameless_file(place) as log:
                yield Filling(place, log.file)

        with monkeypatch.context() as patched:
            patched.setattr(archive_finishing, "nameless_file", filling)
            (result,) = compactor.compact([request])
    else:
        # Parts are smaller than the segment that is joined of them: only that meets the limit, and the kernel refuses it.
        (forecast,) = compactor.compact([request], dry_run=True)
        with files_no_larger_than(max(output.size_bytes for output in forecast.outputs if not output.unchanged) - 1):
            (result,) = compactor.compact([request])
    assert isinstance(result.error, StagingFull)
    assert str(staging) in str(result.error)
    assert "free some space there" in str(result.error)
    assert only_state(store) == before
    assert store.objects == objects
    assert list(staging.iterdir()) == []
    (result,) = compactor.compact([request])
    assert result.error is None
    sound(store)
