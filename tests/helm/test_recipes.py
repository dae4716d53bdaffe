"""What is put beside the brokers of each host: the command line and the chart say the same, and a pod with it is valid."""

from __future__ import annotations

import kubernetes_validate
import pytest
import yaml

from sidecar.cli.kubernetes import Host, recipe
from tests.helm.charts import rendered

pytestmark = pytest.mark.real

STORE = {"settings.store.url": "s3://bucket/prefix"}


@pytest.mark.parametrize("host", Host)
@pytest.mark.parametrize("heals", [False, True])
@pytest.mark.parametrize("secret", [None, "archive-keys"])
def test_the_command_line_prints_the_recipe_of_the_chart(host: Host, heals: bool, secret: str | None) -> None:
    values = {**STORE, "heal.enabled": str(heals).lower(), "image.repository": "example/sidecar", "image.tag": "v9"}
    values |= {"s3.existingSecret": secret} if secret else {}
    objects = rendered(values, release="archive")
    (config_map,) = (found for found in objects if found["metadata"]["name"] == "archive-tiered-sidecar-recipes")
    text = recipe(host, image="example/sidecar:v9", name="archive-tiered-sidecar", secret=secret, heals=heals)
    assert text == config_map["data"][f"{host}.yaml"].rstrip("\n") + "\n"


@pytest.mark.parametrize("host", Host)
@pytest.mark.parametrize("kubernetes", ["1.29", "1.37"])
def test_a_pod_with_the_recipe_is_valid(host: Host, kubernetes: str) -> None:
    text = recipe(host, image="example/sidecar:9", name="archive", secret="keys", heals=True)
    found = yaml.safe_load(text)
    match host:
        case Host.BITNAMI:
            added = {**found["controller"], "volumes": found["controller"]["extraVolumes"]}
        case Host.KOPERATOR:
            added = found["spec"]["brokerConfigGroups"]["default"]
        case Host.CFK:
            added = yaml.safe_load(found["data"]["pod-template.yaml"])["spec"]["template"]["spec"]
        case Host.PLAIN:
            added = found["spec"]["template"]["spec"]
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
