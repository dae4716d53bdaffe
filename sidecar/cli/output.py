"""What the commands print: JSON lines or tables on stdout, remarks on stderr, and how far a long one is."""

from __future__ import annotations

import io
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Self

from sidecar.clock import SystemClock

if TYPE_CHECKING:
    from sidecar.archive.keys import Lineage
    from sidecar.reporting.progress import Progress

WIDTH_SAMPLE_ROWS = 200
"""Columns of a listing are as wide as these first rows need, so that a listing of any length needs little memory."""

UNLIMITED_WIDTH = 10_000
JSON_VERSION = 1
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class CurrentStderr(io.TextIOBase):
    """Whatever `sys.stderr` is at the moment: a progress bar replaces it for as long as it is shown."""

    def write(self, text: str, /) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr.isatty()


def print_json(value: Mapping[str, Any]) -> None:
    """One object on one line."""
    sys.stdout.write(json.dumps(value, default=str) + "\n")


def print_answer(kind: str, found: Mapping[str, Any]) -> None:
    """One object that says what it is, for programs: names are stable."""
    print_json({"kind": kind, "version": JSON_VERSION, **found})


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def remark(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, colors: bool) -> None:
    """A table; columns whose name ends with '#' have numbers and stand to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        is_number = column.endswith("#")
        table.add_column(column.removesuffix("#"), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        cells = [value if isinstance(value, Text) else Text(shown(value)) for value in row]
        for place, cell in zip(table.columns, cells, strict=True):
            if place.justify == "right":  # a number is never cut nor broken
                place.min_width = max(place.min_width or 0, cell.cell_len)
        table.add_row(*cells)
    # Without a known width no line is wrapped.
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit() else UNLIMITED_WIDTH
    console = Console(file=sys.stdout, color_system="auto" if colors else None, highlight=False, width=width)
    with console.capture() as captured:
        console.print(table, crop=False)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    sys.stdout.write("\n".join([title, *(line for line in lines if line), ""]) + "\n")


def print_listing(rows: Iterator[Mapping[str, Any]]) -> None:
    """Rows of equal keys as aligned columns, printed as they come."""
    sample = list(islice(rows, WIDTH_SAMPLE_ROWS))
    if not sample:
        return
    names = list(sample[0])
    texts = [[shown(row[name]) for name in names] for row in sample]
    widths = [max(len(name), *(len(text[column]) for text in texts)) for column, name in enumerate(names)]
    numeric = [all(isinstance(row[name], int | None) for row in sample) for name in names]
    following = ([shown(row.get(name)) for name in names] for row in rows)
    for cells in chain([names], texts, following):
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        sys.stdout.write("  ".join(aligned).rstrip() + "\n")


def shown(value: object) -> str:
    """A value for people: '-' for none, no control characters."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(shown(element) for element in value) or "-"
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in str(value))


def utc(timestamp_ms: int) -> str | None:
    """None for times that no calendar has: producers choose their timestamps."""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" if timestamp_ms >= 0 else None
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)


def names_of(lineages: Iterable[Lineage]) -> Callable[[Lineage], str]:
    """What they are called: by cluster and incarnation, too, where several of them are of partitions of one name."""
    found = Counter(lineage.topic_partition for lineage in lineages)
    return lambda lineage: str(lineage if found[lineage.topic_partition] > 1 else lineage.topic_partition)


def place_of(lineage: Lineage) -> dict[str, Any]:
    """The fields that all objects about a partition of an archive have. Names are stable."""
    return {
        "cluster_id": lineage.cluster_id,
        "topic": lineage.topic_partition.topic,
        "partition": lineage.topic_partition.partition,
        "incarnation": lineage.incarnation,
    }


def size(size_bytes: float) -> str:
    for unit in _UNITS[:-1]:
        if abs(size_bytes) < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} {_UNITS[-1]}"


LINE_INTERVAL_S = 10.0


class ProgressDisplay:
    """A context manager to be called with each `Progress`. Thread-safe as far as the pipeline calls it in turn."""

    def __init__(self, *, quiet: bool, colors: bool) -> None:
        self._quiet = quiet
        self._colors = colors
        self._clock = SystemClock()
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
        from sidecar.event_log import EVENTS

        EVENTS.info("progress", **asdict(progress))


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
