"""See the package."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from benchmarks.measuring import Run, Store
from benchmarks.peers.bench import OURS, Bench, Road, Traffic
from benchmarks.peers.compacting import compact_road
from benchmarks.peers.files import archive_road, restore_road, verify_road
from benchmarks.peers.page import Row, outcome, table, write
from tests.servers.process import ServerError

ROADS = ("archive", "restore", "verify", "topic", "compact")


def _roads(bench: Bench, only: tuple[str, ...]) -> Mapping[str, Callable[[], Road]]:
    roads: dict[str, Callable[[], Road]] = {
        "archive": lambda: archive_road(bench),
        "restore": lambda: restore_road(bench),
        "verify": lambda: verify_road(bench),
        "compact": lambda: compact_road(bench),
    }
    if not bench.tiny:
        from benchmarks.peers.brokers import Brokers, archivers, topic_road

        brokers = Brokers(bench)
        roads["topic"] = lambda: topic_road(brokers)
        roads["archive"] = lambda: _with(archive_road(bench), archivers(brokers))
    return {name: road for name, road in roads.items() if name in only}


def _with(road: Road, more: Mapping[str, Callable[[Store], Run]]) -> Road:
    uses_store = road.uses_store | {"kafka-backup"}
    return replace(road, contestants={**road.contestants, **more}, uses_store=uses_store)


def _without(road: Road, left_out: Sequence[str]) -> Road:
    contestants = {name: run for name, run in road.contestants.items() if name not in left_out}
    return replace(
        road, contestants=contestants, promises=[found for found in road.promises if found.ours in contestants]
    )


def measure(bench: Bench, road: Road, rounds: int) -> list[Row]:
    """Each contestant once to warm up, through the proxy if it uses the store, then alternately. One that fails is left out.

    Each round's order is drawn, the same one in each run: what one leaves to the next (a file system that still frees blocks)
    concerns all of them.
    """
    errors: dict[str, str] = {}
    traffic: dict[str, Traffic] = {}
    runs: dict[str, list[Run]] = {name: [] for name in road.contestants}
    for turn in range(-1, rounds):
        names = [name for name in road.contestants if name not in errors]
        if turn >= 0:
            Random(turn).shuffle(names)
        for name in names:
            os.sync()  # else one contestant writes out what another one has left
            try:
                if turn >= 0:
                    runs[name].append(road.contestants[name](bench.store))
                    print(f"{road.name} {turn + 1}/{rounds} {name:50s} {runs[name][-1].wall_s:7.1f} s", file=sys.stderr)
                elif name in road.uses_store:
                    traffic[name] = bench.counted(road.contestants[name])
                else:
                    road.contestants[name](bench.store)
            except (ServerError, RuntimeError, OSError, subprocess.CalledProcessError) as error:
                errors[name] = str(error)
                print(f"{road.name} {name}: {error}", file=sys.stderr)
                if bench.tiny or name.startswith(OURS):
                    raise
    return [Row(name, runs[name], traffic.get(name), errors.get(name)) for name in road.contestants]


def main() -> int:
    """Measure, print the tables; 1 if a promise is broken (never with --tiny: that measures nothing)."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description="Other programs and ours, in the same tasks.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--segments", type=int, default=6, help="of 256 MiB each; default: 6")
    parser.add_argument("--only", nargs="+", choices=ROADS, default=ROADS)
    parser.add_argument("--leave-out", nargs="+", default=(), metavar="CONTESTANT", help="of other programs, by name")
    parser.add_argument("--dir", help="where to work, with 12 GB free; default: the directory for temporary files")
    parser.add_argument("--tiny", action="store_true", help="shows that the benchmark runs")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--write", action="store_true", help="replace the tables and charts in benchmarks/")
    arguments = parser.parse_args()
    rounds = 1 if arguments.tiny else arguments.rounds
    found: dict[str, object] = {}
    is_kept = True
    with (
        tempfile.TemporaryDirectory(dir=arguments.dir) as scratch,
        Bench(Path(scratch), arguments.tiny, arguments.segments) as bench,
    ):
        for name, prepare in _roads(bench, arguments.only).items():
            road = _without(prepare(), arguments.leave_out)
            rows = measure(bench, road, rounds)
            print(f"\n{road.title}, {road.size_bytes / 1e6:,.0f} MB, {rounds} round(s)\n\n{table(road, rows)}")
            found[name] = {row.name: row.summary() for row in rows}
            is_kept = is_kept and all(outcome(promise, road, rows)[0] for promise in road.promises)
            if arguments.write:
                write(road, rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if is_kept or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
