"""What the webhook adds to each pod. tests/kube compares it with what the policy adds."""

from __future__ import annotations

import copy
import json
from typing import Any

import kubernetes_validate
import pytest

from sidecar.admission.patch import has_sidecar, patch
from tests.admission.strimzi_pods import CASES, WORK_CLAIM, Case, strimzi_pod
from tests.helm.charts import CHART, rendered

pytestmark = pytest.mark.real

INJECTED = [case for case in CASES if case.log_dirs]


@pytest.fixture(name="injection", scope="module")
def _injection() -> dict[str, Any]:
    """With a heal container, keys and mounts of its own, as the chart renders it."""
    values = {"inject.engine": "webhook", "inject.strimzi.cluster": "my-cluster"}
    objects = rendered(values, [CHART / "ci" / "strimzi-values.yaml"], kubernetes="1.29")
    (text,) = (one["data"]["injection.json"] for one in objects if "injection.json" in one.get("data", {}))
    found: dict[str, Any] = json.loads(text)
    return found


def injected(pod: dict[str, Any], injection: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(pod)
    for operation in patch(pod, injection):
        assert operation["op"] == "add"
        *path, last = (part.replace("~1", "/") for part in operation["path"].split("/")[1:])
        target: Any = made
        for part in path:
            target = target[part]
        if last == "-":
            target.append(operation["value"])
        else:
            target[last] = operation["value"]
    return made


@pytest.mark.parametrize("case", INJECTED, ids=lambda case: case.name)
def test_a_broker_gets_the_sidecar_with_its_own_log_dirs(case: Case, injection: dict[str, Any]) -> None:
    before = copy.deepcopy(case.pod)
    made = injected(case.pod, injection)
    assert case.pod == before
    kubernetes_validate.validate(made, "1.29", strict=True)
    assert made["metadata"]["labels"]["tiered-sidecar/scrape"] == "true"
    assert made["spec"]["containers"] == before["spec"]["containers"]
    *first, heal, sidecar = made["spec"]["initContainers"]
    assert first == before["spec"].get("initContainers", [])
    environment = {entry["name"]: entry.get("value") for entry in sidecar["env"]}
    assert json.loads(environment["TIERED_SIDECAR__BROKER__LOG_DIRS"]) == case.log_dirs
    assert heal["args"][-len(case.log_dirs) :] == case.log_dirs
    paths = [log_dir.rpartition("/")[0] for log_dir in case.log_dirs]
    data = {mount["mountPath"]: mount for mount in sidecar["volumeMounts"] if mount["mountPath"] in paths}
    assert list(data) == paths
    assert all(mount["readOnly"] for mount in data.values())
    assert sidecar["restartPolicy"] == "Always"
    volumes = [volume["name"] for volume in made["spec"]["volumes"]]
    assert len(set(volumes)) == len(volumes)
    assert {mount["name"] for one in (heal, sidecar) for mount in one["volumeMounts"]} <= set(volumes)
    assert "~" not in json.dumps(made)


def test_a_work_volume_of_the_pool_stays(injection: dict[str, Any]) -> None:
    (case,) = (case for case in CASES if WORK_CLAIM in case.pod["spec"]["volumes"])
    assert WORK_CLAIM in injected(case.pod, injection)["spec"]["volumes"]


@pytest.mark.parametrize("case", INJECTED, ids=lambda case: case.name)
def test_a_second_time_changes_nothing(case: Case, injection: dict[str, Any]) -> None:
    made = injected(case.pod, injection)
    assert has_sidecar(made)
    assert not has_sidecar(case.pod)
    assert patch(made, injection) == []


def test_a_pod_without_data_stays_as_it_is(injection: dict[str, Any]) -> None:
    assert patch(strimzi_pod("pool", 0, []), injection) == []
    other = strimzi_pod("pool", 0, ["data"])
    other["spec"]["containers"][0]["name"] = "connect"
    assert patch(other, injection) == []


def test_a_pod_without_volumes_gets_all_of_them(injection: dict[str, Any]) -> None:
    """The API server could not apply the patch otherwise, and answered with an internal error."""
    pod = strimzi_pod("pool", 0, ["data"])
    del pod["spec"]["volumes"]
    made = injected(pod, injection)
    assert made["spec"]["volumes"] == injection["volumes"]
