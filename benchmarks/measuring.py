"""Whole commands measured from outside: wall time, CPU seconds of the command and of its servers, and peak memory."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.memory import peak_pss_mb
from benchmarks.product_runs import process_cpu_s
from sidecar.clock import SystemClock


@dataclass(frozen=True)
class Run:
    """What one command used, start and end of its process included. `load`: average of the minute before.

    `transfer_s`: of `wall_s`, how long it moved bytes as it says itself; None if it does not.
    """

    wall_s: float
    cpu_s: float
    server_cpu_s: float
    peak_mb: float
    load: float
    transfer_s: float | None = None


@dataclass(frozen=True)
class Store:
    """How to reach a bucket, by the names that `variables_of` asks of a gateway."""

    endpoint: str
    bucket: str
    region: str
    access_key: str
    secret_key: str


def measured(
    command: Sequence[str],
    variables: Mapping[str, str],
    servers: Callable[[], Iterable[int]],
    *,
    until: Callable[[], bool] = lambda: False,
    finish: Callable[[], object] = lambda: None,
    transfer_s: Callable[[str], float | None] = lambda _output: None,
) -> Run:
    """Run a command to its end.

    Args:
        servers: process ids of the servers that it uses, asked before and after.
        until: ends a command that would go on for ever, and with it the measured time.
        finish: what else belongs to the measured time. CPU of processes that it waits for counts as the command's.
        transfer_s: of the run, by the command's output.

    Raises RuntimeError with the end of the output where the command fails.
    """
    load = os.getloadavg()[0]
    before = {pid: process_cpu_s(pid) for pid in servers()}
    own_before_s, started_s = _children_cpu_s(), time.perf_counter()
    with tempfile.TemporaryFile() as output:
        environment = {**os.environ, **variables}
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        peak_mb = peak_pss_mb(child.pid, lambda: child.poll() is not None or until())
        finish()
        wall_s = time.perf_counter() - started_s
        if goes_on := child.poll() is None:
            child.terminate()
            child.wait()
        output.seek(0)
        said = output.read().decode(errors="replace")
        if child.returncode and not goes_on:
            raise RuntimeError(f"{' '.join(command[:3])} ended with {child.returncode}: {said[-2000:]}")
    server_cpu_s = sum(process_cpu_s(pid) - before.get(pid, 0.0) for pid in servers())
    return Run(wall_s, _children_cpu_s() - own_before_s, server_cpu_s, peak_mb, load, transfer_s(said))


def measured_server(pid: int, begin: Callable[[], object], until: Callable[[], bool]) -> Run:
    """Work that a server does by itself, from `begin` until `until`: it is the command, and there is no server."""
    load, before_s, started_s = os.getloadavg()[0], process_cpu_s(pid), time.perf_counter()
    begin()
    peak_mb = peak_pss_mb(pid, until)
    return Run(time.perf_counter() - started_s, process_cpu_s(pid) - before_s, 0.0, peak_mb, load)


PAGE: Final = Path(__file__).parent / "README.md"


def today() -> str:
    """The day that figures on the page are of."""
    return str(datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).date())


def put_on_page(name: str, content: str, page: Path = PAGE) -> None:
    """Replace what is between the marks of this name. Raises RuntimeError if there are none."""
    marks = re.compile(rf"(<!-- {name}: [^>]* -->\n).*?(<!-- {name} ends\. -->)", re.DOTALL)
    text, found = marks.subn(lambda match: f"{match[1]}\n{content}\n\n{match[2]}", page.read_text())
    if found != 1:
        raise RuntimeError(f"{page} has no place for {name}")
    page.write_text(text)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
