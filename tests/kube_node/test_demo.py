"""The demo as documented, from `helm install` to the status page."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from typing import Any

import pytest

from tests.helm.charts import CHART
from tests.kube.cluster import Namespace
from tests.kube_node.brokers import SIDECAR, wait_until
from tests.kube_node.build import KAFKA_IMAGE, S3_IMAGE
from tests.kube_node.client import PORT as CLIENT_PORT
from tests.kube_node.client import address_of, can_connect, start_client
from tests.servers.kubernetes import kubernetes_program

pytestmark = [pytest.mark.real, pytest.mark.node]
IMAGES = (
    "image.repository=localhost/tiered-sidecar",
    "image.tag=test",
    f"demo.kafkaImage={KAFKA_IMAGE}",
    f"demo.s3Image={S3_IMAGE}",
)
PORT = 19308


def test_the_demo_archives_and_its_test_succeeds(namespace: Namespace) -> None:
    demo = Namespace(namespace.api, namespace.name, release="demo")
    values = [
        word
        for value in ("recipes.enabled=false", "demo.enabled=true", "networkPolicy.enabled=true", *IMAGES)
        for word in ("--set", value)
    ]
    demo.helm("install", demo.release, str(CHART), *values, "--wait", "--timeout", "180s")
    said = demo.helm("test", demo.release, "--logs", "--timeout", "240s")
    assert "Phase:          Succeeded" in said
    assert re.search(r"helm-test-[0-9a-f-]{36}-0 +0 +\d+ +\d+ FOUND +0 +sound", said), said
    pod = "demo-tiered-sidecar-demo-kafka-0"
    command = [
        str(kubernetes_program("kubectl")),
        "--namespace",
        demo.name,
        "port-forward",
        f"pod/{pod}",
        f"{PORT}:9308",
    ]
    with subprocess.Popen(command, env={**demo.api.client_environment}, stdout=subprocess.DEVNULL) as forwarding:
        try:
            wait_until(forwarded_status, 60, "the port is forwarded")
            (partition,) = forwarded_status()["partitions"]
            assert partition["topic"].startswith("helm-test-")
            assert partition["state"] == "archived"
            assert partition["archived_segments"] > 0
        finally:
            forwarding.terminate()
    only_the_policy_lets_through(demo, pod)


def only_the_policy_lets_through(demo: Namespace, pod: str) -> None:
    """What `helm test` needs is open, and the rest is closed as long as there is the policy."""
    client, broker = start_client(demo), address_of(demo, pod)

    def connections() -> dict[str, bool]:
        return {
            "client to sidecar": can_connect(demo, "client", "client", broker, 9308),
            "client to broker": can_connect(demo, "client", "client", broker, 9092),
            "sidecar to client": can_connect(demo, pod, SIDECAR, client, CLIENT_PORT),
            "sidecar to store": can_connect(demo, pod, SIDECAR, "demo-tiered-sidecar-demo-s3", 7070),
        }

    closed = {"client to sidecar": False, "client to broker": False, "sidecar to client": False}
    assert connections() == {**closed, "sidecar to store": True}
    demo.kubectl("delete", "networkpolicy", "demo-tiered-sidecar")
    wait_until(lambda: all(connections().values()), 60, "everything is open without the policy")


def forwarded_status() -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/status", timeout=10) as answer:
        status: dict[str, Any] = json.loads(answer.read())
    return status
