"""What all tasks share: one store, one log directory, and what went to the store and came from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring import Run, Store
from benchmarks.product_runs import PROGRAM, variables_of
from benchmarks.segments import MIB, TOPIC, write_log_dir
from tests.servers.toxiproxy import Toxiproxy
from tests.servers.versitygw import VersityGateway

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

OURS = "tiered-sidecar"
_ITSELF = "the-benchmark-itself"


@dataclass(frozen=True)
class Traffic:
    """Between a command and the store, both directions with headers."""

    requests: int
    sent_mb: float
    received_mb: float


@dataclass(frozen=True)
class Promise:
    """Of `ours`: at least `ratio` of the MB/s of the fastest among `peers`, and never more memory than `peak_mb`.

    Where it is given: at most `seconds` for the whole process, and `received` times the segments' bytes from the store. `floor`:
    bare programs that do only what cannot be left out. What the fastest of them reaches is printed with it.
    """

    ours: str
    peers: Sequence[str]
    ratio: float
    peak_mb: float
    seconds: float | None = None
    received: float | None = None
    floor: Sequence[str] = ()


@dataclass(frozen=True)
class Road:
    """One task, and who does it. A contestant runs it once, checks the outcome, and leaves nothing behind.

    `size_bytes`: of the segments that it is about. `uses_store`: names of those whose traffic is counted.
    """

    name: str
    title: str
    size_bytes: int
    contestants: Mapping[str, Callable[[Store], Run]]
    uses_store: frozenset[str]
    promises: Sequence[Promise] = ()


@dataclass
class Bench:
    """A context manager. `tiny`: a few MiB, and nothing that must be compiled or brought first.

    `segments`: how many of 256 MiB, unless it is tiny.
    """

    scratch: Path
    tiny: bool
    segments: int = 6
    stack: ExitStack = field(default_factory=ExitStack)
    _numbers: Iterator[int] = field(default_factory=count)
    _uncounted: int = 0

    def __enter__(self) -> Bench:
        # Stores keep connections open; without the option this one closes each.
        options = ["--quiet", "--keep-alive", "--access-log", str(self._access_log)]
        gateway = VersityGateway(self.scratch / "store", options=options, optimised=not self.tiny)
        self.gateway = self.stack.enter_context(gateway)
        self._proxies = self.stack.enter_context(Toxiproxy(self.scratch))
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @property
    def _access_log(self) -> Path:
        return self.scratch / "access.log"

    @property
    def store(self) -> Store:
        """The store itself, for everything that is timed."""
        return self._store_at(self.gateway.endpoint)

    def store_pids(self) -> list[int]:
        """Its process, for `measured`."""
        return [self.gateway.process.pid]

    @cached_property
    def log_dir(self) -> Path:
        """A log directory with rolled segments of one partition, and an empty active one."""
        log_dir = write_log_dir(
            self.scratch / "logs", *((2, 9 * MIB) if self.tiny else (self.segments, 256 * MIB)), leader_epoch=0
        )
        (log_dir / ".kafka_cleanshutdown").touch()
        heal = [
            str(PROGRAM),
            "snapshots",
            "heal",
            str(log_dir),
            "--quiet",
        ]  # a broker has snapshots; tiering depends on them
        subprocess.run(heal, check=True, capture_output=True)
        os.sync()  # else the first contestant shares the disk with the writing of its input
        return log_dir

    @property
    def partition(self) -> Path:
        return self.log_dir / f"{TOPIC}-0"

    @cached_property
    def finished(self) -> Path:
        """Links to the rolled segments and their indexes: what peers copy."""
        directory = self.scratch / "finished"
        directory.mkdir()
        for path in self.partition.glob("*.*"):
            if path.stem.isdigit() and int(path.stem) < self.end_offset:
                os.link(path, directory / path.name)
        return directory

    @cached_property
    def end_offset(self) -> int:
        """Of the rolled segments: the base offset of the active one."""
        return max(int(path.stem) for path in self.partition.glob("*.log"))

    @cached_property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.finished.glob("*.log"))

    def ours(self, store: Store, prefix: str) -> dict[str, str]:
        """The program's environment, with a fresh state directory."""
        state = self.scratch / "state"
        shutil.rmtree(state, ignore_errors=True)
        return variables_of(store, f"s3://{store.bucket}/{prefix}", state)

    def backfill(self, prefix: str, log_dir: Path) -> None:
        """An archive that a task begins with; not measured, and its requests do not count."""
        command = [str(PROGRAM), "backfill", "--log-dir", str(log_dir), "--assume-leader", "--quiet"]
        environment = {**os.environ, **self.ours(self.store, prefix)}
        with self.uncounted():
            subprocess.run(command, env=environment, check=True, capture_output=True)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Requests within the block are of the preparation."""
        before = self._requests()
        yield
        self._uncounted += self._requests() - before

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Keys below a prefix, and bytes."""
        with closing(self._client()) as client:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.store.bucket, Prefix=prefix):
                yield from ((found["Key"], found["Size"]) for found in page.get("Contents", []))

    def delete(self, prefix: str) -> None:
        """All objects below a prefix."""
        keys = [key for key, _ in self.sizes(prefix)]
        with closing(self._client()) as client:
            for begin in range(0, len(keys), 1000):
                chunk = keys[begin : begin + 1000]
                client.delete_objects(Bucket=self.store.bucket, Delete={"Objects": [{"Key": key} for key in chunk]})

    def counted(self, run: Callable[[Store], Run]) -> Traffic:
        """One run through a proxy, which slows it down: what the run itself measures is no result."""
        proxy = self._proxies.proxy(f"counting-{next(self._numbers)}", self.gateway.port)
        before = self._requests()
        run(self._store_at(proxy.endpoint))
        proxy.set_enabled(False)  # it counts what connections carried when they end
        sent, received = 0, 0
        for _ in range(50):
            time.sleep(0.1)  # noqa: TID251 - a real process has no other clock
            earlier = sent, received
            sent, received = self._proxies.bytes_through(proxy.name)
            if sent and earlier == (sent, received):
                break
        return Traffic(self._requests() - before, sent / 1e6, received / 1e6)

    def _requests(self) -> int:
        """That the store has answered so far, without our own checks of outcomes."""
        lines = self._access_log.read_text().splitlines() if self._access_log.exists() else []
        return sum(" s3_" in line and _ITSELF not in line for line in lines) - self._uncounted

    def _client(self) -> S3Client:
        import boto3
        from botocore.config import Config

        store = self.store
        return boto3.client(
            "s3",
            endpoint_url=store.endpoint,
            region_name=store.region,
            aws_access_key_id=store.access_key,
            aws_secret_access_key=store.secret_key,
            config=Config(user_agent=_ITSELF, s3={"addressing_style": "path"}),
        )

    def _store_at(self, endpoint: str) -> Store:
        gateway = self.gateway
        return Store(endpoint, gateway.bucket, gateway.region, gateway.access_key, gateway.secret_key)
