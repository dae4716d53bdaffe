"""The JVM behind the oracle: compiled once, started once, one JSON line per request and per answer."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.servers import ServerError
from tests.servers.dist import kafka_libs, tool
from tests.servers.java_programs import compiled
from tests.servers.kafka_java import archive_options

SOURCE = Path(__file__).with_name("Oracle.java")
_END_TIMEOUT_S = 60.0
_STDERR_TAIL_BYTES = 4000


class OracleError(RuntimeError):
    """The oracle cannot be used: no Java, it ended, or it did not answer in time."""


class OracleRefused(OracleError):
    """Kafka's classes raised an exception for one request; the oracle goes on. `java_class` names the exception."""

    def __init__(self, java_class: str, message: str, stack: Sequence[str]) -> None:
        super().__init__(f"{java_class}: {message}\n  at " + "\n  at ".join(stack))
        self.java_class = java_class


class OracleProcess:
    """One JVM that runs `Oracle.main`. Not for several threads at once."""

    def __init__(self, *, version: str, timeout_s: float, heap: str) -> None:
        try:
            java, libs = tool("java"), kafka_libs(version)
            classes, archive = compiled(SOURCE, libs), archive_options(version)
        except ServerError as error:
            raise OracleError(str(error)) from error
        # C1 only: a conformance run is many short requests, and the machine's other core is busy with ours.
        options = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.apache.logging.log4j.level=OFF"]
        self._command = [java, *options, *archive, "-cp", f"{libs}/*{os.pathsep}{classes}", "Oracle"]
        self._timeout_s = timeout_s
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._process: subprocess.Popen[str] | None = None
        self._stderr: IO[bytes] | None = None

    def start(self) -> None:
        """Starts the JVM and waits for its first answer. Raises OracleError."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
        )
        threading.Thread(target=self._pump, args=(self._process.stdout,), name="oracle-answers", daemon=True).start()
        try:
            self.request({"op": "ping"})
        except OracleError:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        if self._process is None:
            raise OracleError("the oracle is not running: use it as a context manager")
        return self._process.pid

    def stop(self) -> None:
        """Ends the JVM by closing its input; kills it when that does not help."""
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                with suppress(BrokenPipeError):  # of a JVM that ended with a request unread
                    process.stdin.close()
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None

    def request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """One request, one answer. Raises OracleRefused for an exception of Kafka's, OracleError when the JVM is gone or hangs."""
        if self._process is None or self._process.stdin is None:
            raise OracleError("the oracle is not running: use it as a context manager")
        try:
            self._process.stdin.write(json.dumps(body) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=self._timeout_s)
        except queue.Empty as error:
            self._process.kill()  # its state is unknown; a late answer would be taken for the next request's
            raise OracleError(f"no answer within {self._timeout_s:.0f} s to {body}{self._tail()}") from error
        except BrokenPipeError as error:
            raise OracleError(f"the oracle ended{self._tail()}") from error
        if line is None:
            raise OracleError(f"the oracle ended while it worked on {body}{self._tail()}")
        answer: dict[str, Any] = json.loads(line)
        if not answer["ok"]:
            raise OracleRefused(answer["error"], answer["message"], answer["stack"])
        return answer

    def _pump(self, stdout: IO[str]) -> None:
        with stdout:
            for line in stdout:
                self._answers.put(line)
        self._answers.put(None)

    def _tail(self) -> str:
        if self._stderr is None:
            return ""
        size_bytes = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size_bytes - _STDERR_TAIL_BYTES))
        return "\n" + self._stderr.read().decode(errors="replace")
