"""An installation to be spoilt, and what `doctor` finds of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sidecar.config import Settings
from sidecar.doctor.findings import Finding, Report, Verdict


def settings_for(log_dir: Path, **sections: Any) -> Settings:
    tmp_path = log_dir.parent
    tree: dict[str, Any] = {
        "store": {"url": str(tmp_path / "archive")},
        "broker": {"log_dirs": [log_dir], "assume_leader": True},
        "run": {"state_dir": tmp_path / "state"},
    }
    for name, values in sections.items():
        tree[name] = {**tree.get(name, {}), **values}
    return Settings.model_validate(tree)


def found_in(report: Report, check: str) -> Finding:
    (finding,) = [found for found in report.findings if found.check == check]
    return finding


def troubles(report: Report) -> dict[str, str]:
    """Everything that is neither fine nor for want of something else, by check."""
    return {
        found.check: found.outcome.detail
        for found in report.findings
        if found.outcome.verdict in {Verdict.WARNING, Verdict.PROBLEM}
    }
