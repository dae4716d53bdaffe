"""How do time and memory grow with bytes, with partitions and with keys?

Question    Whole processes of the installed program on inputs that grow 4, 10 or 20 times a step: `backfill` and `verify --deep` of
            more bytes; `backfill`, a second `backfill` with nothing to do and `status` of more partitions; `compact` of more keys.
            The first start of `run` with more partitions, all archived, until /readyz answers ok after its first complete check.
Input       Bytes: partitions of 1 GiB in real format (`benchmarks/segments.py`), four segments each; they are the same files by
            hard links, so the input takes 1 GiB of disk, and the archive all of it. Partitions: one rolled segment of 64 KiB each.
            `run`: as many rolled segments as in `benchmarks.idle`, an empty state directory, no broker (`assume_leader`).
            Keys: each comes once before any comes again, 1.3 records of about 33 bytes each. versitygw on the same machine.
Unit        Seconds of wall time and CPU seconds of the process and its children; the largest sum of Pss of them, in MB of 10^6
            bytes; of `run` its VmHWM. Exponent: of the power law through the smallest and the largest input, 1 for proportional
            growth; the start of a process makes it smaller.
Peer        The same command on the smallest input.
Promise     Exponent of the CPU seconds <= 1.1 on each axis. From the last input but one to the largest: memory <= 1.25 times for
            bytes and for keys, whose tables go to disk above a limit; <= 40 KB for each further partition,
            and <= 60 KB of `run`, which remembers segments: then 1 GiB, the chart's default, is enough for 15,000.
Run         python -m benchmarks.growth [--only bytes partitions run keys] [--write] [--json result.json]    (--tiny: half a minute)
            16 GiB need 18 GiB of disk. --write replaces the chart, and the table in README.md; it needs all inputs.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.compaction_input import Shape, write_partition
from benchmarks.idle import SEGMENTS
from benchmarks.measuring import Run, measured, put_on_page, today
from benchmarks.product_runs import PROGRAM, options, variables_of
from benchmarks.run_process import RunProcess, settings_of
from benchmarks.segments import CLUSTER_ID, MIB, TOPIC, write_log_dir

CHART = Path(__file__).parent / "growth.svg"
EXPONENT_MAX, PEAK_RATIO_MAX = 1.1, 1.25
PARTITION_MB_MAX = {"partitions": 0.04, "run": 0.06}
"""By axis: memory for each further partition."""
_ARCHIVED = f"partitions of {SEGMENTS} segments"
_RECORDS_PER_KEY = 1.3


@dataclass(frozen=True)
class Axis:
    """One way to grow. `sizes`: in `unit`, rising."""

    name: str
    unit: str
    sizes: Sequence[float]


FULL = (
    Axis("bytes", "GiB", (1, 4, 16)),
    Axis("partitions", "partitions", (100, 1000, 5000)),
    Axis("run", _ARCHIVED, (100, 1000, 5000)),
    Axis("keys", "million keys", (1, 20, 100)),
)
TINY = (
    Axis("bytes", "GiB", (1 / 64, 1 / 32)),
    Axis("partitions", "partitions", (2, 4)),
    Axis("run", _ARCHIVED, (2, 4)),
    Axis("keys", "million keys", (0.01, 0.02)),
)


@dataclass(frozen=True)
class Point:
    """A command on one input."""

    size: float
    run: Run


@dataclass(frozen=True)
class Line:
    """A command on all inputs of an axis."""

    axis: Axis
    command: str
    points: Sequence[Point]

    def exponent(self, field: str) -> float:
        """Of the power law between the smallest and the largest input."""
        first, last = self.points[0], self.points[-1]
        return math.log(getattr(last.run, field) / getattr(first.run, field)) / math.log(last.size / first.size)

    @property
    def model(self) -> str:
        """The straight lines through the smallest and the largest input, for docs/reference/sizing.md, and their largest error."""
        texts = []
        for field, unit in (("cpu_s", "CPU s"), ("peak_mb", "MB")):
            found = [(point.size, getattr(point.run, field)) for point in self.points]
            (smallest, first), (largest, last) = found[0], found[-1]
            slope = (last - first) / (largest - smallest)
            base = first - slope * smallest
            error = max(abs(base + slope * size - value) / value for size, value in found)
            texts.append(f"{base:.1f} + {slope:.4f} x {unit} (within {100 * error:.0f} %)")
        return f"{self.command}, x {self.axis.unit}: {', '.join(texts)}"

    @property
    def mb_more(self) -> float:
        """Peak memory for each further unit, between the last two inputs."""
        before, last = self.points[-2:]
        return (last.run.peak_mb - before.run.peak_mb) / (last.size - before.size)

    @property
    def keeps_promises(self) -> bool:
        before, last = self.points[-2:]
        is_flat = last.run.peak_mb <= PEAK_RATIO_MAX * before.run.peak_mb
        if self.axis.name in PARTITION_MB_MAX:
            is_flat = self.mb_more <= PARTITION_MB_MAX[self.axis.name]
        return is_flat and self.exponent("cpu_s") <= EXPONENT_MAX


def linked_partitions(log_dir: Path, partitions: int, segments: int, segment_bytes: int) -> None:
    """A log dir of so many partitions with the same segments, which are there once."""
    write_log_dir(log_dir, segments, segment_bytes)
    first = log_dir / f"{TOPIC}-0"
    end_offset = max(int(path.stem) for path in first.glob("*.log"))
    for number in range(1, partitions):
        directory = log_dir / f"{TOPIC}-{number}"
        directory.mkdir()
        for path in first.iterdir():
            os.link(path, directory / path.name)
    entries = "".join(f"{TOPIC} {number} {end_offset}\n" for number in range(partitions))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (log_dir / name).write_text(f"0\n{partitions}\n{entries}")
    (log_dir / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")


class Bench:
    """Runs commands against a store that is emptied after each input."""

    def __init__(self, gateway: Any, scratch: Path) -> None:
        self._gateway = gateway
        self._scratch = scratch

    def run(self, *arguments: str) -> Run:
        """Of the program, to its end."""
        variables = variables_of(self._gateway, f"s3://{self._gateway.bucket}/archive", self._scratch / "state")
        return measured([str(PROGRAM), *arguments, "--quiet"], variables, lambda: [self._gateway.process.pid])

    def backfill(self, log_dir: Path) -> Run:
        return self.run("backfill", "--log-dir", str(log_dir), "--assume-leader")

    @contextmanager
    def place(self) -> Iterator[Path]:
        """For an input; it, the state and the archive are removed."""
        place = self._scratch / "input"
        try:
            yield place
        finally:
            for path in (place, self._scratch / "state", self._gateway.objects / self._gateway.bucket / "archive"):
                shutil.rmtree(path, ignore_errors=True)

    def of_bytes(self, gib: float) -> dict[str, Run]:
        with self.place() as place:
            segment_bytes = 256 * MIB if gib >= 1 else int(gib * 256 * MIB)
            linked_partitions(place, max(1, round(gib)), 4, segment_bytes)
            return {
                "backfill": self.backfill(place),
                "verify --deep": self.run("verify", "--deep", "--engine", "local"),
            }

    def of_partitions(self, partitions: float) -> dict[str, Run]:
        with self.place() as place:
            linked_partitions(place, round(partitions), 1, 64 * 1024)
            return {
                "backfill": self.backfill(place),
                "backfill, nothing to do": self.backfill(place),
                "status": self.run("status"),
            }

    def of_run(self, partitions: float) -> dict[str, Run]:
        with self.place() as place:
            linked_partitions(place, round(partitions), SEGMENTS, 64 * 1024)
            self.backfill(place)
            state = self._scratch / "state"
            shutil.rmtree(state)
            load = os.getloadavg()[0]
            with RunProcess(self._scratch, settings_of(self._gateway, place, state, None)) as run:
                if run.metric("pending_segments"):
                    raise RuntimeError("not everything was archived")
                return {"run": Run(run.start_s, run.cpu_s(), 0.0, run.memory_mb()[1], load)}

    def of_keys(self, millions: float) -> dict[str, Run]:
        with self.place() as place:
            keys = round(millions * 1e6)
            shape = Shape(round(keys * _RECORDS_PER_KEY), keys, value_bytes=16, distinct=True)
            partition = write_partition(place / f"{TOPIC}-0", shape)
            return {"compact": self.run("compact", str(partition), "--out", str(place / "out"), "--engine", "local")}


def measure(axes: Sequence[Axis]) -> list[Line]:
    """All runs."""
    from tests.servers.versitygw import VersityGateway

    lines: list[Line] = []
    with (
        tempfile.TemporaryDirectory(prefix="growth-") as directory,
        VersityGateway(Path(directory) / "gateway", options=["--quiet"], optimised=True) as gateway,
    ):
        bench = Bench(gateway, Path(directory))
        ways: Mapping[str, Callable[[float], dict[str, Run]]] = {
            "bytes": bench.of_bytes,
            "partitions": bench.of_partitions,
            "run": bench.of_run,
            "keys": bench.of_keys,
        }
        for axis in axes:
            found: dict[str, list[Point]] = {}
            for size in axis.sizes:
                os.sync()
                for command, run in ways[axis.name](size).items():
                    found.setdefault(command, []).append(Point(size, run))
                    shown = f"{size:g} {axis.unit}, {command}"
                    print(
                        f"{shown:50s} {run.wall_s:8.2f} s  CPU {run.cpu_s:8.2f} s  {run.peak_mb:6.0f} MB",
                        file=sys.stderr,
                    )
            lines += [Line(axis, command, points) for command, points in found.items()]
    return lines


def table(lines: Sequence[Line]) -> str:
    """Markdown: a row for each command and input."""
    rows = ["| input | command | s | CPU s | peak MB | exponent of CPU s |", "|---|---|---|---|---|---|"]
    for line in lines:
        for point in line.points:
            exponent = f"{line.exponent('cpu_s'):.2f}" if point is line.points[-1] else ""
            rows.append(
                f"| {point.size:g} {line.axis.unit} | `{line.command}` | {point.run.wall_s:.1f} | {point.run.cpu_s:.1f} "
                f"| {point.run.peak_mb:.0f} | {exponent} |"
            )
    return "\n".join(rows)


_WIDTH, _HEIGHT, _LEFT, _TOP = 420, 260, 60, 30
_COLORS = ("#0b6e4f", "#2b6cb0", "#b7791f", "#9f1239", "#4a5568", "#6b46c1")


def chart(lines: Sequence[Line]) -> str:
    """SVG, both scales logarithmic: CPU seconds and memory in multiples of the smallest input's, over the input in multiples."""
    decades = math.log10(max(line.points[-1].size / line.points[0].size for line in lines))
    texts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 240}" height="{_TOP + _HEIGHT + 40}" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        '<text x="8" y="18" font-size="14">CPU seconds (solid) and peak memory (dashed), in multiples of the smallest input</text>',
        f'<path d="M{_LEFT} {_TOP}V{_TOP + _HEIGHT}H{_LEFT + _WIDTH}" fill="none" stroke="#4a5568"/>',
        f'<path d="M{_LEFT} {_TOP + _HEIGHT}L{_LEFT + _WIDTH} {_TOP}" stroke="#cbd5e0"/>',
    ]
    for power in range(int(decades) + 1):
        x, y = _LEFT + _WIDTH * power / decades, _TOP + _HEIGHT * (1 - power / decades)
        texts += [
            f'<text x="{x:.0f}" y="{_TOP + _HEIGHT + 16}">{10**power}x</text>',
            f'<text x="8" y="{y + 4:.0f}">{10**power}x</text>',
        ]
    for number, line in enumerate(lines):
        color = _COLORS[number % len(_COLORS)]
        for field, dash in (("cpu_s", ""), ("peak_mb", ' stroke-dasharray="4 3"')):
            texts.append(
                f'<path d="{_path(line, field, decades)}" fill="none" stroke="{color}" stroke-width="2"{dash}/>'
            )
        name = escape(f"{line.command}, {line.axis.unit}")
        texts.append(f'<text x="{_LEFT + _WIDTH + 12}" y="{_TOP + 16 + 18 * number}" fill="{color}">{name}</text>')
    return "\n".join([*texts, "</svg>", ""])


def _path(line: Line, field: str, decades: float) -> str:
    first = line.points[0]
    places = []
    for point in line.points:
        x = math.log10(point.size / first.size) / decades
        y = math.log10(max(getattr(point.run, field) / getattr(first.run, field), 1.0)) / decades
        places.append(f"{_LEFT + _WIDTH * x:.1f} {_TOP + _HEIGHT * (1 - y):.1f}")
    return "M" + "L".join(places)


def write(lines: Sequence[Line], about: str) -> None:
    """Put chart and table into their places."""
    CHART.write_text(chart(lines))
    put_on_page("growth", f"{about}\n\n{table(lines)}\n\n![Growth]({CHART.name})")


def main() -> int:
    """Measure and print; 1 if a promise is broken (never with --tiny)."""
    parser = options("How time and memory grow with bytes, partitions and keys.")
    parser.add_argument("--only", nargs="+", choices=[axis.name for axis in FULL])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.write and arguments.only:
        parser.error("--write replaces the whole table: it needs all inputs")
    axes = [axis for axis in (TINY if arguments.tiny else FULL) if not arguments.only or axis.name in arguments.only]
    about = f"{today()}, {os.cpu_count()} cores, load before {os.getloadavg()[0]:.1f}, one run each."
    lines = measure(axes)
    print(f"{about}\n\n{table(lines)}\n\n" + "\n".join(line.model for line in lines))
    if arguments.write:
        write(lines, about)
    if arguments.json:
        summary = [
            {**asdict(line), "exponent": line.exponent("cpu_s"), "mb_more": line.mb_more, "kept": line.keeps_promises}
            for line in lines
        ]
        Path(arguments.json).write_text(json.dumps({"about": about, "lines": summary}, indent=2) + "\n")
    broken = [f"{line.command} ({line.axis.name})" for line in lines if not line.keeps_promises]
    if broken:
        print(f"\nbroken promises: {', '.join(broken)}")
    return 1 if broken and not arguments.tiny else 0


if __name__ == "__main__":
    sys.exit(main())
