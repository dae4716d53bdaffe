"""Alerts fire when they should and only then; they and the dashboard ask for nothing that the program does not export."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from producer_state.compare import Conformance
from sidecar import errors
from sidecar.metrics import Metrics
from sidecar.metrics.registry import SNAPSHOT_RESULTS, Stage
from sidecar.partition.status import PartitionCondition
from sidecar.reporting.health_reporter import ALL_CONDITIONS
from tests.fakes.manual_clock import ManualClock
from tests.helm.alert_stories import STORIES, TARGET, Story
from tests.helm.charts import CHART, MONITORING, NEEDED, rendered
from tests.helm.dashboard import queries
from tests.helm.tools import promtool
from tests.reference_pages import declared_metrics

pytestmark = pytest.mark.real

ALERTS = CHART / "files" / "alerts.yaml"
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
EXPRESSIONS = [str(rule["expr"]) for rule in RULES if "kube_pod_" not in rule["expr"]] + queries()
_LABELS = re.compile(r'(\w+)="([^"]*)"')
_OF_THE_SCRAPE = {"job", "instance", "pod"}
_SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
_SELECTOR = re.compile(r"\b((?:tiered_sidecar|process)_[a-z_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_VALUES = {
    "kind": {name for name in vars(errors) if name[0].isupper()},
    "result": {"ok", "failed", *SNAPSHOT_RESULTS, *(name for name in vars(errors) if name[0].isupper())},
    "stage": set(Stage),
    "state": set(PartitionCondition),
    "directory": {"state", "staging"},
    "condition": set(ALL_CONDITIONS),
}


def check(*arguments: str | Path) -> None:
    done = subprocess.run([str(promtool()), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_story_and_says_what_to_do() -> None:
    assert [rule["alert"] for rule in RULES] == list(STORIES)
    for rule in RULES:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "meaning", "action"}
        assert rule["annotations"]["summary"].startswith("{{ or $labels.pod $labels.instance }}: ")


def test_prometheus_reads_the_file_as_it_is() -> None:
    check("check", "rules", ALERTS)


def test_the_metrics_follow_the_conventions_of_prometheus() -> None:
    page, _ = Metrics(ManualClock(0)).exposition()
    done = subprocess.run([str(promtool()), "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


@pytest.mark.parametrize("cluster", ["", "my-cluster"])
def test_brokers_without_a_sidecar_are_reported_where_the_chart_injects_it(cluster: str) -> None:
    text = ALERTS.read_text(encoding="utf-8")
    matcher = 'namespace=~".+", label_strimzi_io_broker_role="true"'
    assert text.count(matcher) == 1
    of_chart = 'namespace="kafka", label_strimzi_io_broker_role="true"'
    of_chart += f', label_strimzi_io_cluster="{cluster}"' if cluster else ""
    with_injection = yaml.safe_load(text.replace(matcher, of_chart))
    injected = {"inject.engine": "webhook", "inject.strimzi.enabled": "true", "inject.strimzi.cluster": cluster}
    assert _rules_of({**NEEDED, **injected}) == with_injection
    for group in with_injection["groups"]:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert") != "TieredSidecarMissing"]
    assert _rules_of(NEEDED) == with_injection


def _rules_of(values: Mapping[str, Any]) -> Any:
    objects = rendered(values, apis=MONITORING, namespace="kafka")
    (rule,) = (found for found in objects if found["kind"] == "PrometheusRule")
    return rule["spec"]


@pytest.mark.parametrize("name", STORIES)
def test_an_alert_tells_its_story(name: str, tmp_path: Path) -> None:
    story = STORIES[name]
    firing = [story, *(replace(story, firing=series) for series in story.also_firing)]
    quiet = [story, *(replace(story, quiet=series) for series in story.also_quiet)]
    tests = [_promtool_test(name, one, fires=True) for one in firing]
    _check_stories(tmp_path, name, tests + [_promtool_test(name, one, fires=False) for one in quiet])


def test_a_target_that_is_no_pod_is_named_by_its_address(tmp_path: Path) -> None:
    story = replace(STORIES["TieredSidecarBrokerUnreachable"], summary="10.0.0.1:9308: the broker does not respond")
    target = TARGET.removesuffix(', pod="kafka-0"')
    name = "TieredSidecarBrokerUnreachable"
    _check_stories(tmp_path, name, [_promtool_test(name, story, fires=True, target=target)])


def _check_stories(directory: Path, name: str, tests: list[dict[str, Any]]) -> None:
    """With the rule of this alert alone: promtool evaluates each rule that it is given at each time of the story."""
    (directory / "rule.yaml").write_text(json.dumps({"groups": [{"name": name, "rules": [_rule(name)]}]}))
    # Not at the times of the samples: there, `increase` is exact, and elsewhere it extrapolates.
    file = {"rule_files": ["rule.yaml"], "evaluation_interval": "41s", "tests": tests}
    (directory / "story.yaml").write_text(json.dumps(file))
    check("test", "rules", directory / "story.yaml")


def _rule(name: str) -> dict[str, Any]:
    (rule,) = (rule for rule in RULES if rule["alert"] == name)
    return rule


def _promtool_test(name: str, story: Story, *, fires: bool, target: str = TARGET) -> dict[str, Any]:
    rule = _rule(name)
    series = story.firing if fires else story.quiet
    expected = {
        "exp_labels": {**dict(_LABELS.findall(target)), **rule["labels"], **story.labels},
        "exp_annotations": {**rule["annotations"], "summary": story.summary},
    }
    return {
        "interval": "1m",
        "input_series": [
            {"series": key.replace("{T}", target).replace("{{", "{").replace("}}", "}"), "values": values}
            for key, values in series.items()
        ],
        "alert_rule_test": [
            {
                "eval_time": f"{story.eval_minute}m30s",
                "alertname": name,
                "exp_alerts": [expected] if fires else [],
            }
        ],
    }


def test_prometheus_reads_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"panel:query{number}", "expr": query} for number, query in enumerate(queries())]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    check("check", "rules", path)


def test_the_dashboard_asks_only_for_what_it_was_checked_for() -> None:
    content = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    panels = [panel for panel in content["panels"] if panel["type"] != "row"]
    assert sum(len(panel["targets"]) for panel in panels) == len(queries())
    assert len({panel["id"] for panel in content["panels"]}) == len(content["panels"])
    places = [
        (x, y)
        for panel in content["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places), "panels lie over each other"
    assert max(x for x, _ in places) < 24


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_asked_for_is_exported(expression: str) -> None:
    metrics = Metrics()
    labels_of = {
        name + suffix: {*labels, *({"le"} if suffix == "_bucket" else ())}
        for name, kind, labels, _ in declared_metrics(metrics)
        for suffix in _SUFFIXES[kind]
    }
    own = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    labels_of |= {name: set() for name in own if name.startswith("process_")}
    selectors = _SELECTOR.findall(expression)
    assert selectors
    for name, matchers in selectors:
        assert name in labels_of, f"{name} is no metric of this program"
        for label, _, value in _MATCHER.findall(matchers):
            if label in _OF_THE_SCRAPE:
                continue
            assert label in labels_of[name], f"{name} has no label {label}"
            assert set(value.split("|")) <= _VALUES[label], f"{label} is never {value}"
    for label in re.findall(r"(?:by|without) \(([^)]*)\)", expression):
        known = set().union(*(labels_of[name] for name, _ in selectors))
        assert {part.strip() for part in label.split(",")} <= known


def test_snapshots_are_compared_with_the_results_that_are_shown_from_the_start() -> None:
    assert set(Conformance) <= set(SNAPSHOT_RESULTS)
