"""Pods of Strimzi's operator 1.2.0 with the injection: recorded ones, and those of the operator itself. No node runs them."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.cli.running import in_this_process
from tests.helm.charts import CHART
from tests.kube.cluster import Namespace, new_namespace
from tests.real.topics import wait_until
from tests.servers.kubernetes import KubernetesApi
from tests.servers.strimzi import StrimziOperator, definitions

pytestmark = pytest.mark.real

LIBS = "STRIMZI_OPERATOR_LIBS"
"""Environment variable: the directory of the operator's jars."""
CLUSTER, RECORDED = (Path(__file__).with_name(f"strimzi-{name}") for name in ("cluster.yaml", "pods.json"))
VALUES = CHART / "ci" / "strimzi-values.yaml"
INTERVAL_S = 20
DATA = "/var/lib/kafka/data"
BROKERS = {
    "my-cluster-dual-1": [f"{DATA}/kafka-log1"],
    "my-cluster-jbod-2": [f"{DATA}-0/kafka-log2", f"{DATA}-2/kafka-log2"],
    "my-cluster-jbod-3": [f"{DATA}-0/kafka-log3", f"{DATA}-2/kafka-log3"],
}
CONTROLLER = "my-cluster-controllers-0"


def test_recorded_pods_get_the_sidecar_and_are_else_as_they_were(kubernetes_api: KubernetesApi) -> None:
    """Of 26 November 2026: what the operator, built from the source of its release, made of `CLUSTER`."""
    namespace = new_namespace(kubernetes_api)
    namespace.kubectl("create", "serviceaccount", "my-cluster-kafka")
    recorded = {one["metadata"]["name"]: one for one in json.loads(RECORDED.read_text())}
    namespace.install("--values", str(VALUES))
    jbod = recorded["my-cluster-jbod-2"]
    wait_until("pods are injected", lambda: log_dirs(created(namespace, jbod, "?dryRun=All")) != [])
    made = {name: created(namespace, pod) for name, pod in recorded.items()}
    check_injected(made)
    assert made[CONTROLLER]["spec"] == recorded[CONTROLLER]["spec"]
    for name, pod in recorded.items():
        before, after = pod["spec"], made[name]["spec"]
        assert after["containers"] == before["containers"]
        for part in ("initContainers", "volumes"):
            found = before.get(part, [])
            assert after.get(part, [])[: len(found)] == found


def created(namespace: Namespace, pod: dict[str, Any], query: str = "") -> dict[str, Any]:
    """As the API server keeps it."""
    found: dict[str, Any] = namespace.api.request("POST", f"/api/v1/namespaces/{namespace.name}/pods{query}", pod)
    return found


def check_injected(found: dict[str, dict[str, Any]]) -> None:
    """The brokers among these pods have the sidecar, for their own log dirs; the controller has none."""
    assert {name: log_dirs(pod) for name, pod in found.items()} == {name: BROKERS.get(name, []) for name in found}
    for name in set(found) & set(BROKERS):
        containers = [one["name"] for one in found[name]["spec"]["initContainers"]]
        assert containers == ["kafka-init", "heal-producer-snapshots", "tiered-sidecar"]
        work = work_volume(found[name])
        claim = {"persistentVolumeClaim": {"claimName": f"work-{name}"}}
        assert work == claim if "-jbod-" in name else "emptyDir" in work


@pytest.fixture
def of_operator(tmp_path: Path) -> Iterator[Namespace]:
    """With Strimzi's definitions, its operator, and `CLUSTER`."""
    libs = os.environ.get(LIBS)
    if not libs:
        pytest.skip(f"{LIBS} does not name the jars of Strimzi's operator, which no registry has")
    with KubernetesApi(tmp_path / "api") as api:
        api.define(*definitions())
        found = new_namespace(api)
        with StrimziOperator(api, found.name, Path(libs), tmp_path / "operator.log"):
            found.kubectl("create", f"--filename={CLUSTER}")
            yield found


@pytest.mark.apart
@pytest.mark.timeout(900)
def test_brokers_get_the_sidecar_when_the_operator_rolls_them(of_operator: Namespace) -> None:
    namespace = of_operator
    wait_until("the operator creates pods", lambda: set(pods(namespace)) == {*BROKERS, CONTROLLER}, 180)
    first = pods(namespace)
    namespace.install("--values", str(VALUES))
    assert missing(namespace) == {name for name in BROKERS if is_same(pods(namespace)[name], first[name])}
    namespace.kubectl("annotate", "strimzipodset", "--all", "strimzi.io/manual-rolling-update=true")

    def all_are_rolled() -> bool:
        act_as_cluster(namespace)
        found = pods(namespace)
        return set(found) == set(first) and not any(is_same(found[name], first[name]) for name in first)

    wait_until("the operator rolls all pods", all_are_rolled, 600)
    rolled = pods(namespace)
    assert missing(namespace) == set()
    check_injected(rolled)
    # It restarts pods that do not answer, and changes none.
    for _ in range(10):
        act_as_cluster(namespace)
        time.sleep(INTERVAL_S / 5)  # noqa: TID251 - a real operator has no other clock
    again = pods(namespace)
    assert missing(namespace) == set()
    assert {name: of_injection(pod) for name, pod in again.items()} == {
        name: of_injection(pod) for name, pod in rolled.items()
    }


def act_as_cluster(namespace: Namespace) -> None:
    """What kubelet and garbage collector do: pods get ready, and deleted ones go."""
    ready = {"phase": "Running", "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]}
    for name, pod in pods(namespace).items():
        path = f"/api/v1/namespaces/{namespace.name}/pods/{name}"
        try:
            if "deletionTimestamp" in pod["metadata"]:
                namespace.api.request("PATCH", path, {"metadata": {"finalizers": None}})
            elif pod["status"]["phase"] == "Pending":
                namespace.api.request("PATCH", f"{path}/status", {"status": ready})
        except HTTPError as error:
            # The operator has deleted it meanwhile.
            error.close()


def pods(namespace: Namespace) -> dict[str, dict[str, Any]]:
    """By name."""
    found = json.loads(namespace.kubectl("get", "pods", "--output=json"))["items"]
    return {one["metadata"]["name"]: one for one in found}


def is_same(pod: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether they are one pod, and not one of the same name."""
    return bool(pod["metadata"]["uid"] == other["metadata"]["uid"])


def of_injection(pod: dict[str, Any]) -> Any:
    """Containers, with their log dirs, and volumes, without the random names of the API server."""
    parts = [pod["spec"].get(part) for part in ("initContainers", "containers", "volumes")]
    return json.loads(re.sub(r"kube-api-access-\w+", "kube-api-access", json.dumps(parts)))


def missing(namespace: Namespace) -> set[str]:
    """The brokers' pods that `k8s missing` names."""
    brokers = namespace.kubectl("get", "pods", "--selector=strimzi.io/broker-role=true", "--output=json")
    done = in_this_process("k8s", "missing", stdin=brokers)
    return {line.rpartition("/")[2] for line in done.out.splitlines()}


def log_dirs(pod: dict[str, Any]) -> list[str]:
    """Those that the sidecar has, none without one."""
    for container in pod["spec"].get("initContainers", ()):
        if container["name"] == "tiered-sidecar":
            (value,) = (one["value"] for one in container["env"] if one["name"].endswith("LOG_DIRS"))
            found: list[str] = json.loads(value)
            return found
    return []


def work_volume(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = (one for one in pod["spec"]["volumes"] if one["name"] == "tiered-sidecar-work")
    return {kind: source for kind, source in found.items() if kind != "name"}
