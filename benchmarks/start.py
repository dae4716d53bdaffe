"""How long does a command take before its work begins?

Question    Seconds, CPU seconds and memory of commands that do next to nothing, against `python -c pass`: what is left is imports,
            settings and the client of the store.
Input       A log dir with two rolled segments of 9 MiB, archived into a directory; versitygw on the same machine.
Unit        Seconds of the whole process, of `backfill` until the store receives the first request that uploads a segment, by the
            store's access log; CPU seconds of the whole process; peak resident MB. Medians, and the ratio of CPU seconds to
            `python -c pass`: other work on the machine changes that least.
Promise     on an idle machine `--help` <= 0.25 s, `status` <= 0.5 s, `backfill` <= 0.7 s until the first upload begins.
Run         python -m benchmarks.start [--rounds 15] [--json result.json]      (--tiny: one round)
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.product_runs import PROGRAM, options, variables_of, watch_peak_kib
from benchmarks.segments import MIB, write_log_dir

NOTHING, HELP, STATUS, BACKFILL = "python -c pass", "--help", "status", "backfill"
PROMISED_S = {HELP: 0.25, STATUS: 0.5, BACKFILL: 0.7}
_POLL_S = 0.002
_UPLOAD = re.compile(r" s3_(PutObject|CreateMultipartUpload|UploadPart) \S+\.log \S+ 200 - \d+ \d+ (?P<ms>\d+) ")


@dataclass(frozen=True)
class Start:
    """One process."""

    seconds: float
    cpu_s: float
    peak_mb: float


class Uploads:
    """When the store received the first request with a segment's log, by the store's access log; a context manager.

    The log has whole seconds, so a thread notes when a line is written. A line is written when its request ends, and has the
    request's milliseconds.
    """

    def __init__(self, access_log: Path) -> None:
        self._access_log = access_log
        self.first_s = math.inf

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        with self._access_log.open() as lines:
            lines.seek(0, os.SEEK_END)
            while True:
                is_last = self._ended.wait(_POLL_S)
                now_s, text = time.perf_counter(), lines.read()
                for line in text.splitlines():
                    if (took_s := upload_s(line)) is not None:
                        self.first_s = min(self.first_s, now_s - took_s)
                if is_last:
                    return


def upload_s(line: str) -> float | None:
    """How long a request took that uploads a segment's log or a part of it; None for other lines."""
    found = _UPLOAD.search(line)
    return None if found is None else int(found["ms"]) / 1000


def started(command: list[str], variables: Mapping[str, str], access_log: Path | None = None) -> Start:
    """Run a command to its end. `access_log`: of the store that it uploads to; its start is over when it begins to upload."""
    with tempfile.TemporaryFile() as log, ExitStack() as stack:
        uploads = None if access_log is None else stack.enter_context(Uploads(access_log))
        environment = {**os.environ, **variables}
        begun_s = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=environment)
        peak_kib = watch_peak_kib(child)
        _, status, usage = os.wait4(child.pid, 0)
        ended_s = time.perf_counter()
        child.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        text = log.read().decode()
    if child.returncode:
        raise RuntimeError(f"{command} ended with {child.returncode}: {text[-2000:]}")
    if uploads is not None:
        ended_s = uploads.first_s
        if math.isinf(ended_s):
            raise RuntimeError(f"{command} uploaded no segment: {text[-2000:]}")
    return Start(ended_s - begun_s, usage.ru_utime + usage.ru_stime, peak_kib * 1024 / 1e6)


def measure(rounds: int) -> dict[str, Any]:
    """All runs, which alternate; the summary."""
    from tests.servers.versitygw import VersityGateway

    load = os.getloadavg()[0]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        access_log = directory / "access.log"
        options = ["--quiet", "--access-log", str(access_log)]
        gateway = stack.enter_context(VersityGateway(directory / "gateway", options=options))
        log_dir = write_log_dir(directory / "logs", 2, 9 * MIB)
        arguments = ["backfill", "--log-dir", str(log_dir), "--assume-leader"]

        def variables(url: str) -> dict[str, str]:
            return variables_of(gateway, url, directory / f"state-{time.time_ns()}")  # noqa: TID251 - only a name

        archive = str(directory / "archive")
        started([str(PROGRAM), *arguments], variables(archive))
        contestants: dict[str, Callable[[], Start]] = {
            NOTHING: lambda: started([sys.executable, "-c", "pass"], {}),
            HELP: lambda: started([str(PROGRAM), "--help"], {}),
            STATUS: lambda: started([str(PROGRAM), "status", "--archive", archive], {}),
            BACKFILL: lambda: started(
                [str(PROGRAM), *arguments],
                variables(f"s3://{gateway.bucket}/{time.time_ns()}"),  # noqa: TID251 - as above
                access_log,
            ),
        }
        results: dict[str, list[Start]] = {name: [] for name in contestants}
        for _ in range(rounds):
            for name, contestant in contestants.items():
                results[name].append(contestant())
    about = f"{rounds} round(s), {os.cpu_count()} cores, load before {load:.1f}"
    return {"about": about, "rows": summarise(results)}


def summarise(results: Mapping[str, list[Start]]) -> list[dict[str, Any]]:
    """A row for each command."""
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "seconds": statistics.median(run.seconds for run in runs),
            "cpu_s": statistics.median(run.cpu_s for run in runs),
            "peak_mb": max(run.peak_mb for run in runs),
        }
        for name, runs in results.items()
    ]
    nothing_s = rows[0]["cpu_s"]
    return [{**row, "ratio": row["cpu_s"] / nothing_s} for row in rows]


def main() -> int:
    """Run the comparison and print its outcome; 1 if a promise is broken (never with --tiny: that measures nothing)."""
    parser = options("Starts of commands, compared with that of Python.")
    parser.set_defaults(rounds=15)
    arguments = parser.parse_args()
    summary = measure(1 if arguments.tiny else arguments.rounds)
    print(f"Starts, {summary['about']}\n")
    print("| command | seconds | promised | CPU s | ratio | peak MB |")
    print("|---|---|---|---|---|---|")
    for row in summary["rows"]:
        promised = PROMISED_S.get(row["name"], "")
        figures = f"{row['seconds']:.2f} | {promised} | {row['cpu_s']:.2f} | {row['ratio']:.1f} | {row['peak_mb']:.0f}"
        print(f"| {row['name']} | {figures} |")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(summary, indent=2) + "\n")
    kept = all(row["seconds"] <= PROMISED_S.get(row["name"], row["seconds"]) for row in summary["rows"])
    return 0 if kept or arguments.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
