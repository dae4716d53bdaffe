"""`k8s missing`: pods by stdin, those without the sidecar on stdout."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.admission.strimzi_pods import strimzi_pod
from tests.cli.running import in_this_process


def listed(found: object, *arguments: str) -> tuple[int, str, str]:
    text = found if isinstance(found, str) else json.dumps(found)
    done = in_this_process("k8s", "missing", *arguments, stdin=text)
    return done.code, done.out, done.err


def pod(node: int, *, has_sidecar: bool, phase: str = "Running") -> dict[str, Any]:
    made = strimzi_pod("pool", node, ["data"])
    made["metadata"]["namespace"] = "kafka"
    made["status"] = {"phase": phase}
    if has_sidecar:
        made["spec"]["initContainers"] = [{"name": "tiered-sidecar"}]
    return made


def test_pods_without_it_are_named() -> None:
    pods = [pod(0, has_sidecar=True), pod(1, has_sidecar=False), pod(2, has_sidecar=False, phase="Failed")]
    code, out, err = listed({"kind": "List", "items": pods})
    assert (code, out) == (1, "kafka/my-cluster-pool-1\n")
    assert "1 of 2 pods lack the sidecar" in err
    code, out, _ = listed({"kind": "List", "items": pods}, "--json")
    found = {"kind": "kubernetes_missing", "version": 1, "pods": 2}
    assert code == 1
    assert json.loads(out) == {**found, "missing": [{"namespace": "kafka", "name": "my-cluster-pool-1"}]}


def test_where_all_have_it_nothing_is_listed() -> None:
    ordinary = pod(1, has_sidecar=False)
    ordinary["spec"]["containers"].append({"name": "tiered-sidecar"})
    code, out, _ = listed({"kind": "List", "items": [pod(0, has_sidecar=True), ordinary]})
    assert (code, out) == (0, "")
    assert listed(pod(0, has_sidecar=True))[0] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": "List", "items": []}', "the input has no pods"),
        (json.dumps(pod(0, has_sidecar=True, phase="Succeeded")), "the input has no pods"),
        ("", "expected pods as kubectl get pods -o json prints them"),
        ("[]", "expected pods as kubectl get pods -o json prints them"),
        ("{}", "something in it has no kind or no name"),
        ('{"kind": "Pod", "metadata": {}}', "something in it has no kind or no name"),
        ('{"kind": "List", "items": [{"kind": "Service"}]}', "expected pods, found Service"),
    ],
)
def test_what_proves_nothing_is_refused(text: str, message: str) -> None:
    code, out, err = listed(text)
    assert (code, out) == (2, "")
    assert message in err
