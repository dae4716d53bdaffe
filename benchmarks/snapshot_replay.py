"""How fast is the producer state of a log rebuilt, compared with a broker's own replay?

Question    Seconds to read, check and replay the same segments: a 4.3.0 broker recovering after an unclean shutdown, and us.
Input       (a) segments of 256 MiB in batches of about 130 KB; (b) segments of 128 MiB in one-record batches of 184 bytes;
            all in the page cache. Both sides verify every CRC-32C. The broker also rebuilds its indexes, we also digest.
Unit        GB/s (10^9 bytes) and million batches/s. The broker: between its own log lines "Recovering unflushed segment"
            and "Completed load"; the first segment is left out, on which its JVM warms up. Ours: warm, after one run.
Promise     each on one core: >= 3 x the broker on (a), >= 30 x on (b); two of ours >= 1.8 x one. A broker's replay has one
            thread, but its JVM's compiler and collector use a second core where they are given one: that figure is printed, too.
Run         python -m benchmarks.snapshot_replay [--rounds 5] [--json result.json]           (--tiny: without a broker)
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from crc32c import crc32c

from benchmarks.segments import MIB, TOPIC, write_log_dir
from sidecar.snapshots.tasks import DigestedSegment, LocalSegment, SegmentTask, digest_group

_HEADER = struct.Struct(">qiibI")
_BODY = struct.Struct(">hiqqqhii")
_RECORD = b"\xf4\x01\x00\x00\x00\x10abcdefgh\xd2\x01" + b"x" * 105 + b"\x00"
PASSES = 12
"""Over the same segments within one measurement: one pass is so short that handing out the work would be measured, too."""


@dataclass(frozen=True)
class Case:
    """An input: how its log dir is made."""

    name: str
    promise: float
    write: Callable[[Path, int, int], Path]
    segment_mib: int


@dataclass(frozen=True)
class Result:
    """Medians over the rounds, for everything but the first segment."""

    case: str
    batches: int
    size_bytes: int
    broker_one_core_s: float | None
    broker_all_cores_s: float | None
    one_core_s: float
    two_cores_s: float
    bare_read_one_core_s: float
    bare_read_two_cores_s: float


def write_single_records(directory: Path, segments: int, segment_bytes: int) -> Path:
    """A log dir with one partition of one-record batches of 184 bytes from ten producers."""
    partition = directory / f"{TOPIC}-0"
    partition.mkdir(parents=True)
    offset = 0
    for _ in range(segments):
        with (partition / f"{offset:020d}.log").open("wb") as file:
            for _ in range(segment_bytes // 184):
                body = _BODY.pack(0, 0, 1_760_000_000_000, 1_760_000_000_000, 4000 + offset % 10, 0, offset // 10, 1)
                body += _RECORD
                file.write(_HEADER.pack(offset, 9 + len(body), 0, 2, crc32c(body)) + body)
                offset += 1
    (partition / f"{offset:020d}.log").touch()
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return directory


CASES = (
    Case("a: 130 KB batches", 3.0, write_log_dir, 256),
    Case("b: one-record batches", 30.0, write_single_records, 128),
)


def main() -> int:
    """Measure and print; 1 if a promise is broken (never with --tiny)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--segments", type=int, default=5)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rounds, segments = (1, 2) if arguments.tiny else (arguments.rounds, arguments.segments)
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for case in CASES:
            size_bytes = 64 * 1024 if arguments.tiny else case.segment_mib * MIB
            log_dir = case.write(Path(scratch) / case.name[0], segments, size_bytes)
            results.append(_measure(case, log_dir, Path(scratch), rounds, with_broker=not arguments.tiny))
            shutil.rmtree(log_dir)
    verdicts = [_print(case, result) for case, result in zip(CASES, results, strict=True)]
    kept = all(verdicts)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    return 0 if kept or arguments.tiny else 1


def _measure(case: Case, log_dir: Path, scratch: Path, rounds: int, *, with_broker: bool) -> Result:
    logs = sorted((log_dir / f"{TOPIC}-0").glob("*.log"))
    tasks = [
        SegmentTask(LocalSegment(str(path), path.stat().st_size), int(path.stem), int(following.stem))
        for path, following in pairwise(logs)
    ][1:]
    for path in logs:
        path.read_bytes()
    paths = [task.source.name for task in tasks]
    one, two, broker_one, broker_all, bare_one, bare_two = [], [], [], [], [], []
    _run(tasks, 1), _run(tasks, 2)
    for turn in range(rounds):
        one.append(_run(tasks, 1))
        two.append(_run(tasks, 2))
        bare_one.append(_bare_read_s(paths, 1))
        bare_two.append(_bare_read_s(paths, 2))
        if with_broker and turn < 2:
            from benchmarks.broker_recovery import recovery_s  # a small run needs nothing that starts brokers

            directory = scratch / f"broker-{case.name[0]}-{turn}"
            broker_all.append(recovery_s(log_dir, directory / "all", len(tasks)))
            with _on_one_core():
                broker_one.append(recovery_s(log_dir, directory / "one", len(tasks)))
    batches = sum(int(logs[n + 1].stem) - int(path.stem) for n, path in enumerate(logs[:-1]) if n)
    batches = batches if case.name.startswith("b") else batches // 1000
    size_bytes = sum(task.source.size_bytes for task in tasks)
    one_core, all_cores = (statistics.median(measured) if measured else None for measured in (broker_one, broker_all))
    ours = map(statistics.median, (one, two, bare_one, bare_two))
    return Result(case.name, batches, size_bytes, one_core, all_cores, *ours)


def _run(tasks: Sequence[SegmentTask], cores: int) -> float:
    """Wall seconds of a pass over all segments; processes are warm before the clock starts."""
    groups = [(task,) for task in tasks] * PASSES
    small = replace(tasks[0], end_offset=None, cuts=(tasks[0].base_offset + 1,))
    if cores == 1:
        with _on_one_core():
            digest_group((small,))
            return _timed(map(digest_group, groups))
    with ProcessPoolExecutor(cores, multiprocessing.get_context("forkserver")) as pool:
        list(pool.map(digest_group, [(small,)] * 8 * cores))
        return _timed(pool.map(digest_group, groups))


@contextmanager
def _on_one_core() -> Iterator[None]:
    """For this process and those that it starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _timed(answers: Iterable[list[DigestedSegment]]) -> float:
    started = time.perf_counter()
    for answer in answers:
        for digested in answer:
            assert not digested.problem, digested.problem
    return (time.perf_counter() - started) / PASSES


def _read_only(paths: Sequence[str]) -> int:
    """Read these files through one buffer and look at nothing: what of our time is the kernel's copy."""
    buffer, total = memoryview(bytearray(2 * MIB)), 0
    for path in paths:
        with Path(path).open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total


def _bare_read_s(paths: Sequence[str], cores: int) -> float:
    """Wall seconds to read them on so many cores: more than this is not to be had, whatever is done with the bytes."""
    with ProcessPoolExecutor(cores, multiprocessing.get_context("forkserver")) as pool:
        shares = [paths[core::cores] for core in range(cores)]
        list(pool.map(_read_only, [path[:1] for path in shares] * cores))
        started = time.perf_counter()
        list(pool.map(_read_only, [[*share] * PASSES for share in shares]))
        return (time.perf_counter() - started) / PASSES


def _print(case: Case, result: Result) -> bool:
    print(f"{result.case}: {result.size_bytes / 1e6:.0f} MB, {result.batches} batches, without the first segment")
    times = {
        "broker 4.3.0, one core": result.broker_one_core_s,
        "broker 4.3.0, all cores": result.broker_all_cores_s,
        "ours, one core": result.one_core_s,
        "ours, two cores": result.two_cores_s,
        "only read, one": result.bare_read_one_core_s,
        "only read, two": result.bare_read_two_cores_s,
    }
    for name, seconds in times.items():
        if seconds:
            print(
                f"  {name:23s} {seconds:8.3f} s  {result.size_bytes / seconds / 1e9:6.2f} GB/s  "
                f"{result.batches / seconds / 1e6:7.2f} M batches/s"
            )
    scaling = result.one_core_s / result.two_cores_s
    ratio = result.broker_one_core_s / result.one_core_s if result.broker_one_core_s else None
    bare = result.bare_read_one_core_s / result.bare_read_two_cores_s
    print(f"  two cores: {scaling:.2f} x one (promised 1.8; reading alone: {bare:.2f} x)", end="")
    if ratio and result.broker_all_cores_s:
        both = result.broker_all_cores_s / result.one_core_s
        print(
            f"; one core: {ratio:.1f} x the broker's (promised {case.promise:g}), {both:.1f} x a broker with all cores",
            end="",
        )
    print()
    return scaling >= 1.8 and (ratio is None or ratio >= case.promise)


if __name__ == "__main__":
    sys.exit(main())
