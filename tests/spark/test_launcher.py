"""How the JVM of a local master starts: directly, with an archive of its classes where there is one that fits."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from producer_state import kernel_library
from sidecar.compaction import library as compaction
from sidecar.config import SparkSettings
from sidecar.logformat import library as logformat
from sidecar.spark import embedded
from sidecar.spark.launcher import archive_path, class_archive, direct_start
from sidecar.spark.properties import spark_properties
from tests.cli.running import in_this_process


def started(settings: SparkSettings, home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    return direct_start(settings, spark_properties(settings, home, []), home, Path("/java"), environment)


def script(home: Path) -> str:
    return (home / "bin" / "spark-submit").read_text()


def test_the_command_has_heap_and_options_of_the_settings(tmp_path: Path) -> None:
    settings = SparkSettings(master="local[2]", driver_memory_bytes=700 << 20)
    assert started(settings, tmp_path, {"XDG_CACHE_HOME": str(tmp_path)}) == {"SPARK_HOME": str(tmp_path)}
    text = script(tmp_path)
    assert text.startswith("#!/bin/sh\nexec /java/bin/java -Xmx700m ")
    assert f"-Dlog4j2.configurationFile=file:{tmp_path}/log4j2.properties" in text
    assert text.endswith('org.apache.spark.deploy.SparkSubmit "$@"\n')
    assert "SharedArchiveFile" not in text
    assert text.index("slf4j-api-") < text.index("/RoaringBitmap-")


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        (SparkSettings(master="spark://host:7077"), {}),
        (SparkSettings(options=("spark.driver.extraClassPath=/more.jar",)), {}),
        (SparkSettings(), {"SPARK_HOME": "/opt/spark"}),
    ],
)
def test_elsewhere_pyspark_starts_it_in_its_own_way(
    tmp_path: Path, settings: SparkSettings, environment: dict[str, str]
) -> None:
    assert started(settings, tmp_path, environment) == {}
    assert list(tmp_path.iterdir()) == []


def test_another_java_and_other_jars_have_another_archive(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    jar, java = tmp_path / "a.jar", tmp_path / "java"
    jar.write_bytes(b"1")
    java.write_bytes(b"1")
    found = [class_archive(str(java), [jar], environment), class_archive(str(java), [], environment)]
    jar.write_bytes(b"12")
    found.append(class_archive(str(java), [jar], environment))
    java.write_bytes(b"12")
    found.append(class_archive(str(java), [jar], environment))
    assert len(set(found)) == 4
    assert {path.parent for path in found} == {tmp_path / "tiered-sidecar"}
    assert class_archive(str(java), [jar], {"HOME": str(tmp_path)}).parent.name == "tiered-sidecar"


def test_layers_of_an_image_round_times_and_the_archive_is_found_all_the_same(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    found = []
    for time_ns in (1_700_000_000_987_654_321, 1_700_000_000_000_000_000, 1_700_000_001_000_000_000):
        os.utime(jar, ns=(time_ns, time_ns))
        found.append(class_archive("java", [jar], {"XDG_CACHE_HOME": str(tmp_path)}))
    assert found[0] == found[1] != found[2]


def test_a_jvm_in_training_is_given_the_time_to_write_its_archive(tmp_path: Path) -> None:
    written = tmp_path / "classes"
    slow = f"cat > {tmp_path / 'stdin'}; sleep 0.5; touch {written}"
    for timeout_s, is_written in ((0.05, False), (60.0, True)):
        process = subprocess.Popen(["sh", "-c", slow], stdin=subprocess.PIPE)
        embedded._end_jvm(SimpleNamespace(proc=process, shutdown=lambda: None), timeout_s)
        assert process.returncode is not None
        assert written.exists() is is_written


@pytest.mark.real
@pytest.mark.slow
def test_prepare_writes_an_archive() -> None:
    """In the user's cache, where `make kernels` has written it, with the same command, before the tests of the gate.

    JVMs map it: tests/spark/test_embedded.py.
    """
    archive = archive_path(None, os.environ)
    was_there = archive.exists()
    outcome = in_this_process("prepare", "--json")
    assert outcome.code == 0
    assert [line["made"] for line in outcome.lines()] == [not was_there]
    assert archive.stat().st_size > 10_000_000
    assert [line["made"] for line in in_this_process("prepare", "--json").lines()] == [False]
    libraries = [library.path() for library in (kernel_library.LIBRARY, logformat.LIBRARY, compaction.LIBRARY)]
    assert all(path.exists() for path in libraries if shutil.which("ld"))


def test_a_damaged_archive_is_no_reason_not_to_start(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    settings, home = SparkSettings(master="local[1]", driver_memory_bytes=512 << 20), tmp_path / "home"
    archive = archive_path(None, environment)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(bytes(100_000))
    variables = direct_start(settings, spark_properties(settings, tmp_path, []), home, None, environment)
    assert f"-XX:SharedArchiveFile={archive}" in script(home)
    done = subprocess.run(
        [home / "bin" / "spark-submit", "--version"],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"version {pyspark.__version__}" in done.stdout + done.stderr
    assert "archive" not in done.stdout + done.stderr
