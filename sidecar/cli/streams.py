"""stdout and stderr of a process. One that cannot be written, as on a full disk, does not end the work."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

from sidecar.errors import SidecarError


class LossyFile(io.FileIO):
    """Takes everything and keeps the first failure. An ended reader of a pipe is an error still, if `raises_pipe`."""

    def __init__(self, number: int, *, raises_pipe: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._raises_pipe = raises_pipe
        self.failure: OSError | None = None

    def write(self, content: Any, /) -> int:
        """See `io.RawIOBase`."""
        try:
            return super().write(content)
        except OSError as error:
            if self._raises_pipe and isinstance(error, BrokenPipeError):
                raise
            self.failure = self.failure or error
            return memoryview(content).nbytes


class Streams:
    """Those of this process, replaced until it ends."""

    def __init__(self) -> None:
        usual: tuple[Any, Any] = sys.stdout, sys.stderr
        # `sys` has None for a stream that the caller closed.
        self._output = LossyFile(1, raises_pipe=True) if usual[0] is not None else None
        log = LossyFile(2, raises_pipe=False) if usual[1] is not None else None  # archiving matters more than the log
        sys.stdout, sys.stderr = _text(self._output, usual[0]), _text(log, usual[1])

    def finish(self, end: SystemExit) -> SystemExit:
        """How the process ends after all output: with the command's own code, unless that is 0 and output was lost."""
        sys.stdout.flush()
        if self._output is None or self._output.failure is None:
            return end
        done = "" if end.code else "; the work was done"
        sys.stderr.write(f"error: cannot write the output ({self._output.failure.strerror}){done}\n")
        return SystemExit(end.code or SidecarError.exit_code)


def _text(file: LossyFile | None, usual: Any) -> io.TextIOWrapper:
    if file is None:
        return Path(os.devnull).open("w", encoding="utf-8")  # until the process ends
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=usual.encoding,
        errors=usual.errors,
        line_buffering=usual.line_buffering or usual.write_through,  # PYTHONUNBUFFERED
    )
