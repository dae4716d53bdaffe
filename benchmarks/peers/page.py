"""What benchmarks/README.md has of the peers: a table and a chart for each task, and how each peer is used."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.measuring import PAGE, Run, put_on_page, today
from benchmarks.peers.bench import OURS, Promise, Road, Traffic

_HEAD = (
    "contestant", "s, median", "least to most", "MB/s", "of transfer",
    "CPU s", "servers' CPU s", "peak MB", "requests", "MB sent", "MB received",
)  # fmt: skip
_BAR_WIDTH, _BAR_HEIGHT, _LEFT, _STEP = 460, 12, 250, 40


@dataclass(frozen=True)
class Row:
    """One contestant. Without traffic: it does not use the store. With an error: it has no runs, or fewer."""

    name: str
    runs: Sequence[Run]
    traffic: Traffic | None
    error: str | None

    def median(self, field: str) -> float:
        return float(statistics.median(getattr(run, field) for run in self.runs))

    def summary(self) -> dict[str, Any]:
        """For JSON."""
        runs = [asdict(run) for run in self.runs]
        return {"runs": runs, "traffic": self.traffic and asdict(self.traffic), "error": self.error}


def table(road: Road, rows: Sequence[Row]) -> str:
    """Markdown: a line for each contestant, and the errors of those that could not run."""
    lines = [f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|"]
    lines += [f"| {' | '.join(_cells(road, row))} |" for row in rows if row.runs]
    failed = [f"* {row.name} did not run:\n\n  ```\n  {_indented(row.error)}\n  ```" for row in rows if row.error]
    promises = [f"* {outcome(promise, road, rows)[1]}" for promise in road.promises]
    return "\n".join([*lines, *(["", *failed, *promises] if failed or promises else [])])


def outcome(promise: Promise, road: Road, rows: Sequence[Row]) -> tuple[bool, str]:
    """Whether a promise is kept, by medians and by the most memory of any run; and the figures."""
    ours = next(row for row in rows if row.name == promise.ours)
    medians_s = {row.name: row.median("wall_s") for row in rows if row.runs}
    fastest = min((name for name in promise.peers if name in medians_s), key=lambda name: medians_s[name])
    ratio = medians_s[fastest] / medians_s[promise.ours]
    peak_mb = max(run.peak_mb for run in ours.runs)
    ratio_limit = f" (promised {promise.ratio:g})" if promise.ratio else ""
    found = [
        (f"{ratio:.2f} times as fast as {fastest}{ratio_limit}", ratio >= promise.ratio),
        (f"{peak_mb:.0f} MB (promised {promise.peak_mb:g})", peak_mb <= promise.peak_mb),
    ]
    floor_s = min((medians_s[name] for name in promise.floor if name in medians_s), default=None)
    if floor_s is not None:
        about = f"{medians_s[fastest] / floor_s:.2f} for a bare program, of which ours is {floor_s / medians_s[promise.ours]:.2f}"
        found.insert(1, (about, True))
    if promise.seconds is not None:
        seconds = medians_s[promise.ours]
        found.append((f"{seconds:.1f} s (promised {promise.seconds:g})", seconds <= promise.seconds))
    if promise.received is not None and ours.traffic is not None:
        received = ours.traffic.received_mb * 1e6 / road.size_bytes
        text = f"{received:.2f} times the input received (promised {promise.received:g})"
        found.append((text, received <= promise.received))
    kept = all(is_kept for _, is_kept in found)
    texts = [text if is_kept else f"**not kept: {text}**" for text, is_kept in found]
    return kept, f"{promise.ours}: {', '.join(texts)}"


def _cells(road: Road, row: Row) -> list[str]:
    seconds = [run.wall_s for run in row.runs]
    peak_mb = max(run.peak_mb for run in row.runs)
    traffic = row.traffic
    moved = (
        ["", "", ""]
        if traffic is None
        else [f"{traffic.requests}", f"{traffic.sent_mb:,.0f}", f"{traffic.received_mb:,.0f}"]
    )
    return [
        f"**{row.name}**" if row.name.startswith(OURS) else row.name,
        f"{row.median('wall_s'):.1f}",
        f"{min(seconds):.1f} to {max(seconds):.1f}",
        f"{road.size_bytes / 1e6 / row.median('wall_s'):,.0f}",
        "" if row.runs[0].transfer_s is None else f"{road.size_bytes / 1e6 / row.median('transfer_s'):,.0f}",
        f"{row.median('cpu_s'):.1f}",
        f"{row.median('server_cpu_s'):.1f}",
        f"{peak_mb:,.0f}",
        *moved,
    ]


def _indented(text: str | None) -> str:
    return "\n  ".join((text or "").splitlines())


def chart(road: Road, rows: Sequence[Row]) -> str:
    """SVG: for each contestant a bar of seconds with its spread, and below it one of CPU seconds, both sides."""
    shown = [row for row in rows if row.runs]
    longest = max(max(max(run.wall_s, run.cpu_s + run.server_cpu_s) for run in row.runs) for row in shown)
    scale, height = _BAR_WIDTH / longest, 50 + _STEP * len(shown)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _BAR_WIDTH + 70}" height="{height}" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="8" y="20" font-size="14">{escape(road.title)}: seconds (dark), CPU seconds with servers (light)</text>',
    ]
    for number, row in enumerate(shown):
        y, seconds = 36 + _STEP * number, [run.wall_s for run in row.runs]
        dark, light = ("#0b6e4f", "#a7d7c5") if row.name.startswith(OURS) else ("#4a5568", "#cbd5e0")
        wall_s, cpu_s = row.median("wall_s"), row.median("cpu_s") + row.median("server_cpu_s")
        lines += [
            f'<text x="8" y="{y + 14}">{escape(row.name)}</text>',
            _bar(y, wall_s * scale, dark),
            _bar(y + _BAR_HEIGHT, cpu_s * scale, light),
            f'<path d="M{_LEFT + min(seconds) * scale:.1f} {y + 6}H{_LEFT + max(seconds) * scale:.1f}" stroke="#e53e3e"/>',
            f'<text x="{_LEFT + max(max(seconds), cpu_s) * scale + 6:.1f}" y="{y + 15}">{wall_s:.1f}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _bar(y: int, width: float, color: str) -> str:
    return f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT}" fill="{color}"/>'


def write(road: Road, rows: Sequence[Row], directory: Path = PAGE.parent) -> None:
    """Put a task's chart and table into their places."""
    (directory / f"peers-{road.name}.svg").write_text(chart(road, rows))
    loads = [run.load for row in rows for run in row.runs]
    rounds = max(len(row.runs) for row in rows)
    size, load = f"{road.size_bytes / 1e6:,.0f} MB, {rounds} round(s)", f"load {min(loads):.0f} to {max(loads):.0f}"
    about = f"{today()}, {os.cpu_count()} cores, {size}, {load}."
    content = f"{about}\n\n{table(road, rows)}\n\n![{road.title}](peers-{road.name}.svg)"
    put_on_page(f"peers {road.name}", content, directory / PAGE.name)
