"""Log dirs of a stopped broker, made of built batches or copied from real ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sidecar.config.topic_filter import TopicFilter
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.snapshots import Replay
from sidecar.snapshots.heal import heal
from sidecar.snapshots.heal_plan import HealReport
from sidecar.snapshots.jobs import Forgetting
from tests.golden import golden_copy, wall_clock_ms

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000

_HOLD = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def data(offset: int, *, producer_id: int = 1, sequence: int = 0, count: int = 1, timestamp_ms: int = NOW_MS) -> bytes:
    """A batch of an idempotent producer."""
    records = [Record(offset + index, timestamp_ms, b"k", b"v") for index in range(count)]
    return build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def log_dir_of(parent: Path, topic: str = "t", partitions: int = 1, segments: int = 4) -> Path:
    """A cleanly stopped log dir; each segment holds one batch of two records, so bases are 0, 2, 4, …"""
    log_dir = parent / "logs"
    for partition in range(partitions):
        directory = log_dir / f"{topic}-{partition}"
        directory.mkdir(parents=True)
        for index in range(segments):
            path = directory / f"{2 * index:020d}.log"
            path.write_bytes(data(2 * index, producer_id=1 + partition, sequence=2 * index, count=2))
    (log_dir / ".lock").touch()
    (log_dir / ".kafka_cleanshutdown").touch()
    return log_dir


def stopped_2_7_2(parent: Path) -> Path:
    """The log dir of a real 2.7.2 broker: snapshots only at the last two bases and the log end of each partition."""
    log_dir = golden_copy("2.7.2", parent / "golden") / "logs"
    (log_dir / ".lock").touch()
    return log_dir


@contextmanager
def held_lock(log_dir: Path) -> Iterator[None]:
    """Another process holds `.lock` as a broker does."""
    command = [sys.executable, "-c", _HOLD, str(log_dir / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.communicate("")


def healed(
    *log_dirs: Path,
    dry_run: bool = False,
    replace_empty: bool = False,
    replace_corrupt: bool = False,
    now_ms: int = NOW_MS,
    replay: Replay = Replay.FULL,
) -> HealReport:
    """`heal` in this process; by default it judges all that is there."""
    return heal(
        log_dirs,
        TopicFilter(),
        LocalEngine(1),
        Forgetting(now_ms, DAY_MS),
        dry_run=dry_run,
        replace_empty=replace_empty,
        replace_corrupt=replace_corrupt,
        replay=replay,
    )


def healed_2_7_2(log_dir: Path, **options: bool) -> HealReport:
    """`heal` with the clock of the golden directories."""
    return healed(log_dir, now_ms=wall_clock_ms("2.7.2"), **options)


def snapshots_in(directory: Path) -> list[int]:
    """Offsets, ascending."""
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


def tree(log_dir: Path) -> dict[str, bytes]:
    """Every file and its content."""
    return {str(path.relative_to(log_dir)): path.read_bytes() for path in sorted(log_dir.rglob("*")) if path.is_file()}
