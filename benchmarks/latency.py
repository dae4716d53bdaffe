"""How long after the broker's roll is a segment committed in the archive?

Question    Time from the appearance of the next `.log` in the broker's directory to the appearance of the commit object in the
            server's directory, both noticed by inotify; and the time in which boto3 alone puts the same 16 MiB. The memory that
            `run` uses for it.
Input       A 4.3.0 broker, one partition, segment.bytes 16 MiB, a producer at a steady rate; `tiered-sidecar run` with default
            settings and a connection to the broker; versitygw. All on one machine, on loopback.
Unit        Seconds: median, 99th percentile and maximum over all rolls but the first two: kernels are loaded for the first
            segment, and the next one queues behind it. Memory in MB of 10^6 bytes: Pss after the last commit, and the highest
            resident set since the start (VmHWM), which is never below the highest Pss.
Promise     median <= median of boto3 + 0.3 s, and the 99th percentile <= its 99th percentile + 0.3 s; peak <= 180 MB.
Run         python -m benchmarks.latency [--rolls 110] [--json result.json]        (--tiny: 4 rolls of 1 MiB)     2 minutes
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from benchmarks.run_process import RunProcess, settings_of
from benchmarks.segments import MIB
from sidecar.discovery.watch import NewNames
from sidecar.randomness import SystemRandomness
from tests.real.topics import create_topic
from tests.servers.kafka import KafkaBroker
from tests.servers.versitygw import VersityGateway

TOPIC = "measured"
MARGIN_S, PEAK_MB_MAX = 0.3, 180.0
WARM_UP_ROLLS = 2
VALUE_BYTES = 8192
PATIENCE_S = 120.0


@dataclass
class Arrivals:
    """When which file came into a directory, watched by a thread of its own."""

    directory: Path
    suffix: str
    came_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def watching(self) -> Iterator[Arrivals]:
        names = NewNames()
        names.add(self.directory)
        thread = threading.Thread(target=self._watch, args=(names,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            names.interrupt()
            thread.join()
            names.close()

    def _watch(self, names: NewNames) -> None:
        while (found := names.wait()) is not None:
            now_s = time.perf_counter()
            for _, name in found:
                if name.endswith(self.suffix) and not name.startswith("."):
                    self.came_s.setdefault(name, now_s)


def main() -> int:
    """Measure and print; 1 if a promise is broken (never with --tiny)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rolls", type=int, default=110)
    parser.add_argument("--rate", type=float, default=1.2, help="segments per second")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rolls, segment_bytes = (4, MIB) if arguments.tiny else (arguments.rolls, 16 * MIB)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        result = measure(Path(scratch), rolls, segment_bytes, arguments.rate)
    result |= {"segment_bytes": segment_bytes, "load_before": load}
    for name in ("roll_to_commit_s", "boto3_put_s"):
        row = result[name]
        print(f"{name:17s} median {row['median']:6.3f}  p99 {row['p99']:6.3f}  max {row['max']:6.3f}  ({row['count']})")
    found = outcomes(result)
    for text, is_kept in found:
        print(text if is_kept else f"not kept: {text}")
    print(f"load {load:.1f} before")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if arguments.tiny or all(is_kept for _, is_kept in found) else 1


def outcomes(result: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """What was promised: the figures, and whether it is kept."""
    excess = {key: result["roll_to_commit_s"][key] - result["boto3_put_s"][key] for key in ("median", "p99")}
    above = f"median {excess['median']:.3f} s, p99 {excess['p99']:.3f} s (promised {MARGIN_S:g})"
    used = f"Pss {result['pss_mb']:.0f} MB after the last commit, peak {result['peak_mb']:.0f} MB (promised {PEAK_MB_MAX:g})"
    return [
        (f"above the transfer: {above}", max(excess.values()) <= MARGIN_S),
        (f"memory of run: {used}", result["peak_mb"] <= PEAK_MB_MAX),
    ]


def measure(scratch: Path, rolls: int, segment_bytes: int, rate: float) -> dict[str, Any]:
    """Latencies of so many rolls, memory after the last one, and latencies of a quarter as many puts of the same bytes."""
    with (
        VersityGateway(scratch / "store", options=["--quiet"]) as gateway,
        KafkaBroker("4.3.0", scratch / "broker", heap_mb=512) as broker,
    ):
        create_topic(broker, TOPIC, segment_bytes)
        settings = settings_of(gateway, broker.log_dirs[0], scratch / "state", broker.bootstrap)
        logs = Arrivals(broker.log_dirs[0] / f"{TOPIC}-0", ".log")
        with (
            RunProcess(scratch, settings) as run,
            logs.watching(),
            closing(_producing(broker, segment_bytes, rate)) as load,
        ):
            next(load)
            commits_directory = _wait_for(gateway.objects / gateway.bucket / "archive", "commits", load)
            commits = Arrivals(commits_directory, "")
            with commits.watching():
                before = len(logs.came_s)
                while len(logs.came_s) < before + rolls + WARM_UP_ROLLS:
                    next(load)
                deadline_s = time.perf_counter() + PATIENCE_S
                while len(list(commits_directory.iterdir())) < len(logs.came_s):
                    if time.perf_counter() > deadline_s:
                        raise TimeoutError("not every segment was committed:\n" + run.process.tail())
                    time.sleep(0.1)  # noqa: TID251 - real processes have no other clock
            memory = {"pss_mb": run.pss_mb(), "peak_mb": run.memory_mb()[1]}
        puts = _puts(gateway, next(iter(sorted((broker.log_dirs[0] / f"{TOPIC}-0").glob("*.log")))), max(5, rolls // 4))
    taken = _latencies(logs, commits)
    return {"roll_to_commit_s": _row(taken), "boto3_put_s": _row(puts), **memory}


def _producing(broker: KafkaBroker, segment_bytes: int, rate: float) -> Generator[None, None, None]:
    """A generator that writes a twentieth of a second's worth each time, in step with the clock."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0})
    value = SystemRandomness().random_bytes(VALUE_BYTES)
    per_step = max(1, round(segment_bytes * rate / VALUE_BYTES / 20))
    due_s = time.perf_counter()
    try:
        while True:
            for _ in range(per_step):
                producer.produce(TOPIC, value)
            producer.poll(0)
            due_s = max(due_s + 0.05, time.perf_counter())
            yield
            time.sleep(max(0.0, due_s - time.perf_counter()))  # noqa: TID251 - as above
    finally:
        producer.flush(30)


def _wait_for(root: Path, name: str, load: Iterator[None]) -> Path:
    """The first directory of this name below `root`, as soon as something lies in it; the load goes on meanwhile."""
    deadline_s = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < deadline_s:
        next(load)
        for found in root.rglob(name):
            if found.is_dir() and any(found.iterdir()):
                return found
    raise TimeoutError(f"no {name} below {root}")


def _puts(gateway: VersityGateway, source: Path, count: int) -> list[float]:
    body, taken = source.read_bytes(), []
    with closing(gateway.client()) as client:
        for number in range(count):
            began_s = time.perf_counter()
            client.put_object(Bucket=gateway.bucket, Key=f"alone/{number}", Body=body)
            taken.append(time.perf_counter() - began_s)
    return taken


def _latencies(logs: Arrivals, commits: Arrivals) -> list[float]:
    """The n-th roll ends the n-th segment, which is the n-th commit; the first ones came before commits were watched."""
    rolled_s = [came_s for _, came_s in sorted(logs.came_s.items())]
    taken = []
    for name, came_s in commits.came_s.items():
        digits = "".join(character for character in name if character.isdigit())
        number = int(digits) if digits else -1
        if WARM_UP_ROLLS <= number < len(rolled_s):
            taken.append(came_s - rolled_s[number])
    return taken


def _row(seconds: list[float]) -> dict[str, Any]:
    """`slowest`: the five slowest, by their number in the order in which they came."""
    ascending = sorted(seconds)
    last = len(ascending) - 1
    p99 = ascending[min(last, round(0.99 * last))]
    slowest = sorted(range(len(seconds)), key=lambda number: -seconds[number])[:5]
    at = {str(number): round(seconds[number], 3) for number in slowest}
    return {
        "median": statistics.median(ascending),
        "p99": p99,
        "max": ascending[-1],
        "count": len(ascending),
        "slowest": at,
    }


if __name__ == "__main__":
    sys.exit(main())
