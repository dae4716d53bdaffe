"""One API server for all tests of a worker, with the definitions of the monitoring objects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helm.definitions import definition
from tests.kube.cluster import RESTRICTED, Namespace, new_namespace
from tests.servers.kubernetes import KubernetesApi


@pytest.fixture(scope="session")
def kubernetes_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesApi]:
    """The API server, with the real definitions of PodMonitor and PrometheusRule."""
    with KubernetesApi(tmp_path_factory.mktemp("kubernetes")) as started:
        started.define(
            *(definition(f"monitoring.coreos.com_{kind}s.yaml") for kind in ("podmonitor", "prometheusrule"))
        )
        # That ci/backfill-values.yaml names: in a cluster it is the administrator's.
        started.kubectl("create", "priorityclass", "low", "--value=-1")
        yield started


@pytest.fixture
def namespace(kubernetes_api: KubernetesApi) -> Namespace:
    """An empty one that admits only pods of the standard `restricted`."""
    return new_namespace(kubernetes_api, RESTRICTED)
