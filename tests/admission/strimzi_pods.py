"""Pods as Strimzi 1.2 creates them (KafkaCluster.generatePodSets, WorkloadUtils.createStatefulPod), and what injection must add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

CLUSTER = "my-cluster"


@dataclass(frozen=True)
class Case:
    """One pod. `log_dirs` are those that the sidecar must see; none where nothing may be injected."""

    name: str
    pod: dict[str, Any]
    log_dirs: Sequence[str] = ()


def strimzi_pod(
    pool: str,
    node: int,
    volumes: Sequence[str],
    *,
    broker: bool = True,
    controller: bool = False,
    rack: bool = False,
    cluster: str = CLUSTER,
    more_volumes: Sequence[dict[str, Any]] = (),
    more_mounts: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """The pod of a node of a KafkaNodePool. Args: volumes: `data` for one disk, `data-0`, `data-1` … for JBOD."""
    name = f"{cluster}-{pool}-{node}"
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    init = {
        "name": "kafka-init",
        "image": "quay.io/strimzi/operator:1.2.0",
        "args": ["/opt/strimzi/bin/kafka_init_run.sh"],
        "securityContext": security,
        "volumeMounts": [{"name": "rack-volume", "mountPath": "/opt/kafka/init"}],
    }
    mounts = [{"name": volume, "mountPath": f"/var/lib/kafka/{volume}"} for volume in volumes]
    mounts += [
        {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True},
        {"name": "strimzi-tmp", "mountPath": "/tmp"},
        {"name": "kafka-metrics-and-logging", "mountPath": "/opt/kafka/custom-config/"},
        {"name": "ready-files", "mountPath": "/var/opt/kafka"},
    ]
    mounts += [{"name": "rack-volume", "mountPath": "/opt/kafka/init"}] * rack
    kept = [{"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{name}"}} for volume in volumes]
    token = {"serviceAccountToken": {"path": "token"}}
    kept += [
        {"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [token]}},
        {"name": "strimzi-tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "5Mi"}},
        {"name": "kafka-metrics-and-logging", "configMap": {"name": name}},
        {"name": "ready-files", "emptyDir": {"medium": "Memory", "sizeLimit": "1Ki"}},
    ]
    kept += [{"name": "rack-volume", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}] * rack
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "strimzi.io/cluster": cluster,
                "strimzi.io/kind": "Kafka",
                "strimzi.io/name": f"{cluster}-kafka",
                "strimzi.io/component-type": "kafka",
                "strimzi.io/pool-name": pool,
                "strimzi.io/pod-name": name,
                "strimzi.io/controller": "strimzipodset",
                "strimzi.io/controller-name": f"{cluster}-{pool}",
                "strimzi.io/broker-role": str(broker).lower(),
                "strimzi.io/controller-role": str(controller).lower(),
            },
            "annotations": {"strimzi.io/revision": "0"},
        },
        "spec": {
            "restartPolicy": "Always",
            "hostname": name,
            "subdomain": f"{cluster}-kafka-brokers",
            "automountServiceAccountToken": False,
            "securityContext": {"fsGroup": 0},
            **({"initContainers": [init]} if rack else {}),
            "containers": [
                {
                    "name": "kafka",
                    "image": "quay.io/strimzi/kafka:1.2.0-kafka-4.3.1",
                    "args": ["/opt/kafka/kafka_run.sh"],
                    "ports": [{"name": "tcp-replication", "containerPort": 9091}],
                    "securityContext": security,
                    "volumeMounts": [*mounts, *more_mounts],
                }
            ],
            "volumes": [*kept, *more_volumes],
        },
    }


def without_labels(pod: dict[str, Any]) -> dict[str, Any]:
    """The same pod without what Strimzi says of it."""
    return {**pod, "metadata": {"name": pod["metadata"]["name"]}}


def with_container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    """The same pod with one more ordinary container, as another webhook may add it."""
    (kafka,) = pod["spec"]["containers"]
    other = {"name": name, "image": "other", "securityContext": kafka["securityContext"]}
    return {**pod, "spec": {**pod["spec"], "containers": [kafka, other]}}


WORK_CLAIM = {"name": "tiered-sidecar-work", "persistentVolumeClaim": {"claimName": "work-my-cluster-jbod-12"}}
"""Of `template.pod.templatedVolumes` of a pool."""
_DIRECTORY = "/var/lib/kafka/data"
CASES = (
    Case("one disk", strimzi_pod("pool", 3, ["data"]), [f"{_DIRECTORY}/kafka-log3"]),
    Case(
        "jbod, rack awareness",
        strimzi_pod("brokers-b", 1007, ["data-0", "data-2"], rack=True),
        [f"{_DIRECTORY}-0/kafka-log1007", f"{_DIRECTORY}-2/kafka-log1007"],
    ),
    Case("both roles", strimzi_pod("dual", 0, ["data-0"], controller=True), [f"{_DIRECTORY}-0/kafka-log0"]),
    Case(
        "a work volume of the pool",
        strimzi_pod("jbod", 12, ["data-1"], more_volumes=[WORK_CLAIM]),
        [f"{_DIRECTORY}-1/kafka-log12"],
    ),
    Case(
        "another volume of the pool",
        strimzi_pod(
            "extra",
            4,
            ["data"],
            more_volumes=[{"name": "data-extra", "emptyDir": {}}],
            more_mounts=[{"name": "data-extra", "mountPath": "/mnt/data"}],
        ),
        [f"{_DIRECTORY}/kafka-log4"],
    ),
    Case("a controller", strimzi_pod("controllers", 5, ["data"], broker=False, controller=True)),
    Case("another cluster", strimzi_pod("pool", 6, ["data"], cluster="other")),
    Case("an ordinary container of that name", with_container(strimzi_pod("pool", 8, ["data"]), "tiered-sidecar")),
    Case("not Strimzi's", without_labels(strimzi_pod("pool", 7, ["data"]))),
)
