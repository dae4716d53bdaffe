"""The sidecar's memory limit: what its settings need, never less."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from sidecar.config import load_settings
from sidecar.doctor.machine import memory_needed_bytes
from sidecar.ports import MIB
from tests.helm.charts import NEEDED, HelmFailed, rendered

pytestmark = pytest.mark.real

COMPACTING = {"settings.compaction.topics[0]": "accounts"}


def memory_of_the_sidecar(values: dict[str, str]) -> dict[str, str]:
    """Limit and request, as the recipe for a plain StatefulSet has them."""
    objects = rendered({**NEEDED, **values}, release="archive")
    (config_map,) = (found for found in objects if found["metadata"]["name"] == "archive-tiered-sidecar-recipes")
    spec = yaml.safe_load(config_map["data"]["plain.yaml"])["spec"]["template"]["spec"]
    (sidecar,) = (one for one in spec["initContainers"] if one["name"] == "tiered-sidecar")
    return {name: found["memory"] for name, found in sidecar["resources"].items()}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "1024Mi"),
        ({"settings.store.s3.part_bytes": "67108864", "settings.store.s3.concurrency": "8"}, "1536Mi"),
        (COMPACTING, "3072Mi"),
        (
            {**COMPACTING, "settings.spark.master": "local[4]", "settings.spark.driver_memory_bytes": "536870912"},
            "3328Mi",
        ),
        ({**COMPACTING, "settings.spark.master": "spark://master:7077"}, "2560Mi"),
        ({**COMPACTING, "settings.spark.engine": "local"}, "1024Mi"),
        ({**COMPACTING, "settings.compaction.enabled": "false"}, "1024Mi"),
        ({**COMPACTING, "settings.spark.worker_memory_bytes": "1073741824"}, "4608Mi"),
        ({**COMPACTING, "sidecar.resources.limits.memory": "3.5G"}, "3.5G"),
        ({"sidecar.resources.limits.memory": "320Mi"}, "320Mi"),
        ({"sidecar.resources.requests.memory": "2Gi"}, "2Gi"),
        ({"sidecar.resources": "null"}, "1024Mi"),
    ],
)
def test_memory_is_what_the_settings_need(values: dict[str, str], expected: str) -> None:
    assert memory_of_the_sidecar(values) == {"limits": expected, "requests": expected}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sidecar.resources.limits.memory": "319Mi"}, "is 319Mi, and these settings need 320 MiB"),
        ({**COMPACTING, "sidecar.resources.limits.memory": "1Gi"}, "is 1Gi, and these settings need 2368 MiB"),
        (
            {"sidecar.resources.limits.memory": "1Gi", "sidecar.resources.requests.memory": "2Gi"},
            "requests.memory is 2Gi, more than limits.memory, 1Gi",
        ),
        ({**COMPACTING, "sidecar.resources.limits.memory": "3 GB"}, "3 GB is not a size"),
        ({**COMPACTING, "settings.spark.master": "local[*]"}, "all cores of the node"),
    ],
)
def test_too_little_memory_is_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(HelmFailed, match=re.escape(message)):
        memory_of_the_sidecar(values)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"settings.store.s3.part_bytes": "67108864", "settings.store.s3.concurrency": "8"},
        COMPACTING,
        {**COMPACTING, "settings.spark.master": "local[4]", "settings.spark.driver_memory_bytes": "536870912"},
        {**COMPACTING, "settings.spark.master": "local", "settings.spark.worker_memory_bytes": "1073741824"},
        {**COMPACTING, "settings.spark.master": "spark://master:7077"},
        {**COMPACTING, "settings.spark.engine": "local"},
        {**COMPACTING, "settings.compaction.enabled": "false"},
    ],
)
def test_the_chart_and_the_doctor_reckon_the_same(values: dict[str, str], tmp_path: Path) -> None:
    objects = rendered({**NEEDED, **values}, release="archive")
    (config_map,) = (found for found in objects if found["metadata"]["name"] == "archive-tiered-sidecar-settings")
    file = tmp_path / "settings.yaml"
    file.write_text(config_map["data"]["settings.yaml"])
    settings = load_settings(config_file=file).settings
    needed_mebibytes = memory_needed_bytes(settings, cores=64) // MIB
    assert memory_of_the_sidecar({**values, "sidecar.resources.limits.memory": f"{needed_mebibytes}Mi"})
    with pytest.raises(HelmFailed, match=f"these settings need {needed_mebibytes} MiB"):
        memory_of_the_sidecar({**values, "sidecar.resources.limits.memory": f"{needed_mebibytes - 1}Mi"})
