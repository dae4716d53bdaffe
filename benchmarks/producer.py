"""Does a producer notice at the broker that `run` archives its segments?

Question    Time from `produce` to the broker's acknowledgement (acks=all), in rounds of two phases: without `run`, with it.
Input       A 4.3.0 broker, four partitions, segment.bytes 16 MiB, one producer at a steady rate; versitygw. All on one machine
            and its cores. `run` has default settings and a connection to the broker, and is alone in its phases: it is started
            before and has caught up before the clock runs. --lower: which processes have the lower priority of the unit in
            docs/how-to/install-on-a-machine.md: none, only the store, which would be elsewhere, or `run` and the store.
Unit        Milliseconds: median and 99th percentile of all messages of all phases of a kind, and their ratio. The ratio of each
            round shows the spread.
Promise     99th percentile with `run` <= 1.1 times the one without; the ratio of the medians is printed, too.
Run         python -m benchmarks.producer [--lower none|store|both] [--rounds 5] [--seconds 20] [--json result.json]     (--tiny)
            5 minutes
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.run_process import RunProcess, settings_of
from benchmarks.segments import MIB
from sidecar.randomness import SystemRandomness
from tests.servers.kafka import KafkaBroker
from tests.servers.versitygw import VersityGateway

P99_RATIO_MAX = 1.1
TOPIC = "measured"
PARTITIONS = 4
VALUE_BYTES = 1024
STEP_S = 0.01
NICENESS = 10
LOWER: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "store": frozenset({"store"}),
    "both": frozenset({"store", "run"}),
}
CATCH_UP_S_MAX = 120.0


@dataclass
class Latencies:
    """Of acknowledged messages, in milliseconds."""

    ms: list[float] = field(default_factory=list)
    failed: int = 0

    def percentile(self, share: float) -> float:
        """The latency that this share of the messages does not exceed."""
        ascending = sorted(self.ms)
        return ascending[min(len(ascending) - 1, int(share * len(ascending)))]

    def row(self) -> dict[str, float]:
        """For the table."""
        return {
            "p50_ms": self.percentile(0.5),
            "p99_ms": self.percentile(0.99),
            "messages": len(self.ms),
            "failed": self.failed,
        }


def main() -> int:
    """Measure and print; 1 if a message failed or the promise is broken (that never with --tiny)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lower", choices=LOWER, default="both", help="what has a lower priority (nice 10)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    parser.add_argument("--rate", type=int, default=6000, help="messages of 1 KiB per second")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rounds, seconds, rate = (2, 1.0, 500) if arguments.tiny else (arguments.rounds, arguments.seconds, arguments.rate)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        result = measure(Path(scratch), rounds, seconds, rate, MIB if arguments.tiny else 16 * MIB, arguments.lower)
    rows = result["without"], result["with"]
    for name, row in zip(("without run", "with run"), rows, strict=True):
        print(f"{name:12s} p50 {row['p50_ms']:8.2f} ms   p99 {row['p99_ms']:8.2f} ms   {row['messages']} messages")
    ratios = [rows[1][key] / rows[0][key] for key in ("p50_ms", "p99_ms")]
    of_rounds = [row["p99_ms"] / before["p99_ms"] for before, row in result["rounds"]]
    print(
        f"ratio: p50 {ratios[0]:.2f}, p99 {ratios[1]:.2f} (promised {P99_RATIO_MAX:g}); of {rounds} round(s): "
        f"{min(of_rounds):.2f} to {max(of_rounds):.2f}, median {statistics.median(of_rounds):.2f}\n"
        f"lower priority: {arguments.lower}; {result['archived_segments']:.0f} segments archived; load {load:.1f}"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps({**result, "load_before": load}, indent=2) + "\n")
    is_kept = arguments.tiny or ratios[1] <= P99_RATIO_MAX
    return 0 if is_kept and not any(row["failed"] for row in rows) else 1


def measure(scratch: Path, rounds: int, seconds: float, rate: int, segment_bytes: int, lower: str) -> dict[str, Any]:
    """Latencies of both kinds of phases."""
    phases: list[tuple[Latencies, Latencies]] = []
    archived = 0.0
    with (
        VersityGateway(scratch / "store", options=["--quiet"]) as gateway,
        KafkaBroker("4.3.0", scratch / "broker", heap_mb=512) as broker,
    ):
        if "store" in LOWER[lower]:
            _lower_priority(gateway.process.pid)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, PARTITIONS, 1, config={"segment.bytes": str(segment_bytes)})
        admin.create_topics([topic])[TOPIC].result(60)
        settings = settings_of(gateway, broker.log_dirs[0], scratch / "state", broker.bootstrap)
        _phase(broker, Latencies(), seconds, rate)  # the JVM warms up
        for _ in range(rounds):
            without, archiving = Latencies(), Latencies()
            phases.append((without, archiving))
            _phase(broker, without, seconds, rate)
            with RunProcess(scratch, settings) as run:
                if "run" in LOWER[lower]:
                    _lower_priority(run.process.pid)
                _wait_until_caught_up(run)
                _phase(broker, archiving, seconds, rate)
                archived += run.metric("segments_total", 'stage="committed"')
    return {
        "without": _all(without for without, _ in phases).row(),
        "with": _all(archiving for _, archiving in phases).row(),
        "rounds": [(without.row(), archiving.row()) for without, archiving in phases],
        "archived_segments": archived,
        "rate": rate,
        "lower": lower,
    }


def _all(phases: Iterable[Latencies]) -> Latencies:
    joined = Latencies()
    for latencies in phases:
        joined.ms += latencies.ms
        joined.failed += latencies.failed
    return joined


def _lower_priority(pid: int) -> None:
    """Linux has a niceness for each thread; later ones inherit it."""
    for thread in psutil.Process(pid).threads():
        os.setpriority(os.PRIO_PROCESS, thread.id, NICENESS)


def _wait_until_caught_up(run: RunProcess) -> None:
    deadline_s = time.perf_counter() + CATCH_UP_S_MAX
    while run.metric("pending_segments") > 0 and time.perf_counter() < deadline_s:
        time.sleep(0.2)  # noqa: TID251 - real processes have no other clock


def _phase(broker: KafkaBroker, latencies: Latencies, seconds: float, rate: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
    value = SystemRandomness().random_bytes(VALUE_BYTES)
    began_s = due_s = time.perf_counter()

    def send(number: int) -> None:
        sent_s = time.perf_counter()

        def acknowledged(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                latencies.ms.append((time.perf_counter() - sent_s) * 1000)
            else:
                latencies.failed += 1

        producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=acknowledged)

    number = 0
    while due_s - began_s < seconds:
        for _ in range(max(1, round(rate * STEP_S))):
            send(number)
            number += 1
        due_s = max(due_s + STEP_S, time.perf_counter())
        while (left_s := due_s - time.perf_counter()) > 0:
            producer.poll(left_s)
    producer.flush(60)


if __name__ == "__main__":
    sys.exit(main())
