"""What is said where Spark cannot start, and with which properties it does."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from sidecar.config import SparkSettings
from sidecar.config.loading import load_settings
from sidecar.errors import SettingsError
from sidecar.spark.java import SparkUnavailable, java_home, require_user_name
from sidecar.spark.properties import spark_properties


def java_that_says(directory: Path, text: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
    return directory


def test_without_java_the_packages_are_named(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match=r"no java on the path.*openjdk-17-jre-headless.*--engine local"):
        java_home(None, {"PATH": str(tmp_path)})
    with pytest.raises(SparkUnavailable, match="does not exist"):
        java_home(tmp_path, {})
    with pytest.raises(SparkUnavailable, match="does not exist"):
        java_home(None, {"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("version", "fits"), [("1.8.0_402", False), ("11.0.22", False), ("17.0.15", True), ("25", True)]
)
def test_an_old_java_is_refused(tmp_path: Path, version: str, fits: bool) -> None:
    home = java_that_says(tmp_path, f'openjdk version "{version}" 2025-04-15')
    if fits:
        assert java_home(None, {"JAVA_HOME": str(home)}) == home
        assert java_home(None, {"PATH": str(home / "bin")}) is None
    else:
        with pytest.raises(SparkUnavailable, match="17 or newer"):
            java_home(home, {})


def test_a_java_that_cannot_be_run(tmp_path: Path) -> None:
    home = java_that_says(tmp_path, "")
    (home / "bin" / "java").write_bytes(b"\x7fELF nothing")
    with pytest.raises(SparkUnavailable, match="cannot be run"):
        java_home(home, {})


def test_a_user_without_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    require_user_name()

    def unknown(user_id: int) -> pwd.struct_passwd:
        raise KeyError(user_id)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(SparkUnavailable, match=f"user id {os.getuid()} has no entry in /etc/passwd"):
        require_user_name()


def test_properties(tmp_path: Path) -> None:
    settings = SparkSettings(
        driver_memory_bytes=512 << 20, worker_memory_bytes=600 << 20, options=("spark.ui.enabled=true", "spark.x=a=b")
    )
    found = spark_properties(settings, tmp_path, ["a", "b"])
    assert found["spark.master"] == "local[*]"
    assert found["spark.driver.memory"] == "512m"
    assert found["spark.executor.pyspark.memory"] == "600m"
    assert found["spark.driver.bindAddress"] == "127.0.0.1"
    assert (found["spark.ui.enabled"], found["spark.x"]) == ("true", "a=b")
    assert "spark.driver.bindAddress" not in spark_properties(SparkSettings(master="yarn"), tmp_path, [])


@pytest.mark.parametrize(
    ("master", "is_local"), [("local", True), ("local[4]", True), ("local-cluster[1,1,1]", False), ("k8s://x", False)]
)
def test_which_masters_are_local(master: str, is_local: bool) -> None:
    assert SparkSettings(master=master).is_local is is_local


@pytest.mark.parametrize("master", ["local[1]", "local[*]", "local[*, 3]", "local[12,1]", "local-cluster[0,0,0]"])
def test_masters_that_spark_starts(master: str) -> None:
    assert load_settings(flags={"store.url": "memory://none", "spark.master": master}).settings.spark.master == master


@pytest.mark.parametrize(
    "master", ["local[0]", "local[00]", "local[-1]", "local[]", "local[2", "local[x]", "local[2,0]"]
)
def test_a_local_master_without_threads_is_refused(master: str) -> None:
    with pytest.raises(SettingsError, match=r"spark\.master \(flag\): expected local\[\*\], or .*, found 'local\["):
        load_settings(flags={"store.url": "memory://none", "spark.master": master})


@pytest.mark.parametrize("option", ["spark.x", "x=y", "spark.master=yarn"])
def test_options_are_checked(option: str) -> None:
    with pytest.raises(SettingsError, match=r"spark\.options"):
        load_settings(flags={"store.url": "memory://none", "spark.options": [option]})
