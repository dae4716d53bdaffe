"""Renders the page, once for all viewers of the same rows, and only while it is viewed."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

from sidecar import __version__
from sidecar.clock import Clock
from sidecar.http.page import charts, ranges, wording
from sidecar.http.page.rows import Query, Row, State, parse, row_of, select
from sidecar.http.page.summary import Summary, mismatches, summary_of
from sidecar.model import TopicPartition
from sidecar.reporting.health_reporter import Health
from sidecar.reporting.status_model import StatusFigures, StatusModel

if TYPE_CHECKING:
    from jinja2 import Template

FRESH_S = 2.0
"""However many viewers there are, figures are gathered once in this time."""
FRESH_S_MAX = 30.0
"""Ages and deadlines move although nothing happens."""
RENDERED_MAX = 16
UPLOADS_SHOWN_MAX = 8


@dataclass(frozen=True, slots=True, eq=False)
class _Moment:
    """Everything that is shown, as of one moment. `number` identifies the moment within this process."""

    number: int
    version: int
    taken_s: float
    taken_ms: int
    figures: StatusFigures
    rows: tuple[Row, ...]
    status: Mapping[str, Any]
    summary: Summary


class StatusPage:
    """The page at `/`. Thread-safe; does nothing until it is asked for."""

    def __init__(self, model: StatusModel, health: Health, clock: Clock, heartbeat_timeout_s: float) -> None:
        self._model = model
        self._health = health
        self._clock = clock
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._lock = threading.Lock()
        self._moment: _Moment | None = None
        self._rendered = lru_cache(RENDERED_MAX)(
            lambda moment, wanted: self._template.render(_variables(moment, wanted)).encode()
        )
        self._nonce = f"{clock.now_ms():x}"

    def render(self, query: str) -> tuple[str, bytes]:
        """The page for the query of an address, and its entity tag. All who ask at once share one rendering."""
        wanted = parse(query)
        with self._lock:
            moment, address = self._now(), wanted.address(page=wanted.page)
            tag = f'"{self._nonce}-{moment.number}-{crc32(address.encode()):08x}"'
            return tag, self._rendered(moment, wanted)

    def _now(self) -> _Moment:
        """What is shown now: what was last gathered, if it is fresh."""
        last, now_s, version = self._moment, self._clock.monotonic_s(), self._model.version
        if last is not None:
            age_s = now_s - last.taken_s
            if age_s < (FRESH_S if version != last.version else FRESH_S_MAX):
                return last
        status = {**self._health.status(), "not_ready": dict(self._health.not_ready())}
        figures = self._model.figures()
        compaction = status.get("compaction", {}).get("partitions", ())
        clean_ends = {TopicPartition(row["topic"], row["partition"]): row.get("clean_end_offset") for row in compaction}
        rows = tuple(row_of(found, clean_ends) for found in figures.partitions)
        age_s = self._health.heartbeat_age_s()
        summary = summary_of(
            rows,
            figures,
            status,
            self._health.awaited(),
            age_s if age_s > self._heartbeat_timeout_s else None,
            self._clock.now_ms(),
        )
        number = 0 if last is None else last.number + 1
        self._moment = _Moment(number, version, now_s, self._clock.now_ms(), figures, rows, status, summary)
        self._rendered.cache_clear()
        return self._moment

    @cached_property
    def _template(self) -> "Template":
        # Loaded at the first view: a sidecar without viewers does not pay for it.
        from jinja2 import Environment, PackageLoader, StrictUndefined

        environment = Environment(
            loader=PackageLoader("sidecar.http.page", "."),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {
            "bytes": wording.bytes_text,
            "count": wording.count_text,
            "time": wording.time_text,
            "machine_time": wording.machine_time,
            "duration": wording.duration_text,
        }
        environment.globals |= {"plural": wording.plural, "remedies": wording.REMEDIES}
        return environment.get_template("page.html")


def _variables(moment: _Moment, query: Query) -> dict[str, Any]:
    figures, status = moment.figures, moment.status
    compaction = status.get("compaction", {}).get("partitions", ())
    return {
        "program": f"tiered-sidecar {__version__}",
        "figures": figures,
        "summary": moment.summary,
        "now_ms": moment.taken_ms,
        "table": select(moment.rows, query),
        "query": query,
        "states": list(State),
        "legend": [(kind, *texts) for kind, texts in ranges.LEGEND.items()],
        "charts": (charts.throughput(figures.samples), charts.backlog(figures.samples)),
        "uploads": sorted(figures.uploads, key=lambda upload: upload.begun_ms)[:UPLOADS_SHOWN_MAX],
        "cleaner": status.get("broker_cleaner"),
        "compacting": [row for row in compaction if row["running"]],
        "due": sum(row.get("due") is not None for row in compaction),
        "held_back": [row for row in compaction if "waiting" in row],
        "quarantined": [row for row in compaction if "quarantined" in row],
        "compaction": compaction,
        "snapshots": {
            "broker": figures.snapshots["broker"],
            "rebuilt": figures.snapshots["rebuilt"],
            "mismatch": mismatches(figures.snapshots),
            "in_archive": sum(found.extent.segments for found in figures.partitions),
            "rebuilt_in_archive": sum(found.extent.snapshots_rebuilt for found in figures.partitions),
        },
    }
