"""The life of a release: what the API server admits of each of the chart's cases, and what is left of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.charts import CASES, CHART, MONITORING, HelmFailed, rendered
from tests.kube.cluster import Namespace, pod_templates

pytestmark = pytest.mark.real

IN_THE_GATE = ("full", "strimzi-webhook")
"""All kinds of objects, and the certificate. API servers are given the objects of all cases in the gate, too."""
CASE_IDS = [path.name.removesuffix("-values.yaml") for path in CASES]
HELM_VERSIONS = [3, pytest.param(4, marks=pytest.mark.apart)]
FULL, RECIPES = (str(CHART / "ci" / f"{name}-values.yaml") for name in ("full", "recipes"))


@pytest.mark.parametrize("helm_version", HELM_VERSIONS)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(path, id=name, marks=() if name in IN_THE_GATE else pytest.mark.apart)
        for path, name in zip(CASES, CASE_IDS, strict=True)
    ],
)
def test_a_release_comes_changes_goes_and_comes_again(case: Path, helm_version: int, namespace: Namespace) -> None:
    namespace = replace(namespace, helm_version=helm_version)
    values = ("--values", str(case))
    namespace.install(*values)
    installed = contents(namespace)
    namespace.admit(pods_of(installed))
    changes = ("--set", "image.tag=next,image.digest=", "--set", "settings.log.level=debug")
    namespace.install(*values, *changes, command="upgrade")
    upgraded = contents(namespace)
    namespace.admit(pods_of(upgraded))
    assert upgraded != installed
    namespace.helm("rollback", namespace.release)
    assert contents(namespace) == installed
    namespace.helm("uninstall", namespace.release)
    # Pods of brokers mount the settings.
    kept = [name for name, one in installed.items() if one["metadata"]["annotations"].get("helm.sh/resource-policy")]
    assert list(namespace.objects()) == kept
    has_recipes = yaml.safe_load(case.read_text()).get("recipes", {}).get("enabled", True)
    assert len(kept) == has_recipes
    namespace.install(*values)
    again = contents(namespace)
    # Each installation makes a certificate of its own; an upgrade and a rollback kept it.
    certificate = "Secret/archive-tiered-sidecar-webhook"
    assert {**again, **({certificate: installed[certificate]} if certificate in again else {})} == installed


@pytest.mark.parametrize(("years", "is_replaced"), [pytest.param(4, False, marks=pytest.mark.apart), (6, True)])
def test_an_upgrade_replaces_a_certificate_before_it_expires(
    years: int, is_replaced: bool, namespace: Namespace
) -> None:
    values = ("--values", str(CHART / "ci" / "strimzi-webhook-values.yaml"))
    namespace.install(*values)
    name, hook = "archive-tiered-sidecar-webhook", f"archive-tiered-sidecar-{namespace.name}"
    before = namespace.objects()[f"Secret/{name}"]
    issued = date.fromisoformat(before["metadata"]["annotations"]["tiered-sidecar/issued-on"])
    earlier = issued - timedelta(days=years * 365 + 1)
    namespace.kubectl("annotate", "secret", name, f"tiered-sidecar/issued-on={earlier}", "--overwrite")
    namespace.install(*values, command="upgrade")
    after = namespace.objects()[f"Secret/{name}"]
    assert (after["data"] != before["data"]) is is_replaced
    if is_replaced:
        assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    configuration = json.loads(namespace.kubectl("get", "mutatingwebhookconfiguration", hook, "-o", "json"))
    assert configuration["webhooks"][0]["clientConfig"]["caBundle"] == after["data"]["ca.crt"]


@pytest.mark.apart
@pytest.mark.parametrize("case", CASES, ids=CASE_IDS)
def test_a_release_of_helm_3_goes_on_with_helm_4(case: Path, namespace: Namespace) -> None:
    values = ("--values", str(case))
    namespace.install(*values)
    installed = contents(namespace)
    newer = replace(namespace, helm_version=4)
    newer.install(*values, "--set", "image.tag=next,image.digest=", command="upgrade")
    newer.helm("rollback", namespace.release)
    assert contents(namespace) == installed
    newer.helm("uninstall", namespace.release)


def test_rendered_objects_are_applied_without_helm_and_do_not_drift(namespace: Namespace) -> None:
    """As tools for GitOps do: a field that the API server changes, or drops, would differ for ever. Of all cases at once."""
    releases = zip(CASES, CASE_IDS, strict=True)
    objects = [one for case, name in releases for one in rendered(files=[case], apis=MONITORING, release=name)]
    assert len({(one["kind"], one["metadata"]["name"]) for one in objects}) == len(objects)
    text = yaml.safe_dump_all(objects)
    namespace.apply(text)
    # It fails on a difference.
    namespace.kubectl("diff", "--server-side", "--field-manager=kubectl", "-f", "-", stdin=text)
    # What is not in the namespace would be there for other tests.
    namespace.kubectl("delete", "--wait=false", "-f", "-", stdin=text)


def test_monitoring_objects_come_where_the_cluster_knows_them(namespace: Namespace) -> None:
    namespace.install("--values", RECIPES)
    assert {"PodMonitor/archive-tiered-sidecar", "PrometheusRule/archive-tiered-sidecar"} < set(namespace.objects())


def test_the_longest_names_are_admitted(namespace: Namespace) -> None:
    """Kubernetes counts characters of names, labels and hosts that no schema counts."""
    longest = Namespace(namespace.api, namespace.name, release="r" * 53)
    enabled = ["demo", "networkPolicy", "backfill", "podMonitor", "prometheusRule", "dashboard", "heal"]
    broker = ["name=" + "b" * 16, "claim=data-kafka-0", "logDirs[0]=/data/data"]
    settings = [f"{name}.enabled=true" for name in enabled] + [f"backfill.brokers[0].{part}" for part in broker]
    arguments = ["--values", RECIPES, "--set", ",".join([f"nameOverride={'n' * 63}", *settings])]
    longest.install(*arguments)
    longest.admit(pods_of(longest.objects()))
    longest.install(*arguments, "--set", "backfill.schedule=0 3 * * *", command="upgrade")
    longest.admit(pods_of(longest.objects()))


def test_who_may_administer_a_namespace_may_install_everything(namespace: Namespace) -> None:
    namespace.kubectl("create", "role", "tenant", "--verb=*", "--resource=*.*")
    namespace.kubectl("create", "rolebinding", "tenant", "--role=tenant", "--user=tenant")
    tenant = ("--kube-as-user=tenant", "--kube-as-group=system:authenticated")
    namespace.install("--values", FULL, *tenant)
    namespace.helm("uninstall", namespace.release, *tenant)


def test_refused_values_change_nothing(namespace: Namespace) -> None:
    """Which values are refused: tests/helm/test_refusals.py."""
    value, message = "settings.broker.assume_leader=true", "remove one of them"
    with pytest.raises(HelmFailed, match=message):
        namespace.install("--values", RECIPES, "--set", value)
    # Helm keeps releases in Secrets.
    assert namespace.kubectl("get", "secrets", "--output=name") == ""
    assert not namespace.objects()
    namespace.install("--values", RECIPES)
    before = contents(namespace)
    with pytest.raises(HelmFailed, match=message):
        namespace.install("--values", RECIPES, "--set", value, command="upgrade")
    assert contents(namespace) == before


def contents(namespace: Namespace) -> dict[str, Any]:
    """What all objects say, without what the API server makes up for each."""
    found = namespace.objects()
    for one in found.values():
        one["metadata"] = {name: one["metadata"].get(name) for name in ("annotations", "labels")}
        one.pop("status", None)
        if one["kind"] == "Service":
            one["spec"] = {name: part for name, part in one["spec"].items() if not name.startswith("clusterIP")}
        if one["kind"] == "Job":
            # They have its id.
            del one["spec"]["selector"], one["spec"]["template"]["metadata"]["labels"]
            del one["metadata"]["labels"]
    return found


def pods_of(objects: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods that controllers would make."""
    return [pod for one in objects.values() for pod in pod_templates(one)]
