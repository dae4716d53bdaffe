"""Objects beside the recipes: their labels, what the network lets through, what outlives the release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.charts import CHART, MONITORING, NEEDED, helm, rendered
from tests.helm.test_charts import pods_of

pytestmark = pytest.mark.real

BACKFILL = {
    "backfill.enabled": "true",
    "backfill.brokers[0].name": "first",
    "backfill.brokers[0].claim": "data-kafka-0",
}
BACKFILL["backfill.brokers[0].logDirs[0]"] = "/data/data"
NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"


class StrictLoader(yaml.SafeLoader):
    """Refuses a mapping with the same key twice, as Kubernetes' strict decoding does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{sorted(keys)}{node.start_mark}"
        return dict(super().construct_mapping(node, deep=deep))


def test_labels_of_the_chart_are_its_own_and_stand_there_once(tmp_path: Path) -> None:
    ours = {NAME: "tiered-sidecar", COMPONENT: "backfill"}
    given = {**dict.fromkeys(ours, "theirs"), "team": "data"}
    values = {
        "settings": {"store": {"url": "s3://bucket/prefix"}, "broker": {"assume_leader": True}},
        "commonLabels": {**given, "release": "common"},
        "demo": {"enabled": True},
        "networkPolicy": {"enabled": True},
        "backfill": {
            "enabled": True,
            "podLabels": given,
            "brokers": [{"name": "0", "claim": "data-kafka-0", "logDirs": ["/data/data"]}],
        },
        **{
            name: {"enabled": True, "labels": {"release": name}}
            for name in ("podMonitor", "prometheusRule", "dashboard")
        },
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    apis = [word for api in MONITORING for word in ("--api-versions", api)]
    text = helm("template", "release", str(CHART), "--kube-version", "1.37.0", "--values", str(file), *apis)
    objects = [found for found in yaml.load_all(text, StrictLoader) if found]
    labels = {found["kind"]: found["metadata"]["labels"] for found in objects if "labels" in found["metadata"]}
    assert {found[NAME] for found in labels.values()} == {"tiered-sidecar"}
    assert {found["team"] for found in labels.values()} == {"data"}
    assert labels["PodMonitor"]["release"] == "podMonitor"
    (job,) = (found for found in objects if found["kind"] == "Job")
    pod = job["spec"]["template"]["metadata"]["labels"]
    assert {name: pod[name] for name in ours} == ours
    assert pod["team"] == "data"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, [9092]),
        ({"settings.broker.connection.bootstrap_servers": "{kafka:9093,[::1]:9094}"}, [9093, 9094]),
        ({"networkPolicy.brokerPorts": "{9092,9095}"}, [9092, 9095]),
    ],
)
def test_backfill_reaches_the_brokers_it_asks_for_leaders(values: dict[str, str], expected: list[int]) -> None:
    objects = rendered({**NEEDED, **BACKFILL, "networkPolicy.enabled": "true", **values})
    (policy,) = (found for found in objects if found["kind"] == "NetworkPolicy")
    *_, brokers = policy["spec"]["egress"]
    assert sorted(entry["port"] for entry in brokers["ports"]) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, [443]),
        ({"settings.store.s3.endpoint_url": "http://minio:9000/"}, [443, 9000]),
        ({"settings.store.s3.endpoint_url": "http://10.0.0.1"}, [80, 443]),
        ({"settings.store.s3.endpoint_url": "https://[fd00::1]:8443", "networkPolicy.storePorts": "{80}"}, [80, 8443]),
        ({"settings.store.s3.endpoint_url": "https://s3.example"}, [443]),
    ],
)
def test_backfill_may_reach_the_port_of_the_endpoint(values: dict[str, str], expected: list[int]) -> None:
    objects = rendered({**NEEDED, **BACKFILL, "networkPolicy.enabled": "true", **values})
    (policy,) = (found for found in objects if found["kind"] == "NetworkPolicy")
    store = policy["spec"]["egress"][2]
    assert sorted(entry["port"] for entry in store["ports"]) == expected


def test_backfill_that_asks_no_broker_reaches_none() -> None:
    given = {"settings.store.url": "s3://bucket/prefix", "settings.broker.assume_leader": "true"}
    objects = rendered({**given, **BACKFILL, "networkPolicy.enabled": "true"})
    (policy,) = (found for found in objects if found["kind"] == "NetworkPolicy")
    assert [[entry["port"] for entry in rule["ports"]] for rule in policy["spec"]["egress"] if "ports" in rule] == [
        [53, 53],
        [443],
    ]


def test_what_pods_of_brokers_mount_outlives_the_release_and_may_be_missing() -> None:
    objects = {
        found["metadata"]["name"]: found
        for found in rendered({**NEEDED, "s3.existingSecret": "keys", "statusPage.existingSecret": "token"})
    }
    settings = objects["release-tiered-sidecar-settings"]
    assert settings["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    patch = yaml.safe_load(objects["release-tiered-sidecar-recipes"]["data"]["plain.yaml"])
    spec = patch["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["tiered-sidecar-settings"]["configMap"]["optional"] is True
    assert volumes["tiered-sidecar-token"]["secret"]["optional"] is True
    assert volumes["tiered-sidecar-keys"]["secret"]["optional"] is True
    (sidecar,) = spec["initContainers"]
    # What a variable takes from an object stays as it was when the container began: a late Secret would never arrive.
    assert not [entry for entry in sidecar["env"] if "valueFrom" in entry]
    files = {item["path"] for item in volumes["tiered-sidecar-keys"]["secret"]["items"]}
    (keys,) = (mount["mountPath"] for mount in sidecar["volumeMounts"] if mount["name"] == "tiered-sidecar-keys")
    named = {
        entry["value"] for entry in sidecar["env"] if entry["name"].endswith("KEY_FILE") or "KEY_ID" in entry["name"]
    }
    assert named == {f"{keys}/{file}" for file in files}


@pytest.mark.parametrize("native", ["true", "false"])
def test_nothing_that_a_start_lacks_makes_the_broker_s_pod_unready(native: str) -> None:
    """A readiness probe of any container counts for the pod, a startup probe of a native sidecar keeps the broker waiting."""
    values = {**NEEDED, "sidecar.native": native, "settings.http.bind": "[::]:9400", "demo.enabled": "true"}
    objects = rendered(values)
    recipes = next(found["data"] for found in objects if found["metadata"]["name"].endswith("-recipes"))
    patch = yaml.safe_load(recipes["plain.yaml"])["spec"]["template"]["spec"]
    containers = [
        container
        for pod in (patch, *pods_of(objects))
        for container in (*(pod.get("initContainers") or ()), *pod.get("containers", ()))
        if container["name"] == "tiered-sidecar"
    ]
    assert len(containers) == 2
    binds = set()
    for container in containers:
        assert container["args"] == ["run", "--retry-start"]
        assert not {"readinessProbe", "startupProbe"} & set(container)
        # The probe is answered at the same place without the settings file as with it.
        bind = {entry["name"]: entry.get("value") for entry in container["env"]}["TIERED_SIDECAR__HTTP__BIND"]
        assert [port["containerPort"] for port in container["ports"]] == [int(bind.rpartition(":")[2])]
        binds.add(bind)
    assert binds == {"[::]:9400", "0.0.0.0:9308"}


def test_the_demo_fits_a_node_of_two_cores_twice_and_mounts_the_disk_where_apache_s_image_has_a_volume() -> None:
    """With the mount one folder above, the image's VOLUME lies over the data of the broker alone, and the sidecar sees nothing."""
    objects = rendered(files=[CHART / "ci" / "demo-values.yaml"])
    templates = [one["spec"]["template"]["spec"] for one in objects if one["kind"] in {"Deployment", "StatefulSet"}]
    containers = [one for pod in templates for one in [*(pod.get("initContainers") or []), *pod["containers"]]]
    assert sum(_millicores(one["resources"]["requests"]["cpu"]) for one in containers) < 1000
    mounts = {
        one["name"]: {mount["name"]: mount["mountPath"] for mount in one.get("volumeMounts", [])} for one in containers
    }
    assert mounts["kafka"]["data"] == mounts["tiered-sidecar"]["data"] == "/var/lib/kafka/data"


def _millicores(cpu: str) -> int:
    return int(cpu.removesuffix("m")) if cpu.endswith("m") else 1000 * int(cpu)


def test_the_test_s_pod_is_there_when_helm_reads_its_logs() -> None:
    (pod,) = [one for one in rendered(files=[CHART / "ci" / "demo-values.yaml"]) if one["kind"] == "Pod"]
    assert pod["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"


def test_every_pod_of_the_chart_has_the_secrets_of_its_images() -> None:
    values = {
        **NEEDED,
        **BACKFILL,
        "demo.enabled": "true",
        "inject.strimzi.enabled": "true",
        "inject.engine": "webhook",
        "imagePullSecrets[0].name": "registry",
    }
    pods = pods_of(rendered(values))
    assert len(pods) == 5
    assert all(pod["imagePullSecrets"] == [{"name": "registry"}] for pod in pods)
