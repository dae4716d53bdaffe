"""What the chart renders is valid on every Kubernetes it claims, its settings are those of the program, and it refuses the rest."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from sidecar.config import load_settings
from tests.helm.charts import (
    CASES,
    CHART,
    HELM,
    KUBERNETES_VERSIONS,
    LIBRARY,
    MONITORING,
    NEEDED,
    ROOT,
    HelmFailed,
    generated,
    helm,
    rendered,
)
from tests.helm.definitions import require_valid
from tests.helm.tools import go_tool
from tests.servers.dist import KAFKA_VERSIONS

pytestmark = pytest.mark.real

SCRIPTS = Path(sysconfig.get_path("scripts"))
CASE_IDS = [path.name.removesuffix("-values.yaml") for path in CASES]
LINTED = ("demo", "full", "strimzi-webhook")
"""All templates."""
RENDERED = {29: "1.29", 34: "1.34", 36: "1.37"}
"""For the oldest version that serves the same kinds of admission as another. Templates see nothing else of a version."""


def run(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_and_the_pages_name_the_versions_that_are_tested() -> None:
    demo = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["demo"]
    assert demo["kafkaImage"].rpartition(":")[2] in KAFKA_VERSIONS
    listed = ", ".join(KAFKA_VERSIONS)
    for page in ("README.md", "docs/contributing/testing.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert f"real Kafka brokers ({listed})" in text, page


def test_generated_files_are_what_they_are_made_from() -> None:
    for path, content in generated():
        assert path.read_text(encoding="utf-8") == content, (
            f"run: make chart   ({path.relative_to(ROOT)} is out of date)"
        )


def test_the_chart_has_the_version_of_the_program_and_of_its_library() -> None:
    from sidecar import __version__

    chart, library = (yaml.safe_load((path / "Chart.yaml").read_text()) for path in (CHART, LIBRARY))
    assert chart["appVersion"] == library["appVersion"] == __version__
    assert chart["dependencies"] == [
        {"name": library["name"], "version": library["version"], "repository": f"file://../{LIBRARY.name}"}
    ]


@pytest.mark.parametrize("case", LINTED)
def test_helm_has_nothing_to_say_against_it(case: str) -> None:
    printed = helm("lint", str(CHART), "--strict", "--values", str(CHART / "ci" / f"{case}-values.yaml"))
    assert "[ERROR]" not in printed
    assert "[WARNING]" not in printed


def test_linters_have_nothing_to_say_against_it() -> None:
    configuration = "{extends: default, rules: {line-length: {max: 132}, document-start: disable, braces: disable}}"
    files = [
        path for chart in (CHART, LIBRARY) for path in (chart / "Chart.yaml", chart / "values.yaml") if path.exists()
    ]
    files += [*CASES, *(CHART / "tests").glob("*.yaml"), *(CHART / "files").glob("*.yaml")]
    run(SCRIPTS / "yamllint", "--strict", "-d", configuration, *files)
    run(SCRIPTS / "hadolint", ROOT / "Dockerfile")


@pytest.mark.parametrize("kubernetes", KUBERNETES_VERSIONS)
def test_objects_are_valid_on_every_version_of_kubernetes(kubernetes: str) -> None:
    minor = int(kubernetes.partition(".")[2])
    alike = RENDERED[max(first for first in RENDERED if first <= minor)]
    for case in CASES:
        if case.name == "strimzi-values.yaml" and minor < 34:
            with pytest.raises(HelmFailed, match="this cluster does not serve MutatingAdmissionPolicy: set"):
                rendered(files=[case], kubernetes=alike)
            continue
        objects = rendered(files=[case], kubernetes=alike, apis=MONITORING)
        names = [(found["kind"], found["metadata"]["name"]) for found in objects]
        assert len(set(names)) == len(names)
        for found in objects:
            if found["apiVersion"].startswith("monitoring.coreos.com/"):
                require_valid(found)
                continue
            kubernetes_validate.validate(found, kubernetes, strict=True)


def test_templates_see_no_version() -> None:
    templates = [path for chart in (CHART, LIBRARY) for path in (chart / "templates").rglob("*") if path.is_file()]
    assert [path for path in templates if "KubeVersion" in path.read_text(encoding="utf-8")] == []


def test_strict_validation_sees_what_is_wrong() -> None:
    (settings, *_) = rendered(NEEDED)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**settings, "dota": {}}, "1.37", strict=True)


@pytest.mark.parametrize("change", [{"port": 9308}, {"intervall": "30s"}, {"interval": "half a minute"}])
def test_strict_validation_of_monitoring_objects_sees_it_too(change: dict[str, Any]) -> None:
    (monitor,) = (found for found in rendered(NEEDED, apis=MONITORING) if found["kind"] == "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    endpoint.update(change)
    with pytest.raises(jsonschema.ValidationError):
        require_valid(monitor)


@pytest.mark.parametrize("case", CASES, ids=CASE_IDS)
def test_settings_of_every_container_are_settings_of_the_program(case: Path, tmp_path: Path) -> None:
    objects = rendered(files=[case])
    files = {
        found["metadata"]["name"]: found["data"]["settings.yaml"]
        for found in objects
        if "settings.yaml" in found.get("data", {})
    }
    assert files
    for key in ("access-key-id", "secret-access-key"):
        (tmp_path / key).write_text("secret")
    seen = 0
    for name, text in files.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        loaded = load_settings(config_file=path)
        assert loaded.settings.http.address == ("0.0.0.0", 9308)  # noqa: S104 - in a pod
        for pod in pods_of(objects):
            for container in [*pod.get("initContainers", ()), *pod["containers"]]:
                if not is_ours(container) or name not in json.dumps(pod["volumes"]):
                    continue
                seen += 1
                environment = {
                    entry["name"]: entry["value"].replace("/etc/tiered-sidecar-keys", str(tmp_path))
                    for entry in container["env"]
                    if "value" in entry
                }
                mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
                if "TIERED_SIDECAR_CONFIG" not in environment:
                    continue
                settings = load_settings(config_file=path, environment=environment).settings
                for log_dir in settings.broker.log_dirs:
                    (mount,) = (found for found in mounts if found != "/tmp" and log_dir.is_relative_to(found))
                    assert mounts[mount] is True
                assert any(
                    settings.run.state_path.is_relative_to(mount) for mount, locked in mounts.items() if not locked
                )
    assert seen or "recipes" in case.name or "full" in case.name or "strimzi" in case.name


def pods_of(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The specs of all pods, of whatever kind of object."""
    pods = []
    for found in objects:
        spec = found.get("spec", {})
        for step in ("jobTemplate", "template"):
            if step in spec:
                spec = spec[step]["spec"]
        if "containers" in spec:
            pods.append(spec)
    return pods


def is_ours(container: dict[str, Any]) -> bool:
    return container["image"].rpartition("/")[2].startswith("tiered-sidecar")


@pytest.mark.parametrize("case", CASES, ids=CASE_IDS)
def test_no_container_may_do_more_than_it_must(case: Path) -> None:
    for pod in pods_of(rendered(files=[case])):
        assert pod["automountServiceAccountToken"] is False
        volumes = [volume["name"] for volume in pod.get("volumes", ())]
        assert len(set(volumes)) == len(volumes)
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            security = {**pod.get("securityContext", {}), **container["securityContext"]}
            assert security["runAsNonRoot"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
            assert security.get("readOnlyRootFilesystem") or container["image"].startswith("docker.io/apache/kafka")
            assert container["resources"]["requests"]["memory"]
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= set(volumes)


def test_kubernetes_before_native_sidecars_is_refused() -> None:
    with pytest.raises(HelmFailed, match="incompatible with Kubernetes"):
        rendered(NEEDED, kubernetes="1.28")


def test_monitoring_objects_come_where_the_cluster_knows_them() -> None:
    kinds = {found["kind"] for found in rendered(NEEDED)}
    assert not kinds & {"PodMonitor", "PrometheusRule"}
    assert {found["kind"] for found in rendered(NEEDED, apis=MONITORING)} >= {"PodMonitor", "PrometheusRule"}


def test_templates_are_as_their_snapshots() -> None:
    printed = run(go_tool("helm-unittest"), CHART)
    assert "Snapshot: " in printed
    assert "failed" not in printed


def test_a_template_that_is_not_as_its_snapshot_is_seen(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("image: {pullPolicy: Always}\n")
    command = [str(go_tool("helm-unittest")), "--values", str(values), str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert "snapshot failed" in done.stdout


def test_both_charts_can_be_packaged(tmp_path: Path) -> None:
    for chart in (LIBRARY, CHART):
        helm("package", str(chart), "--destination", str(tmp_path))
    (packaged,) = tmp_path.glob("tiered-sidecar-0*.tgz")
    given = [word for path, value in NEEDED.items() for word in ("--set", f"{path}={value}")]
    printed = helm("template", "release", str(packaged), *given)
    assert "kind: ConfigMap" in printed
    assert HELM in CHART.parents
