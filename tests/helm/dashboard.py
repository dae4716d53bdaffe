"""The Grafana dashboard: its panels by row, and the JSON that is made from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_WIDTH, _HEIGHT = 24, 7
_SELECTOR = 'job=~"$job", instance=~"$instance"'


@dataclass(frozen=True)
class Panel:
    """One panel. Queries are `legend: expression`; `{$s}` in them stands for the chosen targets."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8


ROWS: dict[str, list[Panel]] = {
    "Is the archive up to date?": [
        Panel("Segments waiting", {"waiting": "sum(tiered_sidecar_pending_segments{$s})"}, kind="stat", width=6),
        Panel(
            "Oldest waiting segment",
            {"age": "max(tiered_sidecar_oldest_pending_segment_age_seconds{$s})"},
            "s",
            "stat",
            6,
        ),
        Panel(
            "Retention deletes unarchived data in",
            {"in": "min(tiered_sidecar_data_at_risk_in_seconds{$s})"},
            "s",
            "stat",
            6,
        ),
        Panel(
            "Partitions stopped",
            {"stopped": 'sum(tiered_sidecar_partitions{$s, state="stopped"})'},
            kind="stat",
            width=6,
        ),
        Panel("Partitions", {"{{state}}": "sum by (state) (tiered_sidecar_partitions{$s})"}),
        Panel("Backlog", {"{{instance}}": "tiered_sidecar_pending_segments{$s}"}),
        Panel(
            "Age of the oldest waiting segment",
            {"{{instance}}": "tiered_sidecar_oldest_pending_segment_age_seconds{$s}"},
            "s",
        ),
    ],
    "Throughput": [
        Panel(
            "Archived", {"{{stage}}": "sum by (stage) (rate(tiered_sidecar_bytes_total{$s}[$__rate_interval]))"}, "Bps"
        ),
        Panel(
            "Segments",
            {
                "{{stage}} {{result}}": "sum by (stage, result) (rate(tiered_sidecar_segments_total{$s}[$__rate_interval]))"
            },
            "ops",
        ),
        Panel(
            "Upload duration",
            {
                f"{percent}%": f"histogram_quantile({percent / 100}, sum by (le) "
                "(rate(tiered_sidecar_upload_duration_seconds_bucket{$s}[$__rate_interval])))"
                for percent in (50, 95)
            },
            "s",
        ),
    ],
    "Errors": [
        Panel(
            "Errors",
            {"{{kind}}": "sum by (kind) (increase(tiered_sidecar_errors_total{$s}[$__rate_interval]))"},
            width=12,
        ),
        Panel(
            "Requests to the store",
            {
                "{{operation}} {{result}}": "sum by (operation, result) "
                "(rate(tiered_sidecar_store_requests_total{$s}[$__rate_interval]))"
            },
            "ops",
            width=12,
        ),
    ],
    "Producer snapshots": [
        Panel(
            "Archived snapshots",
            {"{{origin}}": "sum by (origin) (increase(tiered_sidecar_snapshots_total{$s}[$__rate_interval]))"},
            width=12,
        ),
        Panel(
            "The broker's snapshot against the replayed state",
            {
                "{{result}}": "sum by (result) (increase(tiered_sidecar_snapshot_conformance_total{$s}[$__rate_interval]))"
            },
            width=12,
        ),
    ],
    "Compaction": [
        Panel("Longest due for", {"{{instance}}": "tiered_sidecar_compaction_oldest_due_age_seconds{$s}"}, "s"),
        Panel(
            "Partitions",
            {
                "due": "sum(tiered_sidecar_compaction_due_partitions{$s})",
                "quarantined": "sum(tiered_sidecar_compaction_quarantined_partitions{$s})",
            },
        ),
        Panel(
            "Bytes",
            {"{{side}}": "sum by (side) (rate(tiered_sidecar_compaction_bytes_total{$s}[$__rate_interval]))"},
            "Bps",
        ),
    ],
    "The process and its broker": [
        Panel("Memory", {"{{instance}}": "process_resident_memory_bytes{$s}"}, "bytes"),
        Panel("Processor", {"{{instance}}": "rate(process_cpu_seconds_total{$s}[$__rate_interval])"}),
        Panel(
            "Broker",
            {
                "unreachable {{instance}}": "tiered_sidecar_broker_unreachable{$s}",
                "metadata age {{instance}}": "tiered_sidecar_broker_metadata_age_seconds{$s}",
            },
        ),
        Panel(
            "Free space for work files",
            {"{{directory}} {{instance}}": "tiered_sidecar_work_dir_free_ratio{$s}"},
            "percentunit",
        ),
        Panel(
            "The broker's own log cleaner",
            {
                "stalled {{instance}}": "tiered_sidecar_broker_cleaner_stalled{$s}",
                "beyond max.compaction.lag.ms {{instance}}": "tiered_sidecar_broker_cleaner_beyond_max_lag_partitions{$s}",
            },
        ),
        Panel(
            "Conditions that are not met",
            {
                "{{condition}} {{instance}}": "tiered_sidecar_not_ready{$s}",
                "denied permissions {{instance}}": "tiered_sidecar_broker_denied_permissions{$s}",
                "retention unknown {{instance}}": "tiered_sidecar_retention_unknown_partitions{$s}",
            },
        ),
        Panel("Versions", {"{{version}}": "count by (version) (tiered_sidecar_build_info{$s})"}, kind="stat"),
    ],
}


def queries() -> list[str]:
    """All expressions as Prometheus would get them."""
    found = [query for panels in ROWS.values() for panel in panels for query in panel.queries.values()]
    return [query.replace("$s", 'job=~".*", instance=~".*"').replace("$__rate_interval", "5m") for query in found]


def dashboard() -> str:
    """The JSON to import."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(
            _placed({"type": "row", "title": title, "collapsed": False, "panels": []}, 0, y, _WIDTH, 1, len(panels))
        )
        y, x = y + 1, 0
        for panel in row:
            height = 4 if panel.kind == "stat" else _HEIGHT
            if x + panel.width > _WIDTH:
                x, y = 0, y + panels[-1]["gridPos"]["h"]
            panels.append(_placed(_panel(panel), x, y, panel.width, height, len(panels)))
            x += panel.width
        y += panels[-1]["gridPos"]["h"]
    content = {
        "title": "tiered-sidecar",
        "uid": "tiered-sidecar",
        "tags": ["kafka", "tiered-sidecar"],
        "editable": True,
        "schemaVersion": 39,
        "version": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [_source(), _variable("job", ""), _variable("instance", 'job=~"$job"')]},
        "panels": panels,
    }
    return json.dumps(content, indent=1) + "\n"


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "expr": query.replace("$s", _SELECTOR), "legendFormat": legend}
        for number, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }


def _placed(panel: dict[str, Any], x: int, y: int, width: int, height: int, number: int) -> dict[str, Any]:
    return {"id": number + 1, "gridPos": {"x": x, "y": y, "w": width, "h": height}, **panel}


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, matchers: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values(tiered_sidecar_build_info{{{matchers}}}, {name})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
    }
