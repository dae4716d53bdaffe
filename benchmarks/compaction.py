"""How fast is a partition compacted, compared with the broker's own cleaner?

Question    Seconds from a partition directory to a complete one with one record per key: our `compact`, and the LogCleaner of a
            real 4.3.0 broker on the same segments.
Input       (a) 1,791 MiB: 15.1 million records of about 124 bytes, 1 million keys, uncompressed, batches of 1,000; (b) 12.5 million
            of them, zstd; (c) 1,000 partitions of 1 MiB; (d) 25 million records with 20 million keys. All in the page cache.
Unit        Seconds of wall time, medians; contestants alternate. Ours: everything, with indexes, snapshots and fsync, in threads
            of one process and on Spark in this container: warm after two runs, cold from the start of the process `compact` to
            its end. The broker: what its own log line says ("MB of log processed in ... seconds"), which leaves out nothing but
            its start.
Promise     Threads: two cores >= 12 x the broker, one core >= 8 x, cold <= 6 s, (d) <= 700 MB.
            Spark: two cores >= 8 x, one core >= 5 x, zstd >= 6 x, cold <= 8 s, (c) <= 2 ms each, (d) <= 300 MB of private memory
            per Python worker with a heap of 1 GiB.
Run         python -m benchmarks.compaction [--rounds 3] [--only warm cold zstd many keys growth] [--json result.json]
            (--tiny: small and without a broker). Cold starts want `tiered-sidecar prepare` before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.compaction_contestant import Contestant
from benchmarks.compaction_input import TOPIC, Shape, write_partition
from benchmarks.hosting import cleaning_broker
from sidecar.model import EngineName

CASES = ("warm", "cold", "zstd", "many", "keys")
GROWTH_MILLIONS = (1, 20, 100)
ZSTD = 4
_PROMISES: dict[str, tuple[float, str]] = {
    "two cores to the broker": (12.0, ">="),
    "one core to the broker": (8.0, ">="),
    "Spark, two cores to the broker": (8.0, ">="),
    "Spark, one core to the broker": (5.0, ">="),
    "zstd, two cores to the broker": (6.0, ">="),
    "cold start to output, s": (6.0, "<="),
    "Spark, cold start to output, s": (8.0, "<="),
    "1,000 partitions, ms each": (2.0, "<="),
    "20 M keys, MB": (700.0, "<="),
    "20 M keys, MB per worker of Spark": (300.0, "<="),
    "MB more for each further million keys": (1.0, "<="),
}


@dataclass
class Figures:
    """Seconds by contestant, and what follows from them by the name of its promise."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    load: list[float] = field(default_factory=list)

    def add(self, contestant: str, seconds: float) -> None:
        self.seconds.setdefault(contestant, []).append(seconds)
        self.load.append(os.getloadavg()[0])
        print(f"  {contestant:28s} {seconds:8.3f} s   load {self.load[-1]:.1f}", flush=True)

    def median(self, contestant: str) -> float:
        return statistics.median(self.seconds[contestant])


@dataclass(frozen=True)
class Setting:
    """Where and how much."""

    scratch: Path
    rounds: int
    tiny: bool

    def shape(self, shape: Shape) -> Shape:
        """The same in small for --tiny."""
        if not self.tiny:
            return shape
        return Shape(20_000, shape.keys // 1000, codec=shape.codec, segment_bytes=1_000_000, distinct=shape.distinct)


def warm(setting: Setting, figures: Figures) -> None:
    """Two cores, one core and the broker, alternately."""
    contestants = [(engine, cores) for engine in (EngineName.LOCAL, EngineName.SPARK) for cores in (2, 1)]
    _in_turn(setting, figures, setting.shape(Shape(15_148_001, 1_000_000)), "", contestants)
    if not setting.tiny:
        broker_s = figures.median("broker")
        figures.ratios["two cores to the broker"] = broker_s / figures.median("local, 2 cores")
        figures.ratios["one core to the broker"] = broker_s / figures.median("local, 1 core")
        figures.ratios["Spark, two cores to the broker"] = broker_s / figures.median("spark, 2 cores")
        figures.ratios["Spark, one core to the broker"] = broker_s / figures.median("spark, 1 core")


def zstd(setting: Setting, figures: Figures) -> None:
    """Compressed input, which both decompress, and of which both compress what they rebuild."""
    _in_turn(
        setting, figures, setting.shape(Shape(12_500_000, 1_000_000, codec=ZSTD)), "zstd, ", [(EngineName.SPARK, 2)]
    )
    if not setting.tiny:
        ratio = figures.median("zstd, broker") / figures.median("zstd, spark, 2 cores")
        figures.ratios["zstd, two cores to the broker"] = ratio


def _in_turn(
    setting: Setting, figures: Figures, shape: Shape, name: str, contestants: Sequence[tuple[EngineName, int]]
) -> None:
    partition = write_partition(setting.scratch / f"{name[:4]}in" / f"{TOPIC}-0", shape)
    with ExitStack() as stack:
        ours = {
            f"{name}{engine}, {cores} core{'s' * (cores > 1)}": stack.enter_context(Contestant(cores, engine))
            for engine, cores in contestants
        }
        for contestant in ours.values():
            for _ in range(2):
                contestant.compact(partition, setting.scratch / "out")
        for turn in range(setting.rounds):
            if not setting.tiny:
                figures.add(f"{name}broker", broker_s(partition, setting.scratch / f"{name[:4]}broker-{turn}"))
            for _ in range(3):
                for label, contestant in ours.items():
                    figures.add(label, contestant.compact(partition, setting.scratch / "out"))
    shutil.rmtree(partition.parent)


def cold(setting: Setting, figures: Figures) -> None:
    """The command, from the start of its process to its end."""
    partition = write_partition(setting.scratch / "cold" / f"{TOPIC}-0", setting.shape(Shape(15_148_001, 1_000_000)))
    out = setting.scratch / "cold-out" / f"{TOPIC}-0"
    command = [sys.executable, "-m", "sidecar", "compact", str(partition), "--out", str(out)]
    for _ in range(setting.rounds):
        for engine in (EngineName.LOCAL, EngineName.SPARK):
            started = time.perf_counter()
            subprocess.run([*command, "--engine", engine], check=True, capture_output=True)
            figures.add(f"{engine}, cold", time.perf_counter() - started)
            shutil.rmtree(out)
    figures.ratios["cold start to output, s"] = figures.median("local, cold")
    figures.ratios["Spark, cold start to output, s"] = figures.median("spark, cold")
    shutil.rmtree(partition.parent)


def many(setting: Setting, figures: Figures) -> None:
    """Small partitions, compacted in one job: headers have been read before, and outputs wait as parts."""
    count = 20 if setting.tiny else 1000
    root = setting.scratch / "many"
    for number in range(count):
        shape = Shape(8400 if not setting.tiny else 100, 2000, segment_bytes=600_000, seed=number)
        write_partition(root / f"{TOPIC}-{number}", shape)
    with Contestant(2) as contestant:
        for _ in range(setting.rounds + 1):
            seconds = contestant.compact_all(root, setting.scratch / "out")
            figures.add(f"{count} partitions", seconds)
    figures.ratios["1,000 partitions, ms each"] = (
        statistics.median(figures.seconds[f"{count} partitions"][1:]) / count * 1000
    )
    shutil.rmtree(root)


def keys(setting: Setting, figures: Figures) -> None:
    """More keys than any table has slots: memory must not follow them."""
    shape = setting.shape(Shape(25_000_000, 20_000_000, distinct=True))
    partition = write_partition(setting.scratch / "keys" / f"{TOPIC}-0", shape)
    of_engine = {EngineName.LOCAL: "20 M keys, MB", EngineName.SPARK: "20 M keys, MB per worker of Spark"}
    for engine, ratio in of_engine.items():
        with Contestant(2, engine) as contestant:
            figures.add(f"20 M keys, {engine}", contestant.compact(partition, setting.scratch / "out"))
            figures.ratios[ratio] = contestant.largest_bytes / 1e6
    shutil.rmtree(partition.parent)


def growth(setting: Setting, figures: Figures) -> None:
    """Threads, by the number of keys. 100 million of them take 17 GB of disk."""
    found_mb: list[float] = []
    for millions in GROWTH_MILLIONS:
        shape = Shape(1_250_000 * millions, 1_000_000 * millions, value_bytes=20, distinct=True)
        partition = write_partition(setting.scratch / "growth" / f"{TOPIC}-0", setting.shape(shape))
        with Contestant(2, EngineName.LOCAL) as contestant:
            figures.add(f"{millions} M keys", contestant.compact(partition, setting.scratch / "out"))
        found_mb.append(contestant.largest_bytes / 1e6)
        print(f"  {millions} M keys: {found_mb[-1]:,.0f} MB", flush=True)
        shutil.rmtree(partition.parent)
    *_, before, last = GROWTH_MILLIONS
    figures.ratios["MB more for each further million keys"] = (found_mb[-1] - found_mb[-2]) / (last - before)


def broker_s(partition: Path, directory: Path) -> float:
    """Seconds that the cleaner of a fresh 4.3.0 broker takes for these segments, from its own log."""
    with cleaning_broker(partition, directory) as broker:
        waiting = threading.Event()
        for _ in range(1200):
            if (seconds := broker.cleaned_s) is not None:
                return seconds
            waiting.wait(0.25)
    raise RuntimeError("the broker cleaned nothing within five minutes")


def _verdicts(figures: Figures) -> Iterator[bool]:
    for name, found in figures.ratios.items():
        promised, relation = _PROMISES[name]
        kept = found >= promised if relation == ">=" else found <= promised
        print(f"{name:32s} {found:8.2f}   promised {relation} {promised:g}{'' if kept else '   NOT KEPT'}")
        yield kept


def main() -> int:
    """Measure and print; 1 if a promise is broken (never with --tiny)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=(*CASES, "growth"), default=CASES)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    measured: dict[str, Callable[[Setting, Figures], None]] = {
        "warm": warm, "cold": cold, "zstd": zstd, "many": many, "keys": keys, "growth": growth,
    }  # fmt: skip
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="compaction-benchmark-") as scratch:
        setting = Setting(Path(scratch), 1 if arguments.tiny else arguments.rounds, arguments.tiny)
        for name in arguments.only:
            print(name, flush=True)
            measured[name](setting, figures)
    kept = all(list(_verdicts(figures)))
    if arguments.json:
        found = {"seconds": figures.seconds, "ratios": figures.ratios, "largest_load": max(figures.load)}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if kept or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
