"""Helm and kubectl in one namespace of the API server, as a user has them."""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tests.helm.charts import CHART, ROOT, HelmFailed
from tests.helm.tools import go_tool
from tests.servers.dist import go_binary
from tests.servers.kubernetes import KubernetesApi

RESTRICTED = {
    f"pod-security.kubernetes.io/{mode}{suffix}": value
    for mode in ("enforce", "warn", "audit")
    for suffix, value in (("", "restricted"), ("-version", "latest"))
}
"""Labels of a namespace that admits only pods of the strictest standard, and warns of templates of others."""
_numbers = itertools.count()
_TIMEOUT_S = 300.0
_NOT_OURS = ("ServiceAccount/default", "Secret/sh.helm.release.")


@dataclass(frozen=True)
class Namespace:
    """One namespace, and the release `archive` in it."""

    api: KubernetesApi
    name: str
    release: str = "archive"
    helm_version: int = 3
    """The tests' own is 3. 4 applies on the server's side."""

    def helm(self, command: str, *arguments: str) -> str:
        """What a command prints. Raises HelmFailed, also where the API server warns."""
        program = go_tool("helm") if self.helm_version == 3 else go_binary("helm-4")
        full = [str(program), command, *arguments, "--namespace", self.name]
        environment = {**os.environ, **self.api.client_environment}
        done = subprocess.run(
            full, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, cwd=ROOT, env=environment
        )
        # Of the library chart, which is a link here.
        errors = [line for line in done.stderr.splitlines() if "symbolic link" not in line]
        if done.returncode != 0 or errors:
            raise HelmFailed(f"helm {command} {' '.join(arguments)}: {' '.join(errors)}")
        return done.stdout

    def install(self, *arguments: str, command: str = "install") -> None:
        """Installs the chart, or with `upgrade` changes the release. Arguments: `--values FILE` and others."""
        self.helm(command, self.release, str(CHART), *arguments)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What a command prints in this namespace. Raises KubectlFailed, also where the API server warns."""
        return self.api.kubectl("--namespace", self.name, *arguments, stdin=stdin)

    def apply(self, text: str, *arguments: str, manager: str = "kubectl") -> str:
        """Server-side apply: unknown fields and fields of other managers are errors. Raises KubectlFailed."""
        return self.kubectl(
            "apply", "--server-side", "--validate=strict", "--field-manager", manager, *arguments, "-f", "-", stdin=text
        )

    def objects(self) -> dict[str, dict[str, Any]]:
        """All objects of the namespace by `kind/name`, but for events, and what Helm and every namespace have."""
        kinds = _kinds(self.api)
        lists = self.api.get_all(f"{version}/namespaces/{self.name}/{plural}" for version, plural, _ in kinds)
        named = {
            f"{kind}/{one['metadata']['name']}": {"kind": kind, **one}
            for (_, _, kind), found in zip(kinds, lists, strict=True)
            for one in found["items"]
        }
        return {name: one for name, one in named.items() if not name.startswith(_NOT_OURS)}

    def admit(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Has the API server validate and admit pods, and keep none of them. Raises KubectlFailed."""
        named = [
            {**pod, "metadata": {**pod.get("metadata", {}), "name": f"pod-{number}"}} for number, pod in enumerate(pods)
        ]
        if named:
            self.apply(yaml.safe_dump_all(named), "--dry-run=server")


@cache
def _kinds(api: KubernetesApi) -> list[tuple[str, str, str]]:
    """All that is in namespaces: the path of its version, its plural and its kind."""
    lines = api.kubectl("api-resources", "--namespaced", "--verbs=list", "--no-headers").splitlines()
    # plural, short names if it has any, version, `true`, kind
    found = [
        (words[-3], words[0], words[-1]) for words in map(str.split, lines) if words[0] not in {"events", "endpoints"}
    ]
    return [
        (f"/apis/{version}" if "/" in version else f"/api/{version}", plural, kind) for version, plural, kind in found
    ]


def new_namespace(api: KubernetesApi, labels: Mapping[str, str] | None = None) -> Namespace:
    """An empty one. Without controllers a deleted namespace would never go: each test has its own."""
    name = f"test-{next(_numbers)}"
    api.create_namespace(name, dict(labels or {}))
    return Namespace(api, name)


def pod_templates(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Pods that a controller would make of an object."""
    spec = found.get("spec", {})
    if found["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    if found["kind"] in {"CronJob", "DaemonSet", "Deployment", "Job", "StatefulSet"}:
        pod = copy.deepcopy(spec["template"])
        for claim in spec.get("volumeClaimTemplates", ()):
            name = claim["metadata"]["name"]
            volume = {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-0"}}
            pod["spec"].setdefault("volumes", []).append(volume)
        yield {"apiVersion": "v1", "kind": "Pod", **pod}
