"""stdout and stderr of a process. One that cannot be written, as on a full disk, does not end the work."""

import io
import os
import sys
from typing import Any, Final

from sidecar.errors import SidecarError

EXIT_BROKEN_PIPE: Final = 141
"""128 plus SIGPIPE: what a shell shows for a program that the signal has ended."""


class LossyFile(io.FileIO):
    """Takes everything and keeps the first failure. If `ends_with_pipe`, the end of a pipe's reader ends the process."""

    def __init__(self, number: int, *, ends_with_pipe: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._ends_with_pipe = ends_with_pipe
        self.failure: OSError | None = None

    def write(self, content: Any, /) -> int:
        """See `io.RawIOBase`."""
        try:
            return super().write(content)
        except OSError as error:
            if self._ends_with_pipe and isinstance(error, BrokenPipeError):
                # Libraries end with 1 after this error. Python flushes stdout once more at its end, and would complain.
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
                raise SystemExit(EXIT_BROKEN_PIPE) from error
            self.failure = self.failure or error
            return memoryview(content).nbytes


class Streams:
    """Those of this process, replaced until it ends."""

    def __init__(self) -> None:
        _fill_low_numbers()
        self._output = LossyFile(_number(1, sys.stdout), ends_with_pipe=True)
        log = LossyFile(_number(2, sys.stderr), ends_with_pipe=False)  # archiving matters more than the log
        sys.stdout, sys.stderr = _text(self._output, sys.stdout), _text(log, sys.stderr)

    def finish(self, end: SystemExit) -> SystemExit:
        """How the process ends after all output: with the command's own code, unless that is 0 and output was lost."""
        sys.stdout.flush()
        if self._output.failure is None:
            return end
        done = "" if end.code else "; the work was done"
        sys.stderr.write(f"error: cannot write the output ({self._output.failure.strerror}){done}\n")
        return SystemExit(end.code or SidecarError.exit_code)


def _fill_low_numbers() -> None:
    """No other file gets the number of a stream that the caller closed: what libraries in C write there would go into it."""
    found = 0
    while found <= 2:
        found = os.open(os.devnull, os.O_RDONLY)
    os.close(found)


def _number(number: int, usual: Any) -> int:
    """Of a stream that the caller closed, `sys` has None. No write succeeds there either."""
    return os.open(os.devnull, os.O_RDONLY) if usual is None else number


def _text(file: LossyFile, usual: Any) -> io.TextIOWrapper:
    if usual is None:
        return io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8")
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=usual.encoding,
        errors=usual.errors,
        line_buffering=usual.line_buffering or usual.write_through,  # PYTHONUNBUFFERED
    )
