"""Injection into Strimzi's pods by a real API server: by the policy in both versions, and by the webhook, with equal pods."""

from __future__ import annotations

import base64
import copy
import json
import os
import subprocess
import urllib.error
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.admission.server import WebhookFiles, WebhookServer
from tests.admission.strimzi_pods import CASES, Case, strimzi_pod
from tests.cli.running import in_this_process
from tests.helm.charts import CHART, ROOT, HelmFailed, rendered
from tests.kube.cluster import RESTRICTED, Namespace, new_namespace
from tests.real.topics import wait_until
from tests.servers.certificates import Authority
from tests.servers.kubernetes import KubernetesApi, kubernetes_program

pytestmark = pytest.mark.real

VALUES = [CHART / "ci" / "strimzi-values.yaml", Path(__file__).parent / "odd-values.yaml"]
GIVEN = [word for path in VALUES for word in ("--values", str(path))]
_STARTED_S = 30.0


def admitted(namespace: Namespace, pod: dict[str, Any]) -> dict[str, Any]:
    """What the API server makes of a pod, without keeping it, and without what is of its own."""
    made: dict[str, Any] = namespace.api.request("POST", f"/api/v1/namespaces/{namespace.name}/pods?dryRun=All", pod)
    for name in ("uid", "creationTimestamp", "namespace"):
        del made["metadata"][name]
    made["metadata"].pop("managedFields", None)  # They have the second of the request.
    return made


def _in_force(namespace: Namespace) -> Namespace:
    probe = strimzi_pod("pool", 0, ["data"])
    wait_until("pods are injected", lambda: "initContainers" in admitted(namespace, probe)["spec"], _STARTED_S)
    return namespace


@pytest.fixture(name="policy", scope="module", params=["1.36", "1.34"])
def _policy(request: pytest.FixtureRequest, kubernetes_api: KubernetesApi) -> Namespace:
    """By Helm where the version is the server's, else what Helm renders for a cluster of that version."""
    namespace = new_namespace(kubernetes_api, RESTRICTED)
    if request.param == "1.36":
        namespace.install(*GIVEN)
    else:
        objects = rendered(files=VALUES, kubernetes=request.param, namespace=namespace.name, release=namespace.release)
        policies = [one for one in objects if one["kind"].startswith("MutatingAdmissionPolicy")]
        assert {one["apiVersion"] for one in policies} == {"admissionregistration.k8s.io/v1beta1"}
        namespace.apply(yaml.safe_dump_all(policies))
    return _in_force(namespace)


@pytest.fixture(name="webhook", scope="module")
def _webhook(kubernetes_api: KubernetesApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """The chart's objects, but for the address: no node runs the Deployment, so the server runs here."""
    namespace = new_namespace(kubernetes_api, RESTRICTED)
    namespace.install(*GIVEN, "--set", "inject.engine=webhook")
    directory = tmp_path_factory.mktemp("webhook")
    authority = Authority(directory / "pki")
    certificate = authority.issue("webhook", "IP:127.0.0.1")
    injection = directory / "injection.json"
    name = "archive-tiered-sidecar-webhook"
    injection.write_text(
        json.loads(namespace.kubectl("get", "configmap", name, "-o", "json"))["data"]["injection.json"]
    )
    with WebhookServer(("127.0.0.1", 0), WebhookFiles(injection, certificate.chain, certificate.key)) as server:
        ca = base64.b64encode(Path(authority.ca_file).read_bytes()).decode()
        address = {"url": f"https://127.0.0.1:{server.server_address[1]}/mutate", "caBundle": ca}
        change = [{"op": "replace", "path": "/webhooks/0/clientConfig", "value": address}]
        target = f"archive-tiered-sidecar-{namespace.name}"
        namespace.kubectl("patch", "mutatingwebhookconfiguration", target, "--type=json", "-p", json.dumps(change))
        yield _in_force(namespace)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_engines_make_the_same_pod(case: Case, policy: Namespace, webhook: Namespace) -> None:
    made = admitted(policy, case.pod)
    assert admitted(webhook, case.pod) == made
    names = [one["name"] for one in made["spec"].get("initContainers", [])]
    assert ("tiered-sidecar" in names) is bool(case.log_dirs)
    if case.log_dirs:
        (sidecar,) = (one for one in made["spec"]["initContainers"] if one["name"] == "tiered-sidecar")
        environment = {one["name"]: one.get("value", "") for one in sidecar["env"]}
        assert json.loads(environment["TIERED_SIDECAR__BROKER__LOG_DIRS"]) == case.log_dirs
        odd = yaml.safe_load(VALUES[1].read_text(encoding="utf-8"))["sidecar"]["extraEnv"]
        assert {one["name"]: one.get("value", "") for one in odd}.items() <= environment.items()


def test_an_injected_pod_is_admitted_as_it_is(policy: Namespace, webhook: Namespace) -> None:
    pod = admitted(policy, strimzi_pod("pool", 1, ["data-0", "data-1"], rack=True))
    for namespace in (policy, webhook):
        assert admitted(namespace, copy.deepcopy(pod))["spec"] == pod["spec"]


def test_a_pod_without_volumes_gets_the_error_of_the_api_server(policy: Namespace, webhook: Namespace) -> None:
    pod = strimzi_pod("pool", 1, ["data"])
    del pod["spec"]["volumes"]
    for namespace in (policy, webhook):
        with pytest.raises(urllib.error.HTTPError) as refused:
            admitted(namespace, copy.deepcopy(pod))
        assert refused.value.code == HTTPStatus.UNPROCESSABLE_ENTITY
        assert 'volumeMounts[0].name: Not found: "data"' in json.load(refused.value)["message"]


def test_a_webhook_that_does_not_answer_keeps_no_broker_from_starting(kubernetes_api: KubernetesApi) -> None:
    namespace = new_namespace(kubernetes_api, RESTRICTED)
    namespace.install(*GIVEN, "--set", "inject.engine=webhook")
    made = admitted(namespace, strimzi_pod("pool", 0, ["data"]))
    assert "initContainers" not in made["spec"]


INVALID = {
    "resources.limits.cpu=100m": "must be less than or equal to cpu limit",
    "extraVolumes[2].name=kafka-ca": 'Duplicate value: "kafka-ca"',
}
"""By a value of the container, what the API server says of it."""


@pytest.mark.parametrize("engine", ["policy", pytest.param("webhook", marks=pytest.mark.apart)])
def test_a_container_that_would_keep_brokers_from_starting_is_refused(
    engine: str, kubernetes_api: KubernetesApi
) -> None:
    namespace = new_namespace(kubernetes_api, RESTRICTED)
    chosen = (*GIVEN[:2], "--set", f"inject.engine={engine}")
    first, second = INVALID
    with pytest.raises(HelmFailed, match=INVALID[first]):
        namespace.install(*chosen, "--set", f"sidecar.{first}")
    assert not namespace.objects()
    namespace.install(*chosen, "--install", command="upgrade")
    before = namespace.objects()
    with pytest.raises(HelmFailed, match=INVALID[second]):
        namespace.install(*chosen, "--set", f"sidecar.{second}", command="upgrade")
    assert namespace.objects() == before


def test_the_documented_dry_run_shows_what_a_broker_would_get(kubernetes_api: KubernetesApi) -> None:
    page = (ROOT / "docs" / "how-to" / "install-on-kubernetes.md").read_text(encoding="utf-8")
    (command,) = (block for block in page.split("```") if "--dry-run=server" in block)
    namespace = new_namespace(kubernetes_api, RESTRICTED)
    pod = strimzi_pod("pool", 1, ["data"], rack=True)
    pod["spec"]["nodeName"] = "node-1"
    namespace.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    namespace.install(*GIVEN)
    _in_force(namespace)
    path = f"{kubernetes_program('kubectl').parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **kubernetes_api.client_environment, "PATH": path}

    def tried() -> subprocess.CompletedProcess[str]:
        text = command.replace("-n kafka", f"-n {namespace.name}").replace("pool-0", "pool-1")
        return subprocess.run(["bash", "-c", text], env=environment, capture_output=True, text=True, check=False)

    assert tried().stdout == "kafka-init heal-producer-snapshots tiered-sidecar"
    limits = [{"type": "Container", "max": {"memory": "768Mi"}}]
    limit_range = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": {"limits": limits}}
    namespace.apply(json.dumps(limit_range))
    wait_until("the limit holds", lambda: "maximum memory usage per Container is 768Mi" in tried().stderr, _STARTED_S)


def test_the_printed_policy_injects(kubernetes_api: KubernetesApi) -> None:
    namespace = new_namespace(kubernetes_api, RESTRICTED)
    done = in_this_process("k8s", "render", "--for", "strimzi", "--namespace", namespace.name, "--name", "archive")
    namespace.apply(done.out)
    pod = admitted(_in_force(namespace), strimzi_pod("pool", 1, ["data"]))
    assert {"name": "archive-settings", "optional": True} in [
        {name: source.get(name) for name in ("name", "optional")}
        for source in (volume.get("configMap", {}) for volume in pod["spec"]["volumes"])
    ]


def test_other_namespaces_are_left_alone(policy: Namespace, kubernetes_api: KubernetesApi) -> None:
    assert "initContainers" not in admitted(new_namespace(kubernetes_api), strimzi_pod("pool", 0, ["data"]))["spec"]


def test_an_uninstalled_release_injects_no_more(kubernetes_api: KubernetesApi) -> None:
    namespace = new_namespace(kubernetes_api, RESTRICTED)
    namespace.install(*GIVEN)
    _in_force(namespace)
    assert "strimzi.io/manual-rolling-update=true" in namespace.helm("get", "notes", namespace.release)
    namespace.helm("uninstall", namespace.release)
    probe = strimzi_pod("pool", 0, ["data"])
    wait_until("the policy is gone", lambda: "initContainers" not in admitted(namespace, probe)["spec"], _STARTED_S)
