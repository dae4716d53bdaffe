"""`before_upload` where it cannot compact: commands say so before segments go without."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.doctor.doctor import doctor
from sidecar.doctor.findings import Area
from sidecar.topic_policy import NOT_REPORTED, TopicPolicy
from tests.cli.running import in_this_process
from tests.cli.test_compaction_rules import BY_HEADER, HDR, Site, events
from tests.doctor.examined import found_in, settings_for, troubles
from tests.golden import golden

LOGS = golden("3.9.1") / "logs"


def written(tmp_path: Path, **compaction: Any) -> Path:
    file = tmp_path / "settings.yaml"
    store = {"url": str(tmp_path / "archive")}
    file.write_text(json.dumps({"store": store, "compaction": {**compaction}, "spark": {"engine": "local"}}))
    return file


def test_validate_warns_of_each_entry_that_cannot_be_compacted_before_its_upload(tmp_path: Path) -> None:
    entries = [
        {"pattern": "later"},
        {"pattern": "young", "when": "before_upload", "min_compaction_lag_ms": 60_000},
        {"pattern": "fine", "when": "before_upload"},
    ]
    shown = in_this_process("config", "validate", "--config", str(written(tmp_path, topics=entries)), "--json")
    (text,) = json.loads(shown.out)["warnings"]
    assert text.startswith("compaction.topics 'young': when: before_upload with min_compaction_lag_ms 60000")
    never = written(tmp_path, topics=entries, max_upload_delay_ms=0)
    shown = in_this_process("config", "validate", "--config", str(never), "--json")
    assert shown.code == 0
    assert [text.split("'")[1] for text in json.loads(shown.out)["warnings"]] == ["young", "fine"]


def test_doctor_warns_of_topics_that_are_here() -> None:
    entry = {"pattern": "orders", "when": "before_upload"}
    fine = settings_for(LOGS, compaction={"topics": [entry]}, spark={"engine": "local"})
    assert troubles(doctor(fine, areas=[Area.COMPACTION])) == {}
    in_vain = settings_for(LOGS, compaction={"topics": [entry], "max_upload_delay_ms": 0}, spark={"engine": "local"})
    found = found_in(doctor(in_vain, areas=[Area.COMPACTION]), "before upload").outcome
    assert "1 topic, such as orders: when: before_upload with max_upload_delay_ms 0" in found.detail
    assert "after_upload" in found.advice


def test_backfill_names_the_topics_that_it_archives_without_compaction(tmp_path: Path) -> None:
    entries = [{"pattern": "orders", "when": "before_upload"}, "compacted"]
    arguments = ["--config", str(written(tmp_path, topics=entries)), "--log-dir", str(LOGS), "--assume-leader"]
    topics = ["--topic", "orders", "--topic", "compacted", "--state-dir", str(tmp_path / "state")]
    for dry_run in (["--dry-run"], []):
        done = in_this_process("backfill", *arguments, *topics, "--json", *dry_run)
        assert done.code == 0
        assert json.loads(done.out)["without_compaction"] == ["orders"]
        (line,) = [
            line for line in map(json.loads, done.err.splitlines()) if line["event"] == "before_upload_not_applied"
        ]
        assert (line["level"], line["topic"]) == ("warning", "orders")
        archive, file = tmp_path / "archive", tmp_path / "settings.yaml"
        words = f"--archive {archive} --topic orders --config {file} --strategy offset"
        assert line["remedy"] == f"tiered-sidecar compact {words}"


def test_backfill_names_topics_of_which_the_rule_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileBrokerFacts, "policy", lambda _facts, _topic: TopicPolicy(unanswered=NOT_REPORTED))
    entries = [{"pattern": "orders", "when": "before_upload"}, "compacted"]
    arguments = ["--config", str(written(tmp_path, topics=entries)), "--log-dir", str(LOGS), "--assume-leader"]
    topics = ["--topic", "orders", "--topic", "compacted", "--state-dir", str(tmp_path / "state")]
    done = in_this_process("backfill", *arguments, *topics, "--json", "--dry-run")
    assert json.loads(done.out)["without_compaction"] == ["orders"]
    (line,) = [line for line in map(json.loads, done.err.splitlines()) if line["event"] == "before_upload_not_applied"]
    assert NOT_REPORTED in line["reason"]


@pytest.mark.parametrize("by_file", [True, False])
def test_the_command_that_backfill_recommends_compacts_by_the_entry(tmp_path: Path, by_file: bool) -> None:
    site = Site(tmp_path)
    shutil.rmtree(site.archive)
    entry = {**HDR, "when": "before_upload", "on_unkeyed": "refuse"}
    given = (
        ["--config", str(site.settings(entry))]
        if by_file
        else ["--archive", str(site.archive), "--set", f"compaction.topics={json.dumps([entry])}"]
    )
    places = ["--log-dir", str(site.log_dir), "--state-dir", str(tmp_path / "other"), "--assume-leader"]
    settled = ["--set", "broker.settle_ms=0", "--set", "broker.snapshot_grace_ms=0"]
    done = in_this_process("backfill", *given, *places, *settled, "--log-format", "json")
    assert done.code == 0, done.err
    ((_, *words),) = [shlex.split(line["remedy"]) for line in events(done, "before_upload_not_applied")]
    assert ("--config" in words) == by_file
    assert words[-2:] == ["--on-unkeyed", "refuse"]
    compacted = in_this_process(*words, "--engine", "local")
    assert compacted.code == 0, compacted.err
    assert site.kept() == BY_HEADER
