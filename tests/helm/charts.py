"""Where the charts are, how they are rendered, and what is written from the code: `python -m tests.helm.charts` writes it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sidecar.cli.kubernetes import CONTAINER_SETTINGS_FILE, RECIPES_FILE, Host, variant
from tests.helm.dashboard import dashboard
from tests.helm.tools import go_tool
from tests.helm.values_schema import values_schema

ROOT = Path(__file__).parents[2]
HELM = ROOT / "helm"
CHART = HELM / "tiered-sidecar"
LIBRARY = HELM / "tiered-sidecar-lib"
CASES = sorted((CHART / "ci").glob("*-values.yaml"))
KUBERNETES_VERSIONS = tuple(f"1.{minor}" for minor in range(29, 38))
MONITORING = ("monitoring.coreos.com/v1/PodMonitor", "monitoring.coreos.com/v1/PrometheusRule")

NEEDED = {
    "settings.store.url": "s3://bucket/prefix",
    "settings.broker.connection.bootstrap_servers": "{localhost:9092,kafka:9092}",
}
"""Values without which the chart says no."""
PLACEHOLDERS = {
    "fullnameOverride": "name-of-the-release",
    "image.repository": "image-of-the-sidecar",
    "image.tag": "tag",
}
"""Values that stand in the rendered recipes until a command line names others."""


class HelmFailed(RuntimeError):
    """Helm ended with an error; the message is its own."""


def helm(*arguments: str) -> str:
    """What a command prints. Raises HelmFailed."""
    # It ends before collecting garbage pays: a third less of CPU.
    environment = {**os.environ, "GOGC": "off"}
    command = [str(go_tool("helm")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT, env=environment)
    if done.returncode != 0:
        raise HelmFailed(f"helm {' '.join(arguments)}: {done.stderr}{done.stdout}")
    return done.stdout


# The one that is written in C reads objects in a tenth of the time.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def rendered(
    values: Mapping[str, str] | None = None,
    files: Sequence[Path] = (),
    *,
    kubernetes: str = "1.37",
    apis: Sequence[str] = (),
    release: str = "release",
    namespace: str = "default",
) -> list[dict[str, Any]]:
    """The objects that the chart makes, with values by path. Raises HelmFailed."""
    arguments = ["template", release, str(CHART), "--kube-version", f"{kubernetes}.0", "--namespace", namespace]
    arguments += [argument for path in files for argument in ("--values", str(path))]
    arguments += [argument for api in (*apis, *_admission(kubernetes)) for argument in ("--api-versions", api)]
    for path, value in (values or {}).items():
        arguments += ["--set", f"{path}={value}"]
    text = _rendered(tuple(arguments), tuple(path.read_bytes() for path in files))
    return [document for document in yaml.load_all(text, _Loader) if document]


def _admission(kubernetes: str) -> list[str]:
    """The kinds of admission that a cluster of a version serves; in 1.34 and 1.35 behind a gate, which is taken as open."""
    minor = int(kubernetes.partition(".")[2])
    versions = ["v1"] if minor >= 36 else ["v1beta1"] if minor >= 34 else []
    return [f"admissionregistration.k8s.io/{version}/MutatingAdmissionPolicy" for version in versions]


@cache
def _rendered(arguments: tuple[str, ...], _files: tuple[bytes, ...]) -> str:
    return helm(*arguments)


def generated() -> Iterator[tuple[Path, str]]:
    """Files that are written from others, and what they should hold."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    yield CHART / "values.schema.json", json.dumps(values_schema(values), indent=2) + "\n"
    yield CHART / "README.md", documentation()
    yield CHART / "files" / "dashboard.json", dashboard()
    yield ROOT / "docs" / "reference" / "alerts.md", alerts_page()
    yield CONTAINER_SETTINGS_FILE, json.dumps(container_settings(), indent=1) + "\n"
    yield RECIPES_FILE, json.dumps(recipes(), indent=1) + "\n"


def documentation() -> str:
    """The chart's page, by helm-docs from the comments in `values.yaml`."""
    arguments = [
        "--chart-search-root",
        str(HELM),
        "--chart-to-generate",
        str(CHART),
        "--dry-run",
        "--log-level",
        "error",
    ]
    done = subprocess.run(
        [str(go_tool("helm-docs")), *arguments], capture_output=True, text=True, timeout=300, check=True, cwd=ROOT
    )
    return done.stdout.strip() + "\n"


_ALERTS_INTRODUCTION = """\
# Alerts

<!-- Written by `make chart` from helm/tiered-sidecar/files/alerts.yaml; a test compares. Edit that file, not this page. -->

`helm/tiered-sidecar/files/alerts.yaml` is a rule file for Prometheus; the chart makes a PrometheusRule of it. Every alert has
a test in which it fires, and one in which it does not. The thresholds suit topics with a retention of a day or more: lower
them if yours is shorter.
"""


def alerts_page() -> str:
    """What each alert means and what to do."""
    lines = [_ALERTS_INTRODUCTION]
    for rule in yaml.safe_load((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]:
        lines += [
            f"## {rule['alert']}",
            "",
            f"Severity {rule['labels']['severity']}, after {rule.get('for', 'no wait')}.",
            "",
        ]
        lines += ["```", *str(rule["expr"]).strip().splitlines(), "```", ""]
        lines += [rule["annotations"]["meaning"], "", f"**What to do:** {rule['annotations']['action']}", ""]
    return "\n".join(lines).rstrip() + "\n"


def container_settings() -> dict[str, Any]:
    """What the chart puts into every settings file, since a container needs it."""
    (made,) = (found for found in rendered(NEEDED) if found["metadata"]["name"].endswith("-settings"))
    settings = yaml.safe_load(made["data"]["settings.yaml"])
    return {name: part for name, part in settings.items() if name not in {"store", "broker"}}


def recipes() -> dict[str, dict[str, str]]:
    """By host and variant, the text of the chart's recipe with placeholders for what a command line may name."""
    found: dict[str, dict[str, str]] = {host: {} for host in Host}
    for heals, has_secret, has_token in itertools.product((False, True), repeat=3):
        values = {**PLACEHOLDERS, **NEEDED, "heal.enabled": str(heals).lower()}
        if has_secret:
            values["s3.existingSecret"] = "name-of-the-secret"
        if has_token:
            values["statusPage.existingSecret"] = "name-of-the-token"
        objects = rendered(values, namespace="namespace-of-the-brokers")
        (config_map,) = (found for found in objects if found["metadata"]["name"].endswith("-recipes"))
        for host in Host:
            text = config_map["data"][f"{host}.yaml"].rstrip("\n") + "\n"
            for placeholder, mark in (
                ("name-of-the-release", "@NAME@"),
                ("image-of-the-sidecar:tag", "@IMAGE@"),
                ("name-of-the-secret", "@SECRET@"),
                ("name-of-the-token", "@TOKEN@"),
                ("namespace-of-the-brokers", "@NAMESPACE@"),
            ):
                text = text.replace(placeholder, mark)
            found[host][variant(heals=heals, has_secret=has_secret, has_token=has_token)] = text
    return found


if __name__ == "__main__":
    for path, content in generated():
        path.write_text(content, encoding="utf-8")
