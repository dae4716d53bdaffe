"""`tiered-sidecar run` with a clock that runs fast: an hour of the page's charts in minutes. Settings come by the environment.

Everything else is the real program. Run as `python -m tests.page.quick_program SPEED BEGIN_MS`.
"""

from __future__ import annotations

import os
import sys
import time

from sidecar import daemon
from sidecar.config.loading import load_settings
from sidecar.logs import configure_logging


class QuickClock:
    """The machine's clocks, so many times as fast from now on. `begin_ms`: what it is now."""

    def __init__(self, speed: float, begin_ms: int) -> None:
        self._speed = speed
        self._began_s = time.monotonic()  # noqa: TID251 - a clock asks the machine
        self._began_ms = begin_ms

    def now_ms(self) -> int:
        return self._began_ms + round(1000 * (self.monotonic_s() - self._began_s))

    def monotonic_s(self) -> float:
        return self._began_s + self._speed * (time.monotonic() - self._began_s)  # noqa: TID251

    def sleep_s(self, seconds: float) -> None:
        time.sleep(seconds / self._speed)  # noqa: TID251


def main() -> int:
    """Run until SIGTERM."""
    settings = load_settings(environment=os.environ).settings
    configure_logging(settings.log)
    return daemon.run(settings, QuickClock(float(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    sys.exit(main())
