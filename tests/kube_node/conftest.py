"""One node for all tests. Each test has a namespace of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kube.cluster import RESTRICTED, Namespace
from tests.kube_node.brokers import Brokers, wait_until
from tests.kube_node.node import DIRECTORY
from tests.kube_node.node import node as started_node
from tests.servers.kubernetes_node import KubernetesNode


@pytest.fixture(scope="session")
def node() -> Iterator[KubernetesNode]:
    """With all images. Outside of namespaces of its own it would change the machine's network."""
    if DIRECTORY not in os.environ:
        pytest.skip(
            "a node changes networks and mounts, so it runs in namespaces of its own: only by `make kube-node-test`"
        )
    with started_node() as started:
        yield started


@pytest.fixture
def namespace(node: KubernetesNode) -> Iterator[Namespace]:
    """An empty one that admits only pods of the standard `restricted`."""
    created = node.api.request(
        "POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-", "labels": RESTRICTED}}
    )
    own = Namespace(node.api, created["metadata"]["name"])
    wait_until(lambda: own.kubectl("get", "serviceaccount", "default"), 60, "the namespace has an account for pods")
    yield own
    node.api.kubectl("delete", "namespace", own.name, "--wait=false")
    # The last of several brokers cannot elect a controller, and would take all of its grace.
    own.kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")
    node.api.kubectl("wait", "--for=delete", f"namespace/{own.name}", "--timeout=180s")


@pytest.fixture
def start_brokers(node: KubernetesNode, namespace: Namespace, tmp_path: Path) -> Iterator[Callable[[int], Brokers]]:
    """Starts so many brokers, without sidecars, and waits until they are ready."""
    with ExitStack() as ending:

        def start(replicas: int) -> Brokers:
            brokers = Brokers(node, namespace, tmp_path, replicas)
            ending.callback(brokers.remove_volumes)
            brokers.start()
            brokers.wait_ready()
            return brokers

        yield start


@pytest.fixture
def archived_broker(start_brokers: Callable[[int], Brokers]) -> Brokers:
    """One broker with its sidecar, which archives."""
    brokers = start_brokers(1)
    brokers.install_chart()
    brokers.add_sidecar()
    brokers.wait_ready()
    brokers.produce(3500)
    brokers.wait_archived()
    return brokers
