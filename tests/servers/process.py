"""One child process with a log file: start, wait until it is ready, end it by its own process id."""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sidecar.randomness import SystemRandomness

_POLL_S = 0.05
_TAIL_LINES = 40
_PORTS = range(10_240, 32_768)
_PORT_TRIES = 200


class ServerError(RuntimeError):
    """A test server or one of its tools could not be brought, started or used."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 on which nobody listened a moment ago, and which no other process of tests is given until we end.

    A server may come to listen there only seconds later, or goes away and comes back: another worker's would be there by then.
    Not one of those that the system gives to outgoing connections (ip_local_port_range, from 32768): a client would take it
    before its server does, and a client that asks whether the server is there would in the end connect to itself.
    """
    for _ in range(_PORT_TRIES):
        # Not by the seeded `random`: workers that draw the same numbers would want the same ports.
        port = _PORTS[int.from_bytes(SystemRandomness().random_bytes(4)) % len(_PORTS)]
        if not _is_reserved_by_us(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerError(f"no free port found between {_PORTS[0]} and {_PORTS[-1]} in {_PORT_TRIES} tries")


def _is_reserved_by_us(port: int) -> bool:
    """Locks a file that stands for the port, for as long as this process lives."""
    directory = Path(tempfile.gettempdir()) / f"tiered-sidecar-test-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    descriptor = os.open(directory / str(port), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True


def port_answers(port: int) -> bool:
    """Whether something accepts connections on 127.0.0.1:`port`."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server(ABC):
    """A context manager: started, and closed whatever happens, also when it could not be started."""

    @abstractmethod
    def start(self) -> None:
        """Returns when it can be used. Raises ServerError with the tail of a log."""

    @abstractmethod
    def close(self) -> None:
        """Leaves no process behind."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class ServerProcess:
    """A child process whose output is appended to `log_path`.

    The instance may be started again after it ended; `output()` then shows the latest run only.
    """

    def __init__(
        self, name: str, command: Sequence[str], log_path: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log_path = log_path
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._run_start_bytes = 0

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError(f"{self.name} was not started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Starts the process and returns at once. Raises ServerError when it runs already."""
        if self.alive:
            raise ServerError(f"{self.name} runs already as process {self.pid}")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._run_start_bytes = log.tell()
            # A session of its own: Ctrl-C in the terminal must reach pytest, which then stops the server cleanly.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        _started.add(self)

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Waits for `ready()`. On timeout, or when the process ends first, ends it and raises ServerError."""
        deadline = time.monotonic() + timeout_s  # noqa: TID251 - a real process has no other clock
        while not ready():
            if not self.alive:
                status = self._process.returncode if self._process else None
                raise ServerError(f"{self.name} ended with status {status} before it was ready:\n{self.tail()}")
            if time.monotonic() > deadline:  # noqa: TID251
                self.kill()
                raise ServerError(f"{self.name} was not ready within {timeout_s:.0f} s:\n{self.tail()}")
            time.sleep(_POLL_S)  # noqa: TID251

    def stop(self, timeout_s: float = 60.0) -> int:
        """SIGTERM, then wait; returns the exit status. Raises ServerError (after SIGKILL) when it does not end."""
        if self._process is None:
            return 0
        if self.alive:
            self._process.terminate()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ServerError(f"{self.name} did not end within {timeout_s:.0f} s of SIGTERM:\n{self.tail()}") from error

    def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after `grace_s`: for a server that cannot stop cleanly on its own."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """For example SIGSTOP and SIGCONT: a server that hangs without closing its connections."""
        os.kill(self.pid, number)

    def output(self) -> str:
        """What the latest run wrote so far."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._run_start_bytes)
            return log.read().decode(errors="replace")

    def tail(self) -> str:
        """The end of the latest run's output, with the log's path."""
        return "\n".join([f"(log: {self.log_path})", *self.output().splitlines()[-_TAIL_LINES:]])


_started: weakref.WeakSet[ServerProcess] = weakref.WeakSet()


@atexit.register
def _end_forgotten_servers() -> None:
    for process in list(_started):
        process.kill()
