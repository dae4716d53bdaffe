"""How much faster do `verify --deep` and `compact --archive` become with each worker of a Spark cluster?

Question    Seconds of the work with 1, 2 and 4 workers that each have the same part of a core; bytes that go through the driver.
Input       Archives in versitygw on the same machine: S bytes in one partition, then 4 S in four. Segments of 64 MiB. verify: S is
            2.4 GB in real format (`benchmarks/segments.py`). compact: S is 0.7 GB, of which each key comes 2.5 times.
Unit        Seconds of the work: from the begin of Spark's first task to the end of its last one, by Spark's event log, for 4 S less
            those for S. The log leaves out the start of the process and of executors. The difference leaves out that of Python in
            the first tasks. CPU seconds of all workers, by the same difference. Medians of the rounds. Speed: seconds with one
            worker / seconds with n. Efficiency: speed(n) / n. Gain of each added worker, from the row before with m workers:
            (speed(n) - speed(m)) / (n - m). Bytes of the driver: all that its ports and its connections to the store carry, both
            ways, for 4 S, in % of the input.
Peer        The same command with one worker. And a bare proof of what verify reads: on each worker, in the same control group,
            one process of boto3 that reads its part of the logs and computes one checksum of each byte, without Spark and
            without anything to agree on. What it loses with more workers, the machine takes.
Promise     Efficiency >= 0.8; bytes of the driver <= 1 % of the input.
Run         python -m benchmarks.scale_out [--rounds 5] [--only verify compact] [--write] [--json result.json]
            --write replaces the chart, and the table in README.md; it needs both commands. A round takes 15 minutes, --tiny two.
            Needs 20 GB of disk, root for control groups, and `tiered-sidecar prepare` before: else the first run compiles kernels.

Workers are processes of one machine. Each has a control group that gets 15 % of a core, so that four of them, the driver and the
store need less than two cores. All of these have precedence over other work on the machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from benchmarks.compaction_input import Shape, write_partition
from benchmarks.cpu_groups import CpuGroup, NoCpuGroups
from benchmarks.measuring import Store, put_on_page, today
from benchmarks.peers.copiers import boto3_command
from benchmarks.product_runs import PROGRAM, options, variables_of
from benchmarks.segments import MIB, TOPIC, write_checkpoints, write_log_dir

CHART = Path(__file__).parent / "scale_out.svg"
EFFICIENCY_MIN, DRIVER_PERCENT_MAX = 0.8, 1.0
TIMES = 4
_TOPICS = {"first": 1, "first|second": TIMES}
"""By pattern of topics, how many partitions they have."""
_COMMANDS = {"verify": "verify --deep", "compact": "compact --archive"}
_BARE = "a bare proof"


@dataclass(frozen=True)
class Scale:
    """`cores`: of each worker. `segments`: of each partition that is verified. `shape`: of each that is compacted."""

    workers: Sequence[int]
    cores: float
    segments: int
    segment_bytes: int
    shape: Shape


FULL = Scale((1, 2, 4), 0.15, 36, 64 * MIB, Shape(6_000_000, 2_400_000, segment_bytes=64 * MIB))
TINY = Scale((1, 2), 1.0, 2, MIB, Shape(20_000, 8_000, segment_bytes=MIB))


@dataclass(frozen=True)
class Job:
    """What one run of a command did. `work_s`: from the first task to the last. CPU seconds are the workers', start included.

    Of a bare proof, tasks are processes.
    """

    size_bytes: int
    process_s: float
    work_s: float
    tasks: int
    jvm_cpu_s: float
    python_cpu_s: float
    driver_bytes: int


@dataclass(frozen=True)
class Point:
    """A command with so many workers: pairs of runs, on S bytes and on 4 S."""

    workers: int
    pairs: list[tuple[Job, Job]] = field(default_factory=list)

    def more(self, field_name: str) -> float:
        """What 4 S takes more than S, the median of all pairs."""
        differences = (getattr(large, field_name) - getattr(small, field_name) for small, large in self.pairs)
        return float(statistics.median(differences))

    def whole(self, field_name: str) -> float:
        """What 4 S takes, the median."""
        return float(statistics.median(getattr(large, field_name) for _, large in self.pairs))

    @property
    def driver_percent(self) -> float:
        return 100 * self.whole("driver_bytes") / self.whole("size_bytes")


@dataclass(frozen=True)
class Line:
    """A command with 1 worker, and with more. Nothing is promised of a bare proof."""

    command: str
    points: Sequence[Point]

    def speed(self, point: Point) -> float:
        """In multiples of one worker's."""
        return self.points[0].more("work_s") / point.more("work_s")

    def efficiency(self, point: Point) -> float:
        return self.speed(point) / point.workers

    def gain(self, point: Point) -> float | None:
        """Of speed by each worker that is added to those of the point before, in multiples of one worker's speed."""
        at = self.points.index(point)
        if not at:
            return None
        before = self.points[at - 1]
        return (self.speed(point) - self.speed(before)) / (point.workers - before.workers)

    @property
    def keeps_promises(self) -> bool:
        return self.command == _BARE or all(
            self.efficiency(point) >= EFFICIENCY_MIN and point.driver_percent <= DRIVER_PERCENT_MAX
            for point in self.points
        )


def input_of(log_dir: Path, name: str, scale: Scale) -> int:
    """A log dir with both topics, whose partitions are the same files; how many bytes of segments a partition has."""
    written = log_dir / f"{TOPIC}-0"
    if name == "verify":
        write_log_dir(log_dir, scale.segments, scale.segment_bytes)
    else:
        write_partition(written, scale.shape)
        (written / "partition.metadata").write_text("version: 0\ntopic_id: bWVhc3VyZWQtdG9waWMtMQ")
    end_offset = max(int(path.stem) for path in written.glob("*.log"))
    write_checkpoints(log_dir, end_offset)
    partitions = [("first", 0), *(("second", number) for number in range(TIMES - 1))]
    for topic, number in partitions:
        directory = log_dir / f"{topic}-{number}"
        directory.mkdir()
        for path in written.iterdir():
            os.link(path, directory / path.name)
    entries = "".join(f"{topic} {number} {end_offset}\n" for topic, number in partitions)
    for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (log_dir / checkpoint).write_text(f"0\n{TIMES}\n{entries}")
    size_bytes = sum(path.stat().st_size for path in written.glob("*.log"))
    shutil.rmtree(written)
    return size_bytes


@dataclass
class CpuWatch:
    """CPU seconds of what the workers start, by JVM or Python, read until the context ends: the last moments are lost."""

    groups: Sequence[CpuGroup]
    used: dict[int, tuple[str, float]] = field(default_factory=dict)

    def __enter__(self) -> CpuWatch:
        self._before = {pid for group in self.groups for pid in group.pids()}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def seconds(self, program: str) -> float:
        return sum(cpu_s for name, cpu_s in self.used.values() if name.startswith(program))

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            for pid in {pid for group in self.groups for pid in group.pids()} - self._before:
                try:
                    process = psutil.Process(pid)
                    times = process.cpu_times()
                    self.used[pid] = (process.name(), times.user + times.system)
                except psutil.NoSuchProcess:
                    continue


class Bench:
    """Archives of both inputs, and clusters that work on them."""

    def __init__(self, stack: ExitStack, scratch: Path, scale: Scale) -> None:
        from tests.servers.toxiproxy import Toxiproxy
        from tests.servers.versitygw import VersityGateway

        gateway = VersityGateway(scratch / "store", options=["--quiet", "--keep-alive"], optimised=scale is FULL)
        self.gateway = stack.enter_context(gateway)
        self.proxies = stack.enter_context(Toxiproxy(scratch))
        self.scratch, self.scale = scratch, scale

    def variables(self, name: str) -> dict[str, str]:
        return variables_of(self.gateway, f"s3://{self.gateway.bucket}/{name}", self.scratch / "state")

    def program(self, name: str, *arguments: str) -> None:
        """On this machine, to its end."""
        environment = {**os.environ, **self.variables(name)}
        subprocess.run([str(PROGRAM), *arguments, "--quiet"], env=environment, check=True, stdout=subprocess.DEVNULL)

    def archive(self, name: str) -> int:
        """Write and back-fill an input."""
        log_dir = self.scratch / f"logs-{name}"
        size_bytes = input_of(log_dir, name, self.scale)
        self.program(name, "backfill", "--log-dir", str(log_dir), "--assume-leader")
        return size_bytes

    @contextmanager
    def cluster(self, workers: int) -> Iterator[Cluster]:
        """With each worker in a group of its own."""
        from tests.servers.spark_cluster import SparkCluster

        keys = {name: value for name, value in self.variables("").items() if name.endswith(("_KEY", "_KEY_ID"))}
        keys["PYTHONPATH"] = str(Path(__file__).parents[1])
        with ExitStack() as stack:
            groups = [
                stack.enter_context(CpuGroup(f"scale-out-{number}", self.scale.cores)) for number in range(workers)
            ]
            place = self.scratch / f"spark-{workers}-{time.monotonic_ns()}"
            cluster = stack.enter_context(SparkCluster(place, workers=workers, slots=2, environment=keys))
            for group, worker in zip(groups, cluster.workers, strict=True):
                group.add(worker.pid)
            yield Cluster(self, cluster.url, groups)


@dataclass(frozen=True)
class Cluster:
    """Runs commands on `len(groups)` workers."""

    bench: Bench
    url: str
    groups: Sequence[CpuGroup]

    def run(self, name: str, topics: str, partition_bytes: int) -> Job:
        """One command on the topics of this pattern; a compaction is undone."""
        events = self.bench.scratch / f"events-{time.monotonic_ns()}"
        events.mkdir()
        driver = DriverPorts(self.bench)
        properties = [
            *driver.options,
            *self._options(),
            "spark.eventLog.enabled=true",
            "spark.eventLog.compress=false",
            f"spark.eventLog.dir=file:{events}",
        ]
        command = ["verify", "--deep"] if name == "verify" else ["compact", "--archive", self._url(name)]
        more = [] if name == "verify" else ["--segment-bytes", str(self.bench.scale.shape.segment_bytes)]
        environment = {
            **os.environ,
            **self.bench.variables(name),
            "TIERED_SIDECAR__SPARK__OPTIONS": json.dumps(properties),
            "TIERED_SIDECAR__SPARK__EXECUTOR_MEMORY_BYTES": str(480 * MIB),
            "TIERED_SIDECAR__SPARK__DRIVER_MEMORY_BYTES": str(512 * MIB),
            **driver.environment,
        }
        begun_s = time.perf_counter()
        with CpuWatch(self.groups) as watch:
            arguments = [*command, "--topic", topics, *more, "--master", self.url, "--engine", "spark", "--quiet"]
            ended = subprocess.run(
                [str(PROGRAM), *arguments], env=environment, capture_output=True, text=True, check=False
            )
        if ended.returncode:
            raise RuntimeError(f"{name} ended with {ended.returncode}: {ended.stderr[-2000:]}")
        process_s = time.perf_counter() - begun_s
        tasks = list(tasks_of(events))
        job = Job(
            _TOPICS[topics] * partition_bytes,
            process_s,
            max(end for _, end in tasks) - min(begin for begin, _ in tasks),
            len(tasks),
            watch.seconds("java"),
            watch.seconds("python"),
            driver.bytes_carried(),
        )
        print(f"{name}, {len(self.groups)} workers, load {os.getloadavg()[0]:.1f}: {job}", file=sys.stderr)
        if name == "compact":
            self.bench.program(name, "compact", "--archive", self._url(name), "--undo", "--topic", topics)
        return job

    def read(self, name: str, topics: str, partition_bytes: int) -> Job:
        """A bare proof of what these topics have."""
        gateway = self.bench.gateway
        store = Store(gateway.endpoint, gateway.bucket, gateway.region, gateway.access_key, gateway.secret_key)
        bucket = gateway.objects / gateway.bucket
        objects = sorted((bucket / name).rglob("*.log"))
        keys = [str(path.relative_to(bucket)) for path in objects if re.search(rf"/({topics})/", str(path))]
        begun_s, workers = time.perf_counter(), len(self.groups)
        with CpuWatch(self.groups) as watch, ExitStack() as stack:
            processes = []
            for number, group in enumerate(self.groups):
                task = {"keys": keys[number::workers], "files_at_once": 1, "checksums": 1}
                process = subprocess.Popen(boto3_command(store, task), stdout=subprocess.PIPE, text=True)
                group.add(process.pid)
                processes.append(stack.enter_context(process))
            copying_s = [float(process.communicate()[0]) for process in processes]
        process_s = time.perf_counter() - begun_s
        size_bytes, cpu_s = _TOPICS[topics] * partition_bytes, watch.seconds("python")
        job = Job(size_bytes, process_s, max(copying_s), workers, watch.seconds("java"), cpu_s, 0)
        print(f"{_BARE}, {workers} workers, load {os.getloadavg()[0]:.1f}: {job}", file=sys.stderr)
        return job

    def _url(self, name: str) -> str:
        return f"s3://{self.bench.gateway.bucket}/{name}"

    def _options(self) -> list[str]:
        workers = len(self.groups)
        return [
            "spark.executor.cores=1",
            f"spark.cores.max={workers}",
            f"spark.executor.instances={workers}",
            # Larger results would come over connections that the driver opens, which are not counted.
            "spark.task.maxDirectResultSize=64m",
        ]


class DriverPorts:
    """A driver whose bytes are counted: its store is behind a proxy, and executors reach its ports through others."""

    _HOST = "127.0.0.2"

    def __init__(self, bench: Bench) -> None:
        from tests.servers.process import free_port

        self._proxies = bench.proxies
        ports = {"spark.driver.port": free_port(), "spark.driver.blockManager.port": free_port()}
        # Spark announces the ports on which it listens: the proxies have the same ones on another address.
        through = [bench.proxies.proxy(f"driver-{port}", port, (self._HOST, port)) for port in ports.values()]
        store = bench.proxies.proxy(f"store-{ports['spark.driver.port']}", bench.gateway.port)
        self._through = [store, *through]
        self.options = [f"spark.driver.host={self._HOST}", "spark.driver.bindAddress=127.0.0.1"]
        self.options += [f"{name}={port}" for name, port in ports.items()]
        # Executors have no such variable, and go to the store directly.
        self.environment = {"HTTP_PROXY": store.endpoint, "http_proxy": store.endpoint, "NO_PROXY": "", "no_proxy": ""}

    def bytes_carried(self) -> int:
        """By all connections, both ways, once the driver has ended. Raises RuntimeError if nothing was counted somewhere."""
        for proxy in self._through:
            proxy.set_enabled(False)  # it counts what connections carried when they end
        carried: list[int] = []
        for _ in range(50):
            time.sleep(0.1)  # noqa: TID251 - a real process has no other clock
            before, carried = carried, [sum(self._proxies.bytes_through(proxy.name)) for proxy in self._through]
            if carried == before:
                break
        if not all(carried[:2]):
            raise RuntimeError(f"bytes of the driver were not counted: {carried}")
        return sum(carried)


def tasks_of(events: Path) -> Iterator[tuple[float, float]]:
    """When each task began and ended, in seconds."""
    for path in events.rglob("events_*"):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                info = event["Task Info"]
                yield info["Launch Time"] / 1000, info["Finish Time"] / 1000


def measure(scale: Scale, names: Sequence[str], rounds: int) -> list[Line]:
    """All runs. Raises NoCpuGroups."""
    lines = {name: Line(_COMMANDS[name], [Point(workers) for workers in scale.workers]) for name in names}
    bare = Line(_BARE, [Point(workers) for workers in scale.workers])
    with tempfile.TemporaryDirectory(prefix="scale-out-") as directory, ExitStack() as stack:
        bench = Bench(stack, Path(directory), scale)
        for name, line in lines.items():
            size_bytes = bench.archive(name)
            os.sync()
            for turn in range(rounds):
                at = turn % len(line.points)
                both = list(zip(line.points, bare.points, strict=True))
                for point, peer in (*both[at:], *both[:at]):
                    with bench.cluster(point.workers) as cluster:
                        small, large = (cluster.run(name, topics, size_bytes) for topics in _TOPICS)
                        point.pairs.append((small, large))
                        if name == "verify":
                            small, large = (cluster.read(name, topics, size_bytes) for topics in _TOPICS)
                            peer.pairs.append((small, large))
    return [*lines.values(), *([bare] if "verify" in names else [])]


_HEAD = (
    "command, 4 S", "workers", "s", "efficiency", "gain of each added worker",
    "Python CPU s", "JVM CPU s", "whole process, s", "driver, MB", "driver, %",
)  # fmt: skip


def table(lines: Sequence[Line]) -> str:
    """Markdown: a row for each command and number of workers."""
    rows = [
        f"| {' | '.join(_HEAD)} |",
        "|---" * len(_HEAD) + "|",
    ]
    for line in lines:
        for point in line.points:
            gain = "" if (more := line.gain(point)) is None else f"{more:.2f}"
            jvm_cpu_s, python_cpu_s = point.more("jvm_cpu_s"), point.more("python_cpu_s")
            rows.append(
                f"| `{line.command}`, {point.whole('size_bytes') / 1e9:.1f} GB | {point.workers} | {point.more('work_s'):.1f} "
                f"| {line.efficiency(point):.2f} | {gain} | {python_cpu_s:.1f} | {jvm_cpu_s:.1f} | {point.whole('process_s'):.0f} "
                f"| {point.whole('driver_bytes') / 1e6:.1f} | {point.driver_percent:.2f} |"
            )
    return "\n".join(rows)


_SIZE, _LEFT, _TOP = 260, 40, 30
_COLORS = ("#0b6e4f", "#2b6cb0", "#718096")


def chart(lines: Sequence[Line]) -> str:
    """SVG: speed in multiples of one worker's over the number of workers, the promise dashed."""
    most = max(point.workers for line in lines for point in line.points)

    def place(workers: float, speed: float) -> str:
        return f"{_LEFT + _SIZE * workers / most:.1f} {_TOP + _SIZE * (1 - speed / most):.1f}"

    promised = f"M{place(1, 1)}L{place(most, EFFICIENCY_MIN * most)}"
    texts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _SIZE + 180}" height="{_TOP + _SIZE + 40}" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        '<text x="8" y="18" font-size="14">Speed by number of workers, in multiples of one worker; promised: dashed</text>',
        f'<path d="M{_LEFT} {_TOP}V{_TOP + _SIZE}H{_LEFT + _SIZE}" fill="none" stroke="#4a5568"/>',
        f'<path d="M{place(1, 1)}L{place(most, most)}" stroke="#cbd5e0"/>',
        f'<path d="{promised}" stroke="#9f1239" stroke-dasharray="4 3"/>',
    ]
    for workers in range(1, most + 1):
        texts += [
            f'<text x="{_LEFT + _SIZE * workers / most - 4:.0f}" y="{_TOP + _SIZE + 16}">{workers}</text>',
            f'<text x="16" y="{_TOP + _SIZE * (1 - workers / most) + 4:.0f}">{workers}x</text>',
        ]
    for number, line in enumerate(lines):
        path = "L".join(place(point.workers, line.speed(point)) for point in line.points)
        color, y = _COLORS[number], _TOP + 16 + 18 * number
        texts += [
            f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>',
            f'<text x="{_LEFT + _SIZE + 12}" y="{y}" fill="{color}">{line.command}</text>',
        ]
    return "\n".join([*texts, "</svg>", ""])


def main() -> int:
    """Measure and print; 1 if a promise is broken (never with --tiny), 2 if it cannot be measured here."""
    parser = options("How much faster the cluster becomes with each worker.")
    parser.add_argument("--only", nargs="+", choices=list(_COMMANDS), default=list(_COMMANDS))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.write and len(arguments.only) < len(_COMMANDS):
        parser.error("--write replaces the whole table: it needs both commands")
    scale, rounds = (TINY, 1) if arguments.tiny else (FULL, arguments.rounds)
    load = os.getloadavg()[0]
    with suppress(PermissionError):
        os.nice(-10)  # driver and store inherit it
    try:
        lines = measure(scale, arguments.only, rounds)
    except NoCpuGroups as error:
        print(error)
        return 2
    about = (
        f"{today()}, {os.cpu_count()} cores, {100 * scale.cores:g} % of one for each worker, "
        f"load {load:.0f} before and {os.getloadavg()[0]:.0f} after, {rounds} round(s)."
    )
    print(f"{about}\n\n{table(lines)}")
    if arguments.write:
        CHART.write_text(chart(lines))
        put_on_page("scale out", f"{about}\n\n{table(lines)}\n\n![Scale out]({CHART.name})")
    if arguments.json:
        summary = [
            {
                **asdict(line),
                "efficiencies": [line.efficiency(point) for point in line.points],
                "gains": [line.gain(point) for point in line.points],
                "kept": line.keeps_promises,
            }
            for line in lines
        ]
        Path(arguments.json).write_text(json.dumps({"about": about, "lines": summary}, indent=2) + "\n")
    broken = [line.command for line in lines if not line.keeps_promises]
    if broken:
        print(f"\nbroken promises: {', '.join(broken)}")
    return 1 if broken and not arguments.tiny else 0


if __name__ == "__main__":
    sys.exit(main())
