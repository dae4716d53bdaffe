"""Keys of the store never go to Spark: workers take them from their own environment."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from sidecar.config import SparkSettings
from sidecar.config.loading import load_settings
from sidecar.engine_ports import Row
from sidecar.errors import SettingsError
from sidecar.snapshots.archived_partition import ArchivedLog
from sidecar.spark.engine import SparkEngine
from sidecar.spark.properties import environment_of, spark_properties
from sidecar.spark.sealing import keep_keys_here, secret_variables
from sidecar.store_settings import S3Settings, StoreSettings

KEYS = {"access_key_id": "the-key", "secret_access_key": "the-secret", "session_token": "the-token"}
PLACE = "TIERED_SIDECAR__STORE__S3__"


def a_task(**keys: str) -> ArchivedLog:
    """Settings of the store lie deep in what is sent."""
    settings = StoreSettings.model_validate({"url": "s3://bucket/a", "s3": {"region": "here", **keys}})
    return ArchivedLog(settings, "key", 7)  # type: ignore[arg-type]


def arrived(value: object) -> object:
    """As a worker unpickles it."""
    keep_keys_here()
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


@pytest.fixture(autouse=True)
def _no_keys_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(copyreg.dispatch_table, S3Settings, raising=False)
    for name in KEYS:
        monkeypatch.delenv(PLACE + name.upper(), raising=False)


def test_what_is_sent_has_no_keys_in_it() -> None:
    keep_keys_here()
    sent = pickle.dumps(a_task(**KEYS))
    assert b"bucket" in sent
    assert not [value for value in KEYS.values() if value.encode() in sent]
    assert arrived(a_task(**KEYS)) == a_task()


def no_answer(_rows: Iterable[Row], _plan: ArchivedLog) -> Iterator[Any]:
    return iter(())


def test_plans_of_a_third_stage_have_no_keys_in_them() -> None:
    """They are pickled one by one, before all that is sent."""
    sent: list[bytes] = []
    rows = SimpleNamespace(mapPartitionsWithIndex=lambda work: sent.append(pickle.dumps(work)))
    context, spark = SimpleNamespace(defaultParallelism=1, runJob=lambda *_: []), SimpleNamespace(death=lambda: None)
    engine = SparkEngine(spark)  # type: ignore[arg-type]
    engine._third(context, nullcontext, rows, no_answer, [a_task(**KEYS)], False)
    assert b"bucket" in sent[0]
    assert not [value for value in KEYS.values() if value.encode() in sent[0]]


def test_a_worker_takes_the_keys_of_its_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the-secret\n")
    monkeypatch.setenv(PLACE + "ACCESS_KEY_ID", "the-key")
    monkeypatch.setenv(PLACE + "SECRET_ACCESS_KEY_FILE", str(tmp_path / "secret"))
    found = arrived(a_task(**KEYS)).store.s3
    assert (found.access_key_id, found.key_files) == (
        SecretStr("the-key"),
        {"secret_access_key_file": tmp_path / "secret"},
    )


def test_a_worker_follows_a_flag_that_has_overridden_a_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(PLACE + name, "inherited")
    files = {f"{name}_file": str(tmp_path / name) for name in ("access_key_id", "secret_access_key")}
    for variable, text in secret_variables(a_task(**files).store.s3).items():
        monkeypatch.setenv(variable, text)
    found = arrived(a_task(**files)).store.s3
    assert (found.access_key_id, {name: str(file) for name, file in found.key_files.items()}) == (None, files)


def test_without_keys_the_sdk_looks_for_them() -> None:
    assert arrived(a_task()) == a_task()
    assert secret_variables(a_task().store.s3) == {}


def test_workers_of_this_machine_have_the_drivers_keys_and_those_of_a_cluster_none(tmp_path: Path) -> None:
    store = a_task(**KEYS).store
    here = environment_of(SparkSettings(), None, {}, store)
    assert {here[PLACE + name.upper()] for name in KEYS} == set(KEYS.values())
    cluster = SparkSettings(master="spark://host:7077", worker_packages="hdfs:///p.tar.gz", worker_python="python3")
    there = environment_of(cluster, None, {"PYSPARK_PYTHON": "other"}, store)
    assert (there["PYSPARK_PYTHON"], [name for name in there if name.startswith(PLACE)]) == ("python3", [])
    properties = spark_properties(cluster, tmp_path, [])
    assert properties["spark.archives"] == "hdfs:///p.tar.gz#tiered-sidecar-packages"
    assert properties["spark.executorEnv.PYTHONPATH"] == "./tiered-sidecar-packages"
    assert "spark.archives" not in spark_properties(SparkSettings(worker_packages="p.tar.gz"), tmp_path, [])


@pytest.mark.parametrize(
    ("option", "fits"),
    [
        ("spark.executorEnv.AWS_SECRET_ACCESS_KEY=x", False),
        ("spark.executorEnv.TIERED_SIDECAR__STORE__S3__ACCESS_KEY_ID=x", False),
        ("spark.executorEnv.TIERED_SIDECAR__STORE__S3__SECRET_ACCESS_KEY_FILE=/keys/secret", True),
        ("spark.executorEnv.AWS_PROFILE=archive", True),
        ("spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY=archive:secret", True),
        ("spark.executor.memory=2g", False),
    ],
)
def test_options_that_would_show_a_secret_are_refused(option: str, fits: bool) -> None:
    flags = {"store.url": "memory://none", "spark.options": [option]}
    if fits:
        assert load_settings(flags=flags).settings.spark.options == (option,)
    else:
        with pytest.raises(SettingsError, match=r"spark\.options"):
            load_settings(flags=flags)


def test_the_limit_of_a_worker_is_per_process_whatever_the_cores_of_an_executor(tmp_path: Path) -> None:
    settings = SparkSettings(
        master="k8s://x",
        worker_memory_bytes=1 << 30,
        options=("spark.executor.cores=4",),
        executor_memory_bytes=1 << 30,
    )
    found = spark_properties(settings, tmp_path, [])
    assert (found["spark.executor.pyspark.memory"], found["spark.executor.memory"]) == ("4096m", "1024m")
    assert found["spark.kubernetes.resource.type"] == "python"
