"""The last hour as two small charts: bytes archived per second, and bytes that wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sidecar.http.page.wording import bytes_text, duration_text
from sidecar.reporting.status_model import WINDOW_S, Sample

WIDTH = 600.0
HEIGHT = 100.0
NOW_S = 120.0


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of `WIDTH` by `HEIGHT`: `line` and the `area` below it are SVG paths, empty where nothing is known yet."""

    title: str
    now: str
    highest: str
    text: str
    line: str
    area: str


def throughput(samples: Sequence[Sample]) -> Chart:
    """Bytes that came into the archive per second, between each two samples."""
    earlier = [sample for sample in samples if sample.age_s >= NOW_S][-1:] or list(samples[:1])
    # Over the last `NOW_S`, or as much of it as is known: a single step is too short to tell.
    now = _rate(earlier[0], samples[-1]) if earlier and earlier[0].age_s > samples[-1].age_s else 0.0
    steps = [(older, newer) for older, newer in pairwise(samples) if older.age_s - newer.age_s >= 1]
    return _chart("Throughput", [(old.age_s, new.age_s, _rate(old, new)) for old, new in steps], now, "/s")


def _rate(older: Sample, newer: Sample) -> float:
    return (newer.archived_bytes - older.archived_bytes) / (older.age_s - newer.age_s)


def backlog(samples: Sequence[Sample]) -> Chart:
    """Bytes in rolled segments that are not archived yet."""
    steps = [
        (old.age_s, new.age_s, float(new.pending_bytes)) for old, new in pairwise(samples) if old.age_s > new.age_s
    ]
    return _chart("Waiting", steps, float(samples[-1].pending_bytes) if samples else 0.0, "")


def _chart(title: str, steps: Sequence[tuple[float, float, float]], now: float, per: str) -> Chart:
    highest = max([value for _, _, value in steps] or [now])
    seen_s = min(WINDOW_S, steps[0][0]) if steps else 0.0
    words = (
        f"{title}: now {bytes_text(now)}{per}, at most {bytes_text(highest)}{per} in the last {duration_text(seen_s)}"
    )
    line = _path(steps, highest)
    area = f"{line}L{WIDTH:g},{HEIGHT:g}L{_x(steps[0][0])},{HEIGHT:g}Z" if line else ""
    return Chart(title, f"{bytes_text(now)}{per}", f"{bytes_text(highest)}{per}", words, line, area)


def _path(steps: Sequence[tuple[float, float, float]], highest: float) -> str:
    parts = []
    for number, (older_s, newer_s, value) in enumerate(steps):
        y = HEIGHT - 2 - (value / highest * (HEIGHT - 8) if highest else 0.0)
        parts.append(f"{'L' if number else 'M'}{_x(older_s)},{y:.1f}L{_x(newer_s)},{y:.1f}")
    return "".join(parts)


def _x(age_s: float) -> str:
    return f"{max(0.0, WIDTH * (1 - age_s / WINDOW_S)):.1f}"
