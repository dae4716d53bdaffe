"""What the chart renders for injection, beside what a pod gets."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from sidecar.admission.patch import patch
from tests.admission.strimzi_pods import strimzi_pod
from tests.cli.running import in_this_process
from tests.helm.charts import CHART, HelmFailed, rendered

pytestmark = pytest.mark.real

WEBHOOK = CHART / "ci" / "strimzi-webhook-values.yaml"
STRIMZI = CHART / "ci" / "strimzi-values.yaml"


def by_kind(path: Path, values: dict[str, str] | None = None) -> dict[str, Any]:
    objects = rendered(values, [path], namespace="kafka")
    return {one["kind"]: one for one in objects}


def test_helm_s_certificate_is_for_the_service_and_trusted_by_the_api_server() -> None:
    objects = by_kind(WEBHOOK)
    (hook,) = objects["MutatingWebhookConfiguration"]["webhooks"]
    service = hook["clientConfig"]["service"]
    assert service == {**service, "name": objects["Service"]["metadata"]["name"], "namespace": "kafka"}
    secret = objects["Secret"]["data"]
    assert hook["clientConfig"]["caBundle"] == secret["ca.crt"]
    authority, certificate = (
        x509.load_pem_x509_certificate(base64.b64decode(secret[name])) for name in ("ca.crt", "tls.crt")
    )
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [f"{service['name']}.kafka.svc"]
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days >= 3649


def test_cert_manager_makes_the_certificate_where_it_is_asked_to() -> None:
    objects = by_kind(WEBHOOK, {"inject.webhook.certManager": "true"})
    assert "Secret" not in objects
    made = rendered({"inject.webhook.certManager": "true"}, [WEBHOOK], namespace="kafka")
    authority, certificate = (one for one in made if one["kind"] == "Certificate")
    issuers = {one["metadata"]["name"]: one["spec"] for one in made if one["kind"] == "Issuer"}
    assert issuers[certificate["spec"]["issuerRef"]["name"]] == {"ca": {"secretName": authority["spec"]["secretName"]}}
    assert issuers[authority["spec"]["issuerRef"]["name"]] == {"selfSigned": {}}
    assert authority["spec"]["isCA"] is True
    configuration = objects["MutatingWebhookConfiguration"]
    name = certificate["metadata"]["name"]
    assert configuration["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": f"kafka/{name}"}
    assert "caBundle" not in configuration["webhooks"][0]["clientConfig"]
    assert certificate["spec"]["dnsNames"] == [f"{objects['Service']['metadata']['name']}.kafka.svc"]
    volumes = objects["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "certificate", "secret": {"secretName": certificate["spec"]["secretName"]}} in volumes


@pytest.mark.parametrize("engine", ["policy", "webhook"])
def test_both_engines_select_the_same_pods_and_keep_no_broker_from_starting(engine: str) -> None:
    objects = by_kind(STRIMZI, {"inject.engine": engine})
    if engine == "policy":
        spec = objects["MutatingAdmissionPolicy"]["spec"]
        selected, rules = spec["matchConstraints"], spec["matchConstraints"]["resourceRules"]
    else:
        (spec,) = objects["MutatingWebhookConfiguration"]["webhooks"]
        selected, rules = spec, spec["rules"]
    assert spec["failurePolicy"] == "Ignore"
    assert selected["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "kafka"}}
    labels = {"strimzi.io/broker-role": "true", "strimzi.io/cluster": "my-cluster"}
    assert selected["objectSelector"] == {"matchLabels": labels}
    assert rules == [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]


@pytest.mark.parametrize(
    ("bind", "expected"), [({}, "0.0.0.0:9443"), ({"settings.http.bind": "[::]:9400"}, "[::]:9443")]
)
def test_the_webhook_listens_where_the_sidecar_does(bind: dict[str, str], expected: str) -> None:
    (container,) = by_kind(WEBHOOK, bind)["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == f"--bind={expected}"
    assert container["ports"] == [{"name": "https", "containerPort": 9443}]


def test_users_can_be_left_to_openshift() -> None:
    nothing = {f"recipes.hosts.strimzi.{name}": "null" for name in ("runAsUser", "runAsGroup")}
    (text,) = (
        one["data"]["injection.json"] for one in rendered(nothing, [WEBHOOK]) if "injection.json" in one.get("data", {})
    )
    _, _, container, *_ = patch(strimzi_pod("pool", 0, ["data"]), json.loads(text))
    assert not {"runAsUser", "runAsGroup"} & set(container["value"]["securityContext"])


def test_injection_without_its_settings_is_refused() -> None:
    with pytest.raises(HelmFailed, match=re.escape("inject.strimzi.enabled needs the ConfigMap of the settings")):
        rendered({"recipes.enabled": "false", "demo.enabled": "true"}, [WEBHOOK])


def test_the_printed_policy_needs_a_namespace() -> None:
    done = in_this_process("k8s", "render", "--for", "strimzi")
    assert done.code == 2
    assert "--for strimzi needs --namespace" in done.err
