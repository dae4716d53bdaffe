"""`tiered-sidecar run` as a child process, watched through its HTTP port; and a broker's directory that grows under it."""

from __future__ import annotations

import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from tests.real.product import SHORT_RACE_PROGRAM, environment
from tests.servers.process import ServerProcess, free_port, port_answers

WAIT_S = 180.0
FAST = {
    "broker.assume_leader": "true",
    "broker.settle_ms": "200",
    "broker.snapshot_grace_ms": "400",
    "run.retry_wait_s": "1",
    "store.retry.attempts": "2",
    "store.retry.wait_s_first": "0.1",
    # On a machine with ten times as much to do as it has cores, an answer may take seconds.
    "http.request_timeout_s": "60",
    "log.format": "json",
}
"""What makes a test quick; everything else is the default."""


def now_s() -> float:
    """A real process has no other clock."""
    return time.monotonic()  # noqa: TID251


def eventually(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> float:
    """Wait until it holds; returns how long that took. Fails after `timeout_s`."""
    started_s, pause_s = now_s(), 0.02
    while not condition():
        assert now_s() - started_s < timeout_s, "it never came true"
        time.sleep(pause_s)  # noqa: TID251
        # What takes long is asked for less often: each question costs as much as it takes to answer, here and in the process.
        pause_s = min(1.2 * pause_s, 0.2)
    return now_s() - started_s


class Daemon:
    """One `run` process; a context manager that starts it, waits for its port, and kills what is left of it."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        *,
        variables: Mapping[str, str] | None = None,
        program: Sequence[str] = SHORT_RACE_PROGRAM,
    ) -> None:
        """Args: directory: of its log; settings: by path, over `FAST`; variables: further environment."""
        self.port = free_port()
        merged = {**FAST, "run.state_dir": str(directory / "state"), **settings, "http.bind": f"127.0.0.1:{self.port}"}
        self.environment = {**environment(merged), **(variables or {})}
        self.process = ServerProcess("tiered-sidecar", [*program, "run"], directory / "run.log", self.environment)

    def start(self) -> Self:
        self.process.launch()
        self.process.wait_until(lambda: port_answers(self.port), WAIT_S)
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.process.kill()

    def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def is_settled(self) -> bool:
        """Ready, and all is archived that waits for nothing."""
        if not self.is_ready():  # First: a status from before the first check has no rows, so nothing that waits.
            return False
        status = json.loads(self.get("/status")[1])
        rows = status.get("partitions", [])
        return all(row["reason"] or not row["segments_waiting"] for row in rows) and not status["uploads"]

    def partitions(self) -> dict[str, dict[str, Any]]:
        """The rows of `/status` by partition."""
        rows = json.loads(self.get("/status")[1]).get("partitions", [])
        return {f"{row['topic']}-{row['partition']}": row for row in rows}

    def archived_end(self, partition: str) -> int | None:
        row = self.partitions().get(partition)
        return row["archived_end_offset"] if row else None

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == f"tiered_sidecar_{name}" and labels.items() <= sample.labels.items()
        )

    def events(self) -> list[dict[str, Any]]:
        """The log so far; every line of it must be JSON."""
        # While it runs the last line may be only half there.
        whole, _, _ = self.process.output().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]


class GrowingLog:
    """Lets the segments of one golden partition appear one by one, in the order in which a broker makes their files."""

    def __init__(self, source: Path, log_dir: Path, partition: str) -> None:
        """Args: source: a golden log dir; log_dir: ours, to which its checkpoints and other small files are copied."""
        self.partition = partition
        self._source = source / partition
        self._directory = log_dir / partition
        self._directory.mkdir(parents=True)
        for path in source.iterdir():
            if path.is_file() and path.name != ".lock":
                shutil.copyfile(path, log_dir / path.name)
        for name in ("leader-epoch-checkpoint", "partition.metadata"):
            if (self._source / name).exists():
                shutil.copyfile(self._source / name, self._directory / name)
        self._bases = sorted(int(path.name[:20]) for path in self._source.glob("*.log"))
        self._shown = 0
        self.roll()

    @property
    def remaining(self) -> int:
        """How many segments have not rolled yet."""
        return len(self._bases) - self._shown

    def roll(self) -> int:
        """The next segment becomes the active one, and with it the one before a rolled one; returns its base offset."""
        base_offset = self._bases[self._shown]
        for suffix in ("index", "timeindex", "txnindex", "log"):
            self._copy(base_offset, suffix)
        self._copy(base_offset, "snapshot")
        self._shown += 1
        return base_offset

    def _copy(self, base_offset: int, suffix: str) -> None:
        name = f"{base_offset:020d}.{suffix}"
        if (self._source / name).exists():
            shutil.copyfile(self._source / name, self._directory / name)
