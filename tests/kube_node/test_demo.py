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
from tests.kube_node.brokers import wait_until
from tests.kube_node.build import KAFKA_IMAGE, S3_IMAGE
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
    values = [word for value in ("recipes.enabled=false", "demo.enabled=true", *IMAGES) for word in ("--set", value)]
    demo.helm("install", demo.release, str(CHART), *values, "--wait", "--timeout", "180s")
    said = demo.helm("test", demo.release, "--logs", "--timeout", "240s")
    assert "Phase:          Succeeded" in said
    assert re.search(r"helm-test-0 +0 +\d+ +\d+ FOUND +0 +sound", said), said
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
            assert (partition["topic"], partition["state"]) == ("helm-test", "archived")
            assert partition["archived_segments"] > 0
        finally:
            forwarding.terminate()


def forwarded_status() -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/status", timeout=10) as answer:
        status: dict[str, Any] = json.loads(answer.read())
    return status
