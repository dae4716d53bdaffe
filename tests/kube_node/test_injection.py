"""Pods labelled as Strimzi's brokers, injected by both engines and run: the webhook is reached through its Service."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.helm.charts import ROOT
from tests.kube.cluster import Namespace
from tests.kube_node.brokers import SIDECAR, Brokers, wait_until
from tests.kube_node.client import address_of, can_connect, start_client
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


def wait_injected(namespace: Namespace) -> None:
    """Until the API server knows the policy or the webhook."""

    def is_injected() -> bool:
        probe = a_broker("probe-0")
        made = namespace.kubectl("create", "--dry-run=server", "--output=json", "--filename=-", stdin=probe)
        return "initContainers" in json.loads(made)["spec"]

    wait_until(is_injected, 90, "pods are injected")


@pytest.mark.parametrize("engine", ["policy", "webhook"])
def test_an_injected_pod_gets_ready_and_its_sidecar_answers(engine: str, namespace: Namespace) -> None:
    given = (*VALUES, f"inject.engine={engine}")
    namespace.install(*(word for value in given for word in ("--set", value)))
    if engine == "webhook":
        deployment = f"deployment/{namespace.release}-tiered-sidecar-webhook"
        namespace.kubectl("rollout", "status", deployment, "--timeout=180s")

    wait_injected(namespace)
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


AS_STRIMZI_HAS_THEM = """
spec:
  template:
    metadata:
      labels: {strimzi.io/broker-role: "true", strimzi.io/cluster: my-cluster, strimzi.io/kind: Kafka}
    spec:
      containers:
        - name: kafka
          env: [{name: KAFKA_LOG_DIRS, value: /var/lib/kafka/data/kafka-log0}]
"""

# Of Strimzi 1.2.0, for a listener that is open to all: the first entry is of the ports that are its own.
POLICY_OF_STRIMZI = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: my-cluster-network-policy-kafka}
spec:
  podSelector: {matchLabels: {strimzi.io/cluster: my-cluster, strimzi.io/kind: Kafka}}
  policyTypes: [Ingress]
  ingress:
    - {from: [{podSelector: {matchLabels: {strimzi.io/kind: cluster-operator}}}], ports: [{port: 9093, protocol: TCP}]}
    - {ports: [{port: 9092, protocol: TCP}]}
"""
DOCUMENTED = ROOT / "docs/how-to/install-on-kubernetes.md"


def test_an_injected_pod_heals_its_log_dir_before_its_broker_starts(start_brokers: Callable[[int], Brokers]) -> None:
    broker = start_brokers(1)
    broker.produce(5300)
    broker.namespace.kubectl("scale", "statefulset", "kafka", "--replicas=0")
    broker.namespace.kubectl("wait", "--for=delete", "pod/kafka-0", "--timeout=90s")
    logs = broker.directory / "data-0/kafka-log0"
    (broker.directory / "data-0/logs").rename(logs)
    lost = {path: path.read_bytes() for path in logs.glob("orders-0/*.snapshot")}
    assert len(lost) > 3
    for path in lost:
        path.unlink()
    broker.install_chart(
        "heal.enabled=true",
        "inject.strimzi.enabled=true",
        "recipes.hosts.strimzi.runAsUser=1000",
        "recipes.hosts.strimzi.runAsGroup=1000",
    )
    wait_injected(broker.namespace)
    broker.patch_stateful_set(AS_STRIMZI_HAS_THEM)
    broker.namespace.kubectl("scale", "statefulset", "kafka", "--replicas=1")
    broker.wait_ready()
    healed = broker.container("heal-producer-snapshots")["state"]["terminated"]
    report = json.loads(broker.namespace.kubectl("logs", "kafka-0", "-c", "heal-producer-snapshots"))
    assert (healed["exitCode"], report["exit_code"]) == (0, 0), report
    # The broker itself makes that of its log's end.
    assert report["counts"]["created"] == report["counts"]["missing"] == len(lost) - 1
    assert {path: path.read_bytes() for path in lost} == lost
    broker.produce(2100)
    broker.wait_archived()
    assert broker.container(SIDECAR)["restartCount"] == 0
    broker.verify()
    only_documented_ports_are_open(broker.namespace)


def only_documented_ports_are_open(namespace: Namespace) -> None:
    """Listener, controller and sidecar listen. Strimzi's policy closes the sidecar's port, and the documented one opens it."""
    start_client(namespace)
    broker = address_of(namespace, "kafka-0")

    def is_open(*ports: int) -> tuple[bool, ...]:
        return tuple(can_connect(namespace, "client", "client", broker, port) for port in ports)

    assert is_open(9092, 9093, 9308) == (True, True, True)
    namespace.apply(POLICY_OF_STRIMZI)
    wait_until(lambda: is_open(9092, 9093, 9308) == (True, False, False), 60, "Strimzi's policy is in force")
    (text,) = re.findall(r"^```yaml\n(extraObjects:.*?)^```", DOCUMENTED.read_text(), re.DOTALL | re.MULTILINE)
    (policy,) = yaml.safe_load(text)["extraObjects"]
    namespace.apply(yaml.safe_dump(policy))
    wait_until(lambda: is_open(9092, 9093, 9308) == (True, False, True), 60, "the sidecar can be scraped")


def answer(address: str, path: str) -> str:
    """What the sidecar of a pod answers, with whatever status."""
    try:
        with urllib.request.urlopen(f"http://{address}:9308{path}", timeout=10) as found:
            return found.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
