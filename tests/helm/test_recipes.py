"""What is put beside the brokers of each host: the command line and the chart say the same, and a pod with it is valid."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from sidecar.cli.kubernetes import Host, recipe
from tests.helm.charts import NEEDED, rendered

pytestmark = pytest.mark.real

IN_POD_TEMPLATES = [host for host in Host if host is not Host.STRIMZI]
"""Hosts whose resources take the sidecar. Into Strimzi's pods a policy injects it: test_injection.py."""


@pytest.mark.parametrize("host", Host)
@pytest.mark.parametrize("heals", [False, True])
@pytest.mark.parametrize(("secret", "token"), [(None, None), ("archive-keys", None), ("archive-keys", "page")])
def test_the_command_line_prints_the_recipe_of_the_chart(
    host: Host, heals: bool, secret: str | None, token: str | None
) -> None:
    values = {**NEEDED, "heal.enabled": str(heals).lower(), "image.repository": "example/sidecar", "image.tag": "v9"}
    values |= {"s3.existingSecret": secret} if secret else {}
    values |= {"statusPage.existingSecret": token} if token else {}
    objects = rendered(values, release="archive", namespace="kafka")
    (config_map,) = (found for found in objects if found["metadata"]["name"] == "archive-tiered-sidecar-recipes")
    name = "archive-tiered-sidecar"
    text = recipe(
        host, image="example/sidecar:v9", name=name, secret=secret, token=token, heals=heals, namespace="kafka"
    )
    assert text == config_map["data"][f"{host}.yaml"].rstrip("\n") + "\n"


def added_to_the_pod(host: Host, text: str) -> dict[str, Any]:
    """What a recipe adds: `initContainers`, `volumes`, and whatever else it says of a pod."""
    found = yaml.safe_load(text)
    match host:
        case Host.BITNAMI:
            return {**found["controller"], "volumes": found["controller"]["extraVolumes"]}
        case Host.KOPERATOR:
            return dict(found["spec"]["brokerConfigGroups"]["default"])
        case Host.CFK:
            return dict(yaml.safe_load(found["data"]["pod-template.yaml"])["spec"]["template"]["spec"])
        case Host.PLAIN:
            return dict(found["spec"]["template"]["spec"])
    raise ValueError(host)


@pytest.mark.parametrize("host", IN_POD_TEMPLATES)
def test_a_recipe_says_only_what_the_sidecar_needs(host: Host) -> None:
    values = {**NEEDED, "settings.http.bind": "[::]:9400", "statusPage.existingSecret": "token"}
    (config_map,) = (found for found in rendered(values) if found["metadata"]["name"].endswith("-recipes"))
    added = added_to_the_pod(host, config_map["data"][f"{host}.yaml"])
    # How long the broker may take to stop is the broker's.
    assert set(added) - {"podLabels", "brokerLabels", "extraVolumes"} == {"initContainers", "volumes"}
    (sidecar,) = added["initContainers"]
    assert sidecar["ports"] == [{"name": "sidecar-http", "containerPort": 9400}]
    assert sidecar["livenessProbe"]["httpGet"]["port"] == "sidecar-http"
    data, *own = (mount["name"] for mount in sidecar["volumeMounts"])
    assert data not in own
    assert set(own) == {volume["name"] for volume in added["volumes"]}
    assert "tiered-sidecar-token" in own


@pytest.mark.parametrize("host", IN_POD_TEMPLATES)
@pytest.mark.parametrize("kubernetes", ["1.29", "1.37"])
@pytest.mark.parametrize("token", [None, "page"])
def test_a_pod_with_the_recipe_is_valid(host: Host, kubernetes: str, token: str | None) -> None:
    text = recipe(host, image="example/sidecar:9", name="archive", secret="keys", token=token, heals=True)
    added = added_to_the_pod(host, text)
    (mount, *_) = added["initContainers"][0]["volumeMounts"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kafka-0"},
        "spec": {
            "containers": [{"name": "kafka", "image": "kafka"}],
            "initContainers": added["initContainers"],
            "volumes": [*added["volumes"], {"name": mount["name"], "emptyDir": {}}],
        },
    }
    kubernetes_validate.validate(pod, kubernetes, strict=True)
    heal, sidecar = added["initContainers"]
    assert "readOnly" not in mount
    assert heal["args"][-1].startswith(mount["mountPath"])
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["volumeMounts"][0] == {**mount, "readOnly": True}
    named = {mount["name"] for container in added["initContainers"] for mount in container["volumeMounts"]}
    assert named == {volume["name"] for volume in pod["spec"]["volumes"]}
    assert ("tiered-sidecar-token" in named) is (token is not None)


def test_the_policy_of_the_bitnami_chart_lets_prometheus_reach_the_sidecar() -> None:
    values = {**NEEDED, "settings.http.bind": "0.0.0.0:9400"}
    (config_map,) = (found for found in rendered(values) if found["metadata"]["name"].endswith("-recipes"))
    found = yaml.safe_load(config_map["data"]["bitnami.yaml"])
    assert found["networkPolicy"] == {"extraIngress": [{"ports": [{"port": 9400}]}]}
