"""What `k8s render` and `k8s settings` print, given to the API server as the recipes say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.cli.kubernetes import Host
from tests.cli.running import in_this_process
from tests.helm.charts import ROOT
from tests.helm.test_recipes import IN_POD_TEMPLATES, added_to_the_pod
from tests.kube.cluster import Namespace, pod_templates
from tests.servers.kubernetes import KubectlFailed

pytestmark = pytest.mark.real

OPTIONS = {"least": (), "most": ("--heal", "--secret", "archive-keys", "--token", "page")}
SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def render(host: Host, options: str) -> str:
    arguments = ("--for", host.value, "--image", "example/sidecar:9", "--name", "archive", *OPTIONS[options])
    return printed("k8s", "render", *arguments)


def printed(*arguments: str) -> str:
    done = in_this_process(*arguments)
    assert done.code == 0, done.err
    return done.out


def brokers(volume: str, path: str) -> dict[str, Any]:
    """A StatefulSet `kafka` as its owner has it."""
    mounts = [{"name": volume, "mountPath": path}]
    container = {"name": "kafka", "image": "kafka", "securityContext": SECURITY, "volumeMounts": mounts}
    pod = {"containers": [container], "volumes": [{"name": volume, "emptyDir": {}}]}
    labels = {"app": "kafka"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"serviceName": "kafka", "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "kafka"}, "spec": spec}


def brokers_for(host: Host, options: str) -> dict[str, Any]:
    *_, sidecar = added_to_the_pod(host, render(host, options))["initContainers"]
    return brokers(sidecar["volumeMounts"][0]["name"], sidecar["volumeMounts"][0]["mountPath"])


@pytest.mark.parametrize(("host", "options"), [(Host.PLAIN, "least"), *((host, "most") for host in IN_POD_TEMPLATES)])
def test_brokers_take_the_recipe(host: Host, options: str, namespace: Namespace) -> None:
    """By a patch, as a chart or an operator would: no field is unknown, and the pod keeps to the standard `restricted`."""
    added = added_to_the_pod(host, render(host, options))
    # Volumes have this name in the pod, whatever the host's values call them.
    patch = {"spec": {"template": {"spec": {name: added[name] for name in ("initContainers", "volumes")}}}}
    namespace.apply(yaml.safe_dump(brokers_for(host, options)))
    namespace.kubectl("patch", "statefulset", "kafka", "--patch", yaml.safe_dump(patch))
    again = namespace.kubectl("patch", "statefulset", "kafka", "--patch", yaml.safe_dump(patch))
    assert "no change" in again
    (stateful_set,) = namespace.objects().values()
    namespace.admit(pod_templates(stateful_set))
    pod = stateful_set["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["initContainers"]] == [one["name"] for one in added["initContainers"]]


def test_a_patch_file_and_an_overlay_are_taken_as_they_are(namespace: Namespace) -> None:
    namespace.apply(yaml.safe_dump(brokers_for(Host.PLAIN, "most")))
    namespace.kubectl("patch", "statefulset", "kafka", "--patch-file=/dev/stdin", stdin=render(Host.PLAIN, "most"))
    namespace.apply(render(Host.CFK, "most"))
    assert set(namespace.objects()) == {"StatefulSet/kafka", "ConfigMap/archive-overlay"}


def documented_removal(directory: Path) -> Path:
    """The patch without the sidecar that the page gives."""
    page = (ROOT / "docs" / "how-to" / "install-on-kubernetes.md").read_text()
    (patch,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "$patch: delete" in block]
    file = directory / "without-sidecar.yaml"
    file.write_text(patch)
    return file


def test_the_documented_patch_takes_the_recipe_back(namespace: Namespace, tmp_path: Path) -> None:
    namespace.apply(yaml.safe_dump(brokers_for(Host.PLAIN, "most")))
    (before,) = namespace.objects().values()
    namespace.kubectl("patch", "statefulset", "kafka", "--patch-file=/dev/stdin", stdin=render(Host.PLAIN, "most"))
    # Also where it was taken back already.
    for _ in range(2):
        namespace.kubectl("patch", "statefulset", "kafka", f"--patch-file={documented_removal(tmp_path)}")
        (after,) = namespace.objects().values()
        added = {name: after["spec"]["template"].pop(name) for name in ["metadata"]}
        assert "tiered-sidecar/scrape" not in added["metadata"]["labels"]
        pod = after["spec"]["template"]["spec"]
        assert not pod.get("initContainers")
        assert pod["volumes"] == before["spec"]["template"]["spec"]["volumes"]


def test_the_documented_command_replaces_a_recipe_at_once(namespace: Namespace, tmp_path: Path) -> None:
    """A patch alone keeps what the new recipe leaves out, and a volume cannot have two sources."""
    claim = {
        "volumeClaimTemplate": {
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Gi"}}}
        }
    }
    tree = yaml.safe_load(render(Host.PLAIN, "least"))
    volumes = tree["spec"]["template"]["spec"]["volumes"]
    (work,) = [volume for volume in volumes if volume["name"] == "tiered-sidecar-work"]
    work.pop("emptyDir")
    work["ephemeral"] = claim
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tree))
    namespace.apply(yaml.safe_dump(brokers_for(Host.PLAIN, "most")))
    namespace.kubectl("patch", "statefulset", "kafka", "--patch-file=/dev/stdin", stdin=render(Host.PLAIN, "most"))
    with pytest.raises(KubectlFailed, match="may not specify more than 1 volume type"):
        namespace.kubectl("patch", "statefulset", "kafka", f"--patch-file={recipe}")
    text = namespace.kubectl("get", "statefulset", "kafka", "-o", "yaml")
    for patch in (documented_removal(tmp_path), recipe):
        text = namespace.kubectl("patch", "--local", "-f", "-", f"--patch-file={patch}", "-o", "yaml", stdin=text)
    namespace.kubectl("replace", "-f", "-", stdin=text)
    (changed,) = namespace.objects().values()
    namespace.admit(pod_templates(changed))
    pod = changed["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["initContainers"]] == ["tiered-sidecar"]
    assert {variable["name"] for variable in pod["initContainers"][0]["env"]} == {
        variable["name"] for variable in tree["spec"]["template"]["spec"]["initContainers"][0]["env"]
    }
    assert {volume["name"] for volume in pod["volumes"]} == {"data", *(volume["name"] for volume in volumes)}
    (work,) = [volume for volume in pod["volumes"] if volume["name"] == "tiered-sidecar-work"]
    assert set(work) == {"name", "ephemeral"}
    # The other way, with the one addition that makes a plain patch do.
    volumes[volumes.index({"name": "tiered-sidecar-work", "ephemeral": claim})] = {
        "name": "tiered-sidecar-work",
        "emptyDir": {"sizeLimit": "10Gi"},
        "ephemeral": None,
    }
    recipe.write_text(yaml.safe_dump(tree))
    namespace.kubectl("patch", "statefulset", "kafka", f"--patch-file={recipe}")
    (changed,) = namespace.objects().values()
    assert {"name": "tiered-sidecar-work", "emptyDir": {"sizeLimit": "10Gi"}} in changed["spec"]["template"]["spec"][
        "volumes"
    ]


def test_the_recipe_of_a_stateful_set_owns_no_field_of_others(namespace: Namespace) -> None:
    """Whoever applies the brokers may go on with that, and without the recipe they are as before."""
    owned = yaml.safe_dump(brokers_for(Host.PLAIN, "most"))
    namespace.apply(owned, manager="owner-of-the-brokers")
    (before,) = namespace.objects().values()
    recipe = render(Host.PLAIN, "most")
    namespace.apply(recipe, manager="sidecar")
    namespace.apply(owned, manager="owner-of-the-brokers")
    (with_sidecar,) = namespace.objects().values()
    assert "tiered-sidecar" in {one["name"] for one in with_sidecar["spec"]["template"]["spec"]["initContainers"]}
    empty = {name: part for name, part in yaml.safe_load(recipe).items() if name != "spec"}
    namespace.apply(yaml.safe_dump(empty), manager="sidecar")
    (after,) = namespace.objects().values()
    assert after["spec"] == before["spec"]


def test_the_image_of_a_pod_that_runs_can_be_changed(namespace: Namespace) -> None:
    """So that a new version needs no roll of the brokers."""
    (pod,) = pod_templates(brokers_for(Host.PLAIN, "least"))
    added = added_to_the_pod(Host.PLAIN, render(Host.PLAIN, "least"))
    pod["spec"]["initContainers"] = added["initContainers"]
    pod["spec"]["volumes"] += added["volumes"]
    namespace.apply(yaml.safe_dump({**pod, "metadata": {"name": "kafka-0"}}))
    namespace.kubectl("set", "image", "pod/kafka-0", "tiered-sidecar=example/sidecar:10")
    (changed,) = namespace.objects()["Pod/kafka-0"]["spec"]["initContainers"]
    assert changed["image"] == "example/sidecar:10"


def test_settings_are_applied_and_applied_again(namespace: Namespace) -> None:
    settings = ("--set", "store.url=s3://bucket/prefix", "--set", "broker.assume_leader=true")
    text = printed("k8s", "settings", "--name", "archive", *settings)
    namespace.apply(text)
    again = namespace.apply(text)
    assert again == "configmap/archive-settings serverside-applied\n"
