"""The node's disk fills: which pods the kubelet evicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.kube_node.brokers import BROKER, SIDECAR, Brokers, wait_until
from tests.servers.kubernetes_node import PAUSE_IMAGE, PRESSURE_BYTES

pytestmark = [pytest.mark.real, pytest.mark.node]
WORK_BYTES = PRESSURE_BYTES * 6 // 10
"""Less than the sidecar requests."""
OTHER_BYTES = PRESSURE_BYTES * 5 // 10
"""Fewer than the sidecar's: without a request, the broker's pod would come first."""


def test_the_pod_of_the_broker_is_not_the_first_that_is_evicted(start_brokers: Callable[[int], Brokers]) -> None:
    broker = start_brokers(1)
    broker.install_chart()
    broker.add_sidecar()
    broker.wait_ready()
    namespace, before = broker.namespace, broker.pod()["metadata"]["uid"]
    fill = f"head -c {WORK_BYTES} /dev/zero > /var/lib/tiered-sidecar/filler"
    namespace.kubectl("exec", "kafka-0", "-c", SIDECAR, "--", "sh", "-c", fill)
    namespace.apply(json.dumps(another_pod()))

    def is_evicted() -> bool:
        found = json.loads(namespace.kubectl("get", "pod", "other", "--output=json"))
        return bool(found["status"].get("reason") == "Evicted")

    wait_until(is_evicted, 180, "the other pod is evicted")
    wait_until(lambda: not has_pressure(broker), 90, "the node has space again")
    assert broker.pod()["metadata"]["uid"] == before
    assert broker.is_ready()
    broker.produce(2100)
    broker.wait_archived()
    for container in (BROKER, SIDECAR):
        assert broker.container(container)["restartCount"] == 0
    broker.verify()


def another_pod() -> dict[str, Any]:
    """A pod without requests that writes `OTHER_BYTES` into its emptyDir."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    seccomp = {"type": "RuntimeDefault"}
    container = {
        "name": "writer",
        "image": PAUSE_IMAGE,
        "command": ["sh", "-c", f"head -c {OTHER_BYTES} /dev/zero > /scratch/filler; exec sleep infinity"],
        "securityContext": security,
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000, "seccompProfile": seccomp},
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": spec}


def has_pressure(broker: Brokers) -> bool:
    """Whether the node takes no pods because its disk is full."""
    node = json.loads(broker.namespace.kubectl("get", "node", "node1", "--output=json"))
    return any(one["type"] == "DiskPressure" and one["status"] == "True" for one in node["status"]["conditions"])
