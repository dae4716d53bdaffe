"""`helm test demo --logs`, as the demo's page and notes have it."""

from __future__ import annotations

import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helm.charts import CHART
from tests.kube.cluster import Namespace
from tests.kube.kubelet import LOG, Node
from tests.kube.test_releases import HELM_VERSIONS

pytestmark = pytest.mark.real

TEST_POD = "demo-tiered-sidecar-demo-test"


@pytest.mark.parametrize("helm_version", HELM_VERSIONS)
def test_helm_reads_the_log_of_the_test_whenever_it_runs(
    helm_version: int, namespace: Namespace, tmp_path: Path
) -> None:
    """The pod must still be there when Helm reads its log, and not in the way of the next test."""
    demo = replace(namespace, release="demo", helm_version=helm_version)
    demo.install("--values", str(CHART / "ci" / "demo-values.yaml"))
    ids = set()
    with Node(demo.api, f"node-of-{demo.name}", tmp_path) as node, ThreadPoolExecutor() as pool:
        for _ in range(2):
            tested = pool.submit(demo.helm, "test", "demo", "--logs", "--timeout=60s")
            ids.add(wait_for_pod(demo, ids))
            node.succeed(demo.name, TEST_POD)
            printed = tested.result()
            assert "Phase:          Succeeded" in printed
            assert LOG in printed.partition(f"POD LOGS: {TEST_POD}")[2]
    assert len(ids) == 2
    demo.helm("uninstall", "demo")
    # To Helm it is no part of the release: docs/how-to/install-on-kubernetes.md says so.
    assert set(demo.objects()) == {f"Pod/{TEST_POD}"}


def wait_for_pod(namespace: Namespace, others: set[str]) -> str:
    """The id of the test's pod, when there is one with another id than these."""
    for _ in range(600):
        try:
            pod = namespace.api.request("GET", f"/api/v1/namespaces/{namespace.name}/pods/{TEST_POD}")
        except urllib.error.HTTPError as error:
            error.close()
        else:
            if pod["metadata"]["uid"] not in others:
                return str(pod["metadata"]["uid"])
        time.sleep(0.1)  # noqa: TID251
    raise TimeoutError(TEST_POD)
