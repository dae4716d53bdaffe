"""How far a long command is: a bar on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

from sidecar.clock import Clock, SystemClock

if TYPE_CHECKING:
    from sidecar.reporting.progress import Progress

LINE_INTERVAL_S = 10.0


class ProgressDisplay:
    """A context manager to be called with each `Progress`. Thread-safe as far as it is called in turn."""

    def __init__(self, *, quiet: bool, colors: bool, clock: Clock | None = None) -> None:
        self._quiet = quiet
        self._colors = colors
        self._clock = clock or SystemClock()
        self._resources = ExitStack()
        self._bar: _Bar | None = None
        self._lined_s: float | None = None

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            self._bar = self._resources.enter_context(_Bar(colors=self._colors))
        return self

    def __exit__(self, *_exception: object) -> None:
        self._resources.close()

    def __call__(self, progress: Progress) -> None:
        if not progress.segments_total:
            return
        if self._bar is not None:
            self._bar.show(progress)
        elif not self._quiet:
            self._line(progress)

    def _line(self, progress: Progress) -> None:
        now_s = self._clock.monotonic_s()
        is_last = progress.segments_done == progress.segments_total
        if not is_last and self._lined_s is not None and now_s - self._lined_s < LINE_INTERVAL_S:
            return
        self._lined_s = now_s
        import structlog

        structlog.get_logger(__name__).info("progress", **asdict(progress))


class _Bar:
    def __init__(self, *, colors: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as RichProgress

        self._rich = RichProgress(
            TextColumn("{task.fields[segments]} segments", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[latest]}", markup=False),
            console=Console(file=sys.stderr, color_system="auto" if colors else None),
        )
        self._task = self._rich.add_task("", total=None, segments="0", latest="")

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._rich.stop()

    def show(self, progress: Progress) -> None:
        self._rich.update(
            self._task,
            total=progress.bytes_total,
            completed=progress.bytes_done,
            segments=f"{progress.segments_done}/{progress.segments_total}",
            latest=progress.latest,
        )
