"""Pods labelled as Strimzi's brokers, injected by both engines and run: the webhook is reached through its Service."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.kube.cluster import Namespace
from tests.kube_node.brokers import SIDECAR, wait_until
from tests.servers.kubernetes_node import PAUSE_IMAGE

pytestmark = [pytest.mark.real, pytest.mark.node]
VALUES = (
    "image.repository=localhost/tiered-sidecar",
    "image.tag=test",
    "settings.store.url=s3://archive/cluster",
    "settings.broker.assume_leader=true",
    "inject.strimzi.enabled=true",
    "recipes.hosts.strimzi.runAsUser=1000",
    "recipes.hosts.strimzi.runAsGroup=1000",
)


def a_broker(name: str) -> str:
    """As Strimzi names, labels and mounts it, but for what runs in it: nothing."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "kafka",
                "image": PAUSE_IMAGE,
                "securityContext": security,
                "volumeMounts": [{"name": "data", "mountPath": "/var/lib/kafka/data"}],
            }
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    metadata = {"name": name, "labels": {"strimzi.io/broker-role": "true"}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def pod(namespace: Namespace, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(namespace.kubectl("get", "pod", name, "--output=json"))
    return found


@pytest.mark.parametrize("engine", ["policy", "webhook"])
def test_an_injected_pod_gets_ready_and_its_sidecar_answers(engine: str, namespace: Namespace) -> None:
    given = (*VALUES, f"inject.engine={engine}")
    namespace.install(*(word for value in given for word in ("--set", value)))
    if engine == "webhook":
        deployment = f"deployment/{namespace.release}-tiered-sidecar-webhook"
        namespace.kubectl("rollout", "status", deployment, "--timeout=180s")

    def is_injected() -> bool:
        probe = a_broker("probe-0")
        made = namespace.kubectl("create", "--dry-run=server", "--output=json", "--filename=-", stdin=probe)
        return "initContainers" in json.loads(made)["spec"]

    wait_until(is_injected, 90, "pods are injected")
    namespace.kubectl("create", "--filename=-", stdin=a_broker("pool-0"))

    def is_ready() -> bool:
        conditions = pod(namespace, "pool-0")["status"].get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    wait_until(is_ready, 120, "the pod is ready")
    status = pod(namespace, "pool-0")["status"]
    (sidecar,) = (one for one in status["initContainerStatuses"] if one["name"] == SIDECAR)
    assert (sidecar["restartCount"], sidecar["started"]) == (0, True)
    # No broker has formatted its log dir, which the sidecar has by its mount and its node.
    wait_until(
        lambda: "/var/lib/kafka/data/kafka-log0" in answer(status["podIP"], "/readyz"), 60, "it says what it lacks"
    )
    assert answer(status["podIP"], "/healthz") == "ok\n"


def answer(address: str, path: str) -> str:
    """What the sidecar of a pod answers, with whatever status."""
    try:
        with urllib.request.urlopen(f"http://{address}:9308{path}", timeout=10) as found:
            return found.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
