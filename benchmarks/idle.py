"""What does `tiered-sidecar run` cost while there is nothing to do?

Question    CPU, memory, processes and requests of `run` next to a broker whose rolled segments are all archived, and how long it
            takes to start.
Input       A 4.3.0 broker with 1,000 partitions of 10 rolled segments each (one batch per segment), archived once by `backfill`
            into versitygw, which keeps connections open, as stores do. Three starts: with an empty state directory, so that the
            archive is read from the store; again, as after any restart, with the broker asked what it leads; and from files
            alone (`assume_leader`), with the broker stopped. Default settings. The product has bytecode, as in its image.
Peer        A bare Python walk over the same, on one thread, at once before each start: each file in the log directory listed and
            its status read, each commit of the archive read as a file and decoded as JSON. It plans nothing, checks nothing and
            sends no request; its CPU seconds show how fast the machine was, and figures are also given in multiples of them.
Unit        start: seconds from the process's start to the first ok of /readyz. CPU: percent of one core over the idle time, from
            /proc/<pid>/stat. Memory: VmRSS after the idle time and VmHWM, of 10^6 bytes. Requests to the store per minute.
            Multiples of the walk: CPU seconds up to /readyz, and of an idle minute, each by those of the walk.
Promise     CPU <= 1 %, resident <= 150 MB, no JVM, start <= 10 s.
Run         python -m benchmarks.idle [--idle-s 60] [--json result.json]         (--tiny: 5 partitions, 2 s)
            With --keep DIR the input stays there, and another run takes it from there: 6 minutes, then 4.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import producer_state
import sidecar
from benchmarks.run_process import RunProcess, settings_of
from tests.real.product import json_lines, run_installed
from tests.servers.kafka import KafkaBroker
from tests.servers.versitygw import VersityGateway

TOPIC = "idle"
PARTITIONS, SEGMENTS = 1000, 10
SEGMENT_BYTES = 100
"""Room for one batch of one record: the next one rolls it."""
SETTLE_S = 75.0
"""Two scans: a broker that has just started still writes into its directories, which are listed again then."""
ARCHIVING_S = 1800.0
WALKS = 3
PROMISED_CPU_PERCENT, PROMISED_RESIDENT_MB, PROMISED_START_S = 1.0, 150.0, 10.0
WRITTEN, ARCHIVED = "written", "archived"


@dataclass(frozen=True)
class Idle:
    """One start and the idle time after it. `children`: names of child processes. `walk_cpu_s`: of the peer, just before."""

    name: str
    start_s: float
    start_cpu_s: float
    cpu_percent: float
    resident_mb: float
    peak_mb: float
    requests_per_minute: float
    children: tuple[str, ...]
    walk_cpu_s: float

    @property
    def start_walks(self) -> float:
        """The start's CPU seconds in multiples of the walk's."""
        return self.start_cpu_s / self.walk_cpu_s

    @property
    def idle_walks_per_minute(self) -> float:
        """An idle minute's CPU seconds in multiples of the walk's."""
        return 0.6 * self.cpu_percent / self.walk_cpu_s

    @property
    def keeps_promises(self) -> bool:
        """Whether all of the promised is kept."""
        return (
            self.cpu_percent <= PROMISED_CPU_PERCENT
            and self.resident_mb <= PROMISED_RESIDENT_MB
            and self.start_s <= PROMISED_START_S
            and "java" not in self.children
        )


def main() -> int:
    """Measure and print; 1 if a promise is broken (never with --tiny)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    partitions, idle_s = (5, 2.0) if arguments.tiny else (arguments.partitions, arguments.idle_s)
    with _directory(arguments.keep) as directory:
        results = measure(directory, partitions, idle_s)
    print(
        f"{partitions} partitions, {partitions * SEGMENTS} segments, all archived; {idle_s:g} s idle; load before {load:.1f}\n"
    )
    print(
        "| start | to /readyz | CPU of it | idle CPU | resident | peak | requests/min | child processes | CPU in walks |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for row in results:
        print(
            f"| {row.name} | {row.start_s:.1f} s | {row.start_cpu_s:.1f} s | {row.cpu_percent:.2f} % | {row.resident_mb:.0f} MB "
            f"| {row.peak_mb:.0f} MB | {row.requests_per_minute:.0f} | {', '.join(row.children) or 'none'} "
            f"| {row.start_walks:.1f}, {row.idle_walks_per_minute:.2f} a minute; one is {row.walk_cpu_s:.2f} s |"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in results], indent=2) + "\n")
    return 0 if arguments.tiny or all(row.keeps_promises for row in results) else 1


@contextmanager
def _directory(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)


def measure(directory: Path, partitions: int, idle_s: float) -> list[Idle]:
    """All three starts, over an input that is made where it is not there yet."""
    for package in (sidecar, producer_state):
        compileall.compile_dir(str(Path(str(package.__file__)).parent), quiet=1)
    broker = KafkaBroker("4.3.0", directory / "broker", heap_mb=768)
    with VersityGateway(directory / "store", options=["--quiet", "--keep-alive"]) as gateway:
        settings = partial(settings_of, gateway, broker.log_dirs[0], directory / "state")
        with broker:
            asking = settings(broker.bootstrap)
            if not (directory / WRITTEN).exists():
                _write(broker, partitions)
                (directory / WRITTEN).touch()
            if not (directory / ARCHIVED).exists():
                _archive(asking, partitions)
                (directory / ARCHIVED).touch()
            shutil.rmtree(directory / "state", ignore_errors=True)
            peer = partial(walk_cpu_s, broker.log_dirs[0], gateway.objects / gateway.bucket / "archive")
            first = _idle("empty state directory", directory, asking, idle_s, peer)
            again = _idle("after a restart", directory, asking, idle_s, peer)
        files = _idle("from files, broker stopped", directory, settings(None), idle_s, peer)
    return [first, again, files]


def _write(broker: KafkaBroker, partitions: int) -> None:
    """Batch after batch into every partition, each of which rolls a segment."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    config = {"internal.segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"}
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config=config)], operation_timeout=120)[TOPIC].result(180)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "log_level": 0})

    def acknowledged(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"the broker does not take the input: {error}")

    for segment in range(SEGMENTS + 1):
        for partition in range(partitions):
            producer.produce(TOPIC, f"value {segment}", partition=partition, on_delivery=acknowledged)
        if producer.flush(300):
            raise TimeoutError("the broker does not take the input")


def _archive(settings: Mapping[str, str], partitions: int) -> None:
    quick = {**settings, "broker.snapshot_grace_ms": "0", "broker.settle_ms": "0"}
    done = run_installed(quick, "backfill", "--json", "--quiet", timeout_s=ARCHIVING_S)
    ends = [row["end_offset"] for row in json_lines(done)[-1]["partitions"]] if done.stdout else []
    if done.returncode or ends != [SEGMENTS] * partitions:
        raise RuntimeError(f"not everything was archived:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def walk_cpu_s(log_dir: Path, archive: Path) -> float:
    """CPU seconds of the peer, the least of `WALKS`."""
    return min(_walk(log_dir, archive) for _ in range(WALKS))


def _walk(log_dir: Path, archive: Path) -> float:
    began_s = time.process_time()
    with os.scandir(log_dir) as entries:
        directories = [entry.path for entry in entries if entry.is_dir()]
    for directory in directories:
        with os.scandir(directory) as files:
            sizes = [file.stat().st_size for file in files]
        if not sizes:
            raise RuntimeError(f"{directory} is empty")
    commits = [json.loads(commit.read_bytes()) for commit in archive.glob("*/*/*/*/commits/*.json")]
    took_s = time.process_time() - began_s
    if not commits:
        raise RuntimeError(f"there is no commit below {archive}")
    return took_s


def _idle(name: str, directory: Path, settings: Mapping[str, str], idle_s: float, peer: Callable[[], float]) -> Idle:
    peer_cpu_s = peer()
    with RunProcess(directory, settings) as run:
        start_cpu_s = run.cpu_s()
        time.sleep(min(SETTLE_S, 2 * idle_s))  # noqa: TID251 - real processes have no other clock
        cpu_s, requests, began_s = run.cpu_s(), run.metric("store_requests_total"), time.perf_counter()
        time.sleep(idle_s)  # noqa: TID251 - as above
        took_s = time.perf_counter() - began_s
        cpu_percent = 100 * (run.cpu_s() - cpu_s) / took_s
        per_minute = 60 * (run.metric("store_requests_total") - requests) / took_s
        resident_mb, peak_mb = run.memory_mb()
        if run.metric("pending_segments"):
            raise RuntimeError("not everything was archived")
        children = tuple(run.children())
        return Idle(name, run.start_s, start_cpu_s, cpu_percent, resident_mb, peak_mb, per_minute, children, peer_cpu_s)


if __name__ == "__main__":
    sys.exit(main())
