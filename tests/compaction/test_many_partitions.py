"""Many partitions in one run: each as it would be alone, whatever becomes of the others."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.segments import MIB, SegmentInput
from sidecar.compaction_strategy import Strategy
from sidecar.discovery.partition_directory import named_partition
from sidecar.errors import CorruptFile, SidecarError, StagingFull, StoreUnavailable
from sidecar.rewriting import packing
from sidecar.rewriting.directory import compaction_job
from sidecar.rewriting.job import CompactedOutput, CompactionJob, CompactionSource, LogFile
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.packing import placed, rewriting_tasks, scan_tasks
from sidecar.rewriting.run import rewritten, scanned
from sidecar.rewriting.segment_files import joined
from sidecar.rewriting.survey import survey
from sidecar.rewriting.work_files import LocalParts
from sidecar.snapshots.jobs import Forgetting
from tests.compaction.directories import DAY_MS
from tests.golden import VERSIONS, partitions, wall_clock_ms

Result = tuple[CompactedOutput[LogFile], ...] | SidecarError


class ThreeCores(LocalEngine):
    """One after the other all the same, but planned for three."""

    cores = 3


def jobs_of(directories: Iterable[Path], now_ms: int, staging: Path, split_bytes: int) -> list[CompactionJob[LogFile]]:
    """By all strategies in turn, each with a hash key of its own; partitions with something to compact only."""
    found = []
    for number, directory in enumerate(directories):
        place = staging / f"{number}"
        place.mkdir(parents=True)
        surveyed = survey(named_partition(directory), Forgetting(now_ms, DAY_MS), place, split_bytes=split_bytes)
        count = surveyed.compactable(include_active=False)
        if count:
            rules = CompactionRules(
                now_ms, strategy=list(Strategy)[number % 3], header="h1", exact_keys=number % 5 == 0
            )
            found.append(compaction_job(surveyed, count, rules, number.to_bytes(16), place))
    return found


def ran(
    jobs: Sequence[CompactionJob[LogFile]], parts: Path, cores: type[LocalEngine] = LocalEngine
) -> list[tuple[list[tuple[int, bool, bytes]], object] | SidecarError]:
    """By job, of each output its base offset, whether it is unchanged, and its bytes; and the other results."""
    parts.mkdir()
    written = LocalParts(parts)
    with scanned(jobs, cores()) as run:
        results = rewritten(run, written)
    found: list[tuple[list[tuple[int, bool, bytes]], object] | SidecarError] = []
    for result in results:
        if isinstance(result, SidecarError):
            found.append(result)
            continue
        logs = [b"".join(map(bytes, joined(output, written))) for output in result]
        assert [len(log) for log in logs] == [output.size_bytes for output in result]
        held = [(output.base_offset, output.unchanged, log) for output, log in zip(result, logs, strict=True)]
        found.append((held, [(output.counts, output.transactions) for output in result]))
    return found


@pytest.mark.parametrize("split_bytes", [2000, 64 * MIB])
def test_each_is_what_it_would_be_alone(split_bytes: int, tmp_path: Path) -> None:
    jobs = [
        job
        for version in VERSIONS
        for job in jobs_of(partitions(version), wall_clock_ms(version), tmp_path / version, split_bytes)
    ]
    assert len(jobs) > 20
    together = ran(jobs, tmp_path / "together", ThreeCores)
    for number, job in enumerate(jobs):
        assert together[number] == ran([job], tmp_path / f"alone-{number}")[0]


def broken(source: Path, target: Path) -> Path:
    """A copy with one bit of its first batch flipped."""
    shutil.copytree(source, target)
    log = target / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    return target


def test_a_damaged_partition_ends_alone(tmp_path: Path) -> None:
    sources = [path for path in partitions("4.3.0") if path.name in ("compacted-0", "transactions-0", "orders-0")]
    assert len(sources) == 3
    healthy = jobs_of(sources, wall_clock_ms("4.3.0"), tmp_path / "s1", 4096)
    damaged = [broken(path, tmp_path / "logs" / path.name) for path in sources]
    mixed = jobs_of(
        [sources[0], damaged[0], sources[1], damaged[1], sources[2]], wall_clock_ms("4.3.0"), tmp_path / "s2", 4096
    )
    rules = [healthy[number // 2].rules for number in range(5)]
    mixed = [replace(job, rules=rules[number]) for number, job in enumerate(mixed)]
    results = ran(mixed, tmp_path / "mixed", ThreeCores)
    assert results[::2] == ran(healthy, tmp_path / "healthy")
    for number, path in ((1, damaged[0]), (3, damaged[1])):
        error = results[number]
        assert isinstance(error, CorruptFile)
        assert (error.file, error.position) == (str(path / f"{0:020d}.log"), 0)


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A source whose store answers no more, after so many times."""

    source: LogFile
    opened_before: list[int]
    failing_from: int

    def __getattr__(self, name: str) -> object:
        return getattr(self.source, name)

    @contextmanager
    def opened(self) -> Iterator[SegmentInput]:
        self.opened_before.append(1)
        if len(self.opened_before) > self.failing_from:
            raise StoreUnavailable("no answer")
        with self.source.opened() as segment:
            yield segment


def test_a_store_that_fails_in_either_stage_is_the_result_of_its_partition(tmp_path: Path) -> None:
    directory = next(path for path in partitions("4.3.0") if path.name == "compacted-0")
    jobs = jobs_of([directory, directory, directory], wall_clock_ms("4.3.0"), tmp_path, 64 * MIB)
    for number, failing_from in ((0, 0), (1, len(jobs[1].files))):
        opened: list[int] = []
        files = tuple(Unreachable(file, opened, failing_from) for file in jobs[number].files)
        jobs[number] = replace(jobs[number], files=files)  # type: ignore[arg-type]
    results = ran(jobs, tmp_path / "parts", ThreeCores)
    assert [str(result) for result in results[:2]] == ["no answer", "no answer"]
    assert not isinstance(results[2], SidecarError)


class FullDisk(LocalParts):
    """Has room for the first split only."""

    @contextmanager
    def writing(self, number: int) -> Iterator[object]:  # type: ignore[override]
        if number:
            raise StagingFull("no room")
        with super().writing(number) as part:
            yield part


def test_a_full_disk_is_reported_for_each_partition_that_met_it(tmp_path: Path) -> None:
    directory = next(path for path in partitions("4.3.0") if path.name == "compacted-0")
    jobs = jobs_of([directory, directory], wall_clock_ms("4.3.0"), tmp_path, 64 * MIB)
    with scanned(jobs, LocalEngine()) as run:
        results: tuple[Result, ...] = rewritten(run, FullDisk(tmp_path))
    assert [type(result) for result in results] == [StagingFull, StagingFull]
    assert list(tmp_path.glob("tmp*")) == []


def test_nothing_to_do_is_done(tmp_path: Path) -> None:
    directory = next(path for path in partitions("4.3.0") if path.name == "compacted-0")
    (job,) = jobs_of([directory], wall_clock_ms("4.3.0"), tmp_path, 64 * MIB)
    nothing = replace(job, files=(), pieces=())
    with scanned([nothing, job], LocalEngine()) as run:
        results = rewritten(run, None)
    assert results[0] == ()
    assert not isinstance(results[1], SidecarError)
    with scanned(list[CompactionJob[CompactionSource]](), LocalEngine()) as run:
        assert rewritten(run, None) == ()


def test_small_partitions_share_tasks_and_large_ones_share_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks by bytes: a thousand partitions are not a thousand tasks, and one partition is scanned by all cores."""
    directory = next(path for path in partitions("4.3.0") if path.name == "compacted-0")
    (job,) = jobs_of([directory], wall_clock_ms("4.3.0"), tmp_path, 1000)
    many = placed([job] * 100)
    tasks = scan_tasks(many, [job.verdicts()] * 100, 4)
    assert [len(task) for task in tasks] == [25] * 4
    assert all(share.is_whole for task in tasks for share in task)
    monkeypatch.setattr(packing, "WHOLE_BYTES", 0)
    shares = scan_tasks(placed([job]), [job.verdicts()], 2)
    assert [len(task) for task in shares] == [1, 1]
    assert not any(share.is_whole for task in shares for share in task)
    ((alone,),) = scan_tasks(placed([job]), [job.verdicts()], 1)
    assert alone.is_whole
    assert [rewriting_tasks(placed(jobs), 4) for jobs in ([], [job], [job] * 100)] == [1, min(len(job.splits()), 4), 4]
    monkeypatch.setattr(packing, "REWRITING_BYTES", (job.size_bytes + 1) // 2)
    assert rewriting_tasks(placed([job]), 1) == 2
