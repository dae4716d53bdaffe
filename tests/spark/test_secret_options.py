"""Secrets among `spark.options`: nobody is shown them, in whatever way settings are shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sidecar.config import SparkSettings, load_settings, read_assignments
from sidecar.config.spark import holds_secret
from sidecar.errors import SettingsError
from sidecar.logs import Redaction
from sidecar.spark.properties import SUBMIT_ARGUMENTS, by_file
from tests.cli.running import in_this_process

SECRET = "geheim-0123456789"
NAME = "spark.hadoop.fs.s3a.secret.key"
PLAIN = "spark.ui.port=4040"


@pytest.mark.parametrize(
    ("option", "is_secret"),
    [
        (f"{NAME}=x", True),
        ("spark.hadoop.fs.s3a.access.key=x", True),
        ("spark.hadoop.fs.azure.account.key.store=x", True),
        ("spark.ssl.keyStorePassword=x", True),
        ("spark.authenticate.secret=x", True),
        ("spark.hadoop.google.cloud.private_key=x", True),
        ("spark.other=token:abc", True),
        (PLAIN, False),
        ("spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY=archive:secret", False),
        ("spark.kubernetes.executor.secrets.archive=/keys", False),
        ("spark.executorEnv.TIERED_SIDECAR__STORE__S3__SECRET_ACCESS_KEY_FILE=/keys/secret", False),
    ],
)
def test_what_is_a_secret(option: str, is_secret: bool) -> None:
    assert holds_secret(option) is is_secret


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "settings.yaml"
    text = {"store": {"url": str(tmp_path)}, "spark": {"options": [f"{NAME}={SECRET}", PLAIN]}}
    path.write_text(json.dumps(text))
    return path


@pytest.mark.parametrize("options", [["--json"], []])
def test_config_show_redacts_them(config: Path, options: list[str]) -> None:
    shown = in_this_process("config", "show", "--config", config, *options)
    assert shown.code == 0
    assert f"{NAME}=********" in shown.out
    assert PLAIN in shown.out
    assert SECRET not in shown.out + shown.err


def test_no_text_for_people_has_them(config: Path) -> None:
    loaded = load_settings(config_file=config)
    assert loaded.settings.spark.options == (f"{NAME}={SECRET}", PLAIN)
    assert SECRET not in repr(loaded) + str(loaded.settings)
    redact = Redaction(loaded.secrets()).text
    assert (
        redact(f"Spark did not start: {SECRET} is wrong; {PLAIN}") == f"Spark did not start: ******** is wrong; {PLAIN}"
    )


def test_short_values_do_not_spoil_the_logs() -> None:
    flags = {"store.url": "memory://none", "spark.options": ["spark.kafka.token.enabled=true"]}
    loaded = load_settings(flags=flags)
    assert list(loaded.secrets()) == []
    assert loaded.shown()["spark.options"]["value"] == ["spark.kafka.token.enabled=********"]


@pytest.mark.parametrize(
    "options",
    [
        [f"fs.secret.key={SECRET}"],
        [SECRET],
        f"{NAME}={SECRET}",
        {NAME: SECRET},
        [f"{NAME} {SECRET}"],
        [f"{NAME}:{SECRET}"],
        [f"{NAME} {SECRET}=x"],
        [f"{NAME}: {SECRET}="],
        [f"{NAME}\t{SECRET}"],
        [{NAME: SECRET}],
    ],
)
def test_no_error_has_them(options: object) -> None:
    with pytest.raises(SettingsError, match=r"spark\.options") as caught:
        load_settings(flags={"store.url": "memory://none", "spark.options": options})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("separator", [" ", ":", " = ", ": "])
def test_the_error_names_the_entry_and_an_example_that_is_taken(separator: str) -> None:
    flags = {"store.url": "memory://none", "spark.options": [PLAIN, f"{NAME}{separator}{SECRET}"]}
    with pytest.raises(SettingsError, match=re.escape(f"entry 1 ({NAME}) is not name=value")) as caught:
        load_settings(flags=flags)
    assert SECRET not in str(caught.value)
    example = str(caught.value).rpartition("such as ")[2]
    assert SparkSettings(options=(example,)).options == (example,)


def test_a_map_in_place_of_the_list_is_answered_with_an_entry_that_fits() -> None:
    with pytest.raises(SettingsError, match=r"expected a list, such as \[spark\.ui\.port=4050\]"):
        load_settings(flags={"store.url": "memory://none", "spark.options": {NAME: SECRET}})


@pytest.mark.parametrize("process", ["driver", "executor"])
@pytest.mark.parametrize("kind", ["default", "extra"])
def test_arguments_of_a_jvm_are_no_place_for_them(process: str, kind: str) -> None:
    name = f"spark.{process}.{kind}JavaOptions"
    with pytest.raises(ValueError, match=f"{name} would expose a secret"):
        SparkSettings(options=(f"{name}=-Djavax.net.ssl.trustStorePassword={SECRET}",))
    assert SparkSettings(options=(f"{name}=-Dx=y",)).options


def test_our_own_arguments_are_no_place_for_them() -> None:
    with pytest.raises(SettingsError, match="does not belong in arguments") as caught:
        read_assignments([f"spark.options={NAME}={SECRET}"])
    assert SECRET not in str(caught.value)
    assert read_assignments([f"spark.options={PLAIN}"]) == {"spark.options": [PLAIN]}


def test_a_config_map_is_no_place_for_them(config: Path) -> None:
    rendered = in_this_process("k8s", "settings", "--config", config)
    assert rendered.code == 2
    assert "spark.options" in rendered.err
    assert f"spark.options {NAME} (" in rendered.err
    assert "ConfigMap must not contain a secret" in rendered.err
    assert SECRET not in rendered.out + rendered.err


def test_the_user_and_the_password_of_a_url_are_redacted() -> None:
    flags = {"store.url": "memory://none", "spark.worker_packages": "https://user:pass-word@host/packages.tar.gz"}
    shown = load_settings(flags=flags).shown()
    assert shown["spark.worker_packages"]["value"] == "https://********@host/packages.tar.gz"


def test_the_file_is_for_this_user_only(tmp_path: Path) -> None:
    found = by_file({NAME: SECRET}, tmp_path, {SUBMIT_ARGUMENTS: "--jars x pyspark-shell"})
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert found == {SUBMIT_ARGUMENTS: f"--properties-file {path} --load-spark-defaults --jars x pyspark-shell"}
