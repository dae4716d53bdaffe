"""Tombstones that are removed before older versions of their key are compacted: the settings and doctor warn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sidecar.compactor.topic_rule import tombstone_expiry_risk
from sidecar.config import CompactionPolicy
from sidecar.doctor.doctor import doctor
from sidecar.doctor.findings import Area, Verdict
from tests.cli.running import in_this_process
from tests.doctor.examined import found_in, settings_for, troubles

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("strategy", "max_compaction_lag_ms", "segment_ms", "delete_retention_ms", "is_at_risk"),
    [
        ("offset", 2**63 - 1, 7 * DAY_MS, DAY_MS, False),
        ("timestamp", 2**63 - 1, None, DAY_MS, True),
        ("header", 2**63 - 1, None, DAY_MS, True),
        ("header", DAY_MS, None, DAY_MS, True),
        ("header", DAY_MS - 1, None, DAY_MS, False),
        ("header", 1000, 7 * DAY_MS, DAY_MS, True),
        ("header", DAY_MS // 2, DAY_MS // 2, DAY_MS, True),
        ("header", DAY_MS // 2, DAY_MS // 2 - 1, DAY_MS, False),
    ],
)
def test_a_record_must_be_compacted_before_a_tombstone_of_its_key_can_go(
    strategy: str, max_compaction_lag_ms: int, segment_ms: int | None, delete_retention_ms: int, is_at_risk: bool
) -> None:
    values: dict[str, Any] = {"strategy": strategy, "header": "version" if strategy == "header" else ""}
    assert tombstone_expiry_risk(CompactionPolicy.model_validate({"strategy": "header", "header": " "}), None) == ""
    policy = CompactionPolicy.model_validate(
        values | {"max_compaction_lag_ms": max_compaction_lag_ms, "delete_retention_ms": delete_retention_ms}
    )
    assert bool(tombstone_expiry_risk(policy, segment_ms)) == is_at_risk


def test_validate_warns_by_entry_and_the_settings_stay_valid(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    entries = [
        {"pattern": "plain"},
        {"pattern": "late", "strategy": "timestamp"},
        {"pattern": "soon", "strategy": "timestamp", "max_compaction_lag_ms": 3_600_000},
    ]
    file.write_text(json.dumps({"store": {"url": str(tmp_path)}, "compaction": {"topics": entries}}))
    shown = in_this_process("config", "validate", "--config", str(file))
    assert (shown.code, shown.err.count("warning:")) == (0, 1)
    assert "'late'" in shown.err
    (text,) = json.loads(in_this_process("config", "validate", "--config", str(file), "--json").out)["warnings"]
    assert "delete_retention_ms" in text


@pytest.mark.parametrize(
    ("pattern", "policies", "warnings", "not_checked"),
    [
        ("hdr", [], 0, 1),
        ("hdr", [{"pattern": "hdr", "segment_ms": 86_000_000}], 1, 0),
        ("hdr", [{"pattern": "hdr", "segment_ms": 3_600_000}], 0, 0),
        ("hdr", [{"pattern": "hdr", "segment_ms": 3_600_000}, {"pattern": ".*", "segment_ms": 86_000_000}], 0, 0),
        ("hdr", [{"pattern": "h.*", "segment_ms": 86_000_000}], 1, 0),
        ("hdr", [{"pattern": "other", "segment_ms": 86_000_000}], 0, 1),
        (r"h\w+", [{"pattern": "hdr", "segment_ms": 86_000_000}], 1, 0),
        (r"h\w+", [{"pattern": "hdr", "segment_ms": 3_600_000}], 0, 1),
        (r"h\w+", [{"pattern": r"h\w+", "segment_ms": 3_600_000}], 0, 0),
    ],
)
def test_validate_goes_by_segment_ms_of_the_settings(
    tmp_path: Path, pattern: str, policies: list[dict[str, Any]], warnings: int, not_checked: int
) -> None:
    file = tmp_path / "settings.yaml"
    entry = {"pattern": pattern, "strategy": "header", "header": "v", "max_compaction_lag_ms": 3_600_000}
    tree = {"store": {"url": str(tmp_path)}, "compaction": {"topics": [entry]}, "topics": {"policies": policies}}
    file.write_text(json.dumps(tree))
    found = json.loads(in_this_process("config", "validate", "--config", str(file), "--json").out)
    assert (len(found["warnings"]), len(found["not_checked"])) == (warnings, not_checked)
    shown = in_this_process("config", "validate", "--config", str(file)).err
    assert (shown.count("warning: "), shown.count("not checked: ")) == (warnings, not_checked)


def test_doctor_goes_by_each_topics_own_values(log_dir: Path) -> None:
    entry = {"pattern": "orders", "strategy": "timestamp", "max_compaction_lag_ms": 3_600_000}
    compaction = {"topics": [entry]}
    plain = doctor(settings_for(log_dir, compaction=compaction, spark={"engine": "local"}), areas=[Area.COMPACTION])
    assert troubles(plain) == {}
    unknown = found_in(plain, "tombstones").outcome
    assert unknown.verdict is Verdict.NOT_CHECKED
    assert f"orders: segment.ms is not known; it must be below {DAY_MS - 3_600_000} " in unknown.detail
    soon = settings_for(
        log_dir, compaction=compaction, topics={"policies": [{"pattern": "orders", "segment_ms": 60_000}]}
    )
    assert found_in(doctor(soon, areas=[Area.COMPACTION]), "tombstones").outcome.verdict is Verdict.OK
    policies = [{"pattern": "orders", "segment_ms": 7 * DAY_MS}]
    rolled_late = settings_for(log_dir, compaction=compaction, spark={"engine": "local"}, topics={"policies": policies})
    found = found_in(doctor(rolled_late, areas=[Area.COMPACTION]), "tombstones").outcome
    assert f"orders: strategy timestamp with max_compaction_lag_ms 3600000 + segment.ms {7 * DAY_MS}" in found.detail
    assert "segment.ms" in found.advice
