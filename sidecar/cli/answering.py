"""Commands whose refusals are JSON too, and that SIGTERM ends as they end by themselves."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import wraps
from threading import current_thread, main_thread
from typing import Any

from sidecar.cli.options import GlobalOptions
from sidecar.errors import SidecarError

JSON_VERSION = 1


def answering_json(kind: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A command whose refusals are a JSON object, too, where JSON was asked for, and which SIGTERM ends as it ends by itself."""

    def decorated(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def answering(options: GlobalOptions, *arguments: Any, **named: Any) -> int:
            before = signal.signal(signal.SIGTERM, _end) if current_thread() is main_thread() else None
            try:
                return command(options, *arguments, **named)
            except SidecarError as error:
                if options.json:
                    from sidecar.cli.output import print_json
                    from sidecar.logs import redacted

                    text = redacted(str(error))
                    print_json({"kind": kind, "version": JSON_VERSION, "error": text, "exit_code": error.exit_code})
                raise
            finally:
                if before is not None:
                    signal.signal(signal.SIGTERM, before)

        return answering

    return decorated


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
