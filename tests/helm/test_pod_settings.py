"""`k8s settings`: the ConfigMap that the recipes mount, from a settings file."""

from __future__ import annotations

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from sidecar.cli.kubernetes import (
    RECIPE_EPHEMERAL_BYTES,
    RECIPE_MEMORY_BYTES,
    RECIPE_PORT,
    RECIPE_WORK_BYTES,
    Host,
    config_map,
    recipe,
)
from sidecar.cli.options import GlobalOptions
from sidecar.config import load_settings
from sidecar.errors import SettingsError
from sidecar.ports import MIB
from tests.cli.running import in_this_process
from tests.helm.charts import NEEDED, rendered
from tests.helm.test_recipes import IN_POD_TEMPLATES

ARCHIVE = "store: {url: s3://bucket/prefix}\n"
BROKER = "broker: {connection: {bootstrap_servers: ['localhost:9092']}}\n"


def settings_file(directory: Path, text: str) -> Path:
    path = directory / "settings.yaml"
    path.write_text(text)
    return path


def printed(directory: Path, text: str, *assigned: str) -> str:
    return config_map(GlobalOptions(config=settings_file(directory, text), set_=list(assigned)), "archive")


def content(text: str, directory: Path) -> Path:
    """The settings file in a printed ConfigMap."""
    return settings_file(directory, yaml.safe_load(text)["data"]["settings.yaml"])


def test_a_file_becomes_what_a_container_needs(tmp_path: Path) -> None:
    text = printed(tmp_path, ARCHIVE + BROKER + "topics: {exclude: ['tmp-.*']}\nrun:\nhttp:\n", "run.workers=3")
    made = yaml.safe_load(text)
    assert made["metadata"]["name"] == "archive-settings"
    kubernetes_validate.validate(made, "1.37", strict=True)
    settings = load_settings(config_file=content(text, tmp_path)).settings
    assert settings.http.address == ("0.0.0.0", RECIPE_PORT)  # noqa: S104 - in a pod
    assert settings.run.workers == 3
    assert settings.topics.exclude == ("tmp-.*",)
    for path in (settings.run.state_path, settings.compaction.staging_dir, settings.spark.local_dir):
        assert path is not None
        assert path.is_relative_to("/var/lib/tiered-sidecar")


@pytest.mark.real
def test_it_is_what_the_chart_makes_of_the_same(tmp_path: Path) -> None:
    (chart,) = (found for found in rendered(NEEDED) if found["metadata"]["name"].endswith("-settings"))
    text = printed(tmp_path, ARCHIVE, 'broker.connection.bootstrap_servers=["localhost:9092", "kafka:9092"]')
    assert yaml.safe_load(content(text, tmp_path).read_text()) == yaml.safe_load(chart["data"]["settings.yaml"])


@pytest.mark.parametrize("host", IN_POD_TEMPLATES)
def test_the_recipes_name_it_and_have_the_port_and_memory_that_it_is_checked_against(host: Host) -> None:
    text = recipe(host, image="example/sidecar:9", name="archive", secret=None, token=None, heals=False)
    assert "name: archive-settings\n" in text
    assert f"containerPort: {RECIPE_PORT}\n" in text
    assert text.count(f"memory: {RECIPE_MEMORY_BYTES // MIB}Mi\n") == 2
    assert text.count(f"ephemeral-storage: {RECIPE_EPHEMERAL_BYTES // MIB}Mi\n") == 1
    assert re.search(rf"tiered-sidecar-work\n +emptyDir:\n +sizeLimit: {RECIPE_WORK_BYTES // MIB}Mi\n", text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ARCHIVE, "nothing says which partitions the broker leads, so nothing would be archived"),
        (
            ARCHIVE + "broker: {assume_leader: true, log_dirs: [/data]}\n",
            r"broker.log_dirs \(.*settings.yaml\): the recipe sets",
        ),
        (
            ARCHIVE + BROKER + "http: {bind: '127.0.0.1:9308'}\n",
            r"http.bind 127.0.0.1:9308 \(.*settings.yaml\): the liveness",
        ),
        (ARCHIVE + BROKER + "http: {bind: '0.0.0.0:9400'}\n", r"http.bind 0.0.0.0:9400 .* reach port 9308"),
        (ARCHIVE + BROKER + "http: {bind: null}\n", r"http.bind None"),
        (BROKER, "store.url: not set"),
        (
            "store: {url: bucket/prefix}\n" + BROKER,
            r"store.url bucket/prefix \(.*settings.yaml\): a relative directory",
        ),
        ("store: {url: ~/archive}\n" + BROKER, r"store.url ~/archive \(.*settings.yaml\): a relative directory"),
        (
            "store: {url: s3://bucket/p, s3: {access_key_id: AKIA, secret_access_key: hush}}\n" + BROKER,
            r"store.s3.[a-z_]+ \(.*settings.yaml\): a ConfigMap must not contain a secret",
        ),
    ],
)
def test_what_cannot_work_in_a_pod_or_is_secret_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        printed(tmp_path, text)
    assert "hush" not in str(refused.value)


@pytest.mark.real
@pytest.mark.parametrize("when", ["after_upload", "before_upload"])
@pytest.mark.parametrize("engine", ["auto", "local"])
def test_sizes_beyond_those_of_the_recipe_are_reported_as_the_chart_reckons_them(
    when: str, engine: str, tmp_path: Path
) -> None:
    assert not printed(tmp_path, ARCHIVE + BROKER).startswith("#")
    compaction = f"compaction: {{topics: [accounts], when: {when}}}\nspark: {{engine: {engine}}}\n"
    text = printed(tmp_path, ARCHIVE + BROKER + compaction)
    values = {
        "settings.compaction.topics[0]": "accounts",
        "settings.compaction.when": when,
        "settings.spark.engine": engine,
    }
    objects = rendered({**NEEDED, **values})
    (recipes,) = (found for found in objects if found["metadata"]["name"].endswith("-recipes"))
    size = re.findall(r"tiered-sidecar-work\n +emptyDir:\n +sizeLimit: ([0-9]+)Mi", recipes["data"]["plain.yaml"])
    assert re.findall(r"compaction may write ([0-9]+) MiB", text) == size
    requested = re.findall(r"ephemeral-storage: ([0-9]+)Mi", recipes["data"]["plain.yaml"])
    assert re.findall(r"request ([0-9]+)Mi of ephemeral-storage", text) == requested
    assert ("# With these settings the container needs 2368 MiB: raise its memory" in text) == (engine == "auto")


@pytest.mark.parametrize("name", ["Archive", "archive-", "9archive", "a.b", "", "a" * 51])
def test_names_that_kubernetes_refuses_are_refused(name: str, tmp_path: Path) -> None:
    options = ["--config", str(settings_file(tmp_path, ARCHIVE + BROKER)), "--name", name]
    for command in (["k8s", "settings", *options], ["k8s", "render", "--for", "plain", "--name", name]):
        done = in_this_process(*command)
        assert done.code == 2
        assert "--name" in done.err
