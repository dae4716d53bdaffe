"""The sidecar's memory limit: what its settings need, never less."""

from __future__ import annotations

import re

import pytest
import yaml

from sidecar.config import SparkSettings
from sidecar.store_settings import S3Settings
from tests.helm.charts import LIBRARY, HelmFailed, rendered

pytestmark = pytest.mark.real

STORE = {"settings.store.url": "s3://bucket/prefix"}
COMPACTING = {"settings.compaction.topics[0]": "accounts"}


def memory_of_the_sidecar(values: dict[str, str]) -> dict[str, str]:
    """Limit and request, as the recipe for a plain StatefulSet has them."""
    objects = rendered({**STORE, **values}, release="archive")
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
        ({**COMPACTING, "sidecar.resources.limits.memory": "3.5G"}, "3.5G"),
    ],
)
def test_memory_is_what_the_settings_need(values: dict[str, str], expected: str) -> None:
    assert memory_of_the_sidecar(values) == {"limits": expected, "requests": expected}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sidecar.resources.limits.memory": "512Mi"}, "is 512Mi, and these settings need 1024 MiB"),
        ({**COMPACTING, "sidecar.resources.limits.memory": "1Gi"}, "is 1Gi, and these settings need 3072 MiB"),
        ({**COMPACTING, "sidecar.resources.limits.memory": "3 GB"}, "3 GB is no amount of memory"),
        ({**COMPACTING, "settings.spark.master": "local[*]"}, "all cores of the node"),
    ],
)
def test_too_little_memory_is_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(HelmFailed, match=re.escape(message)):
        memory_of_the_sidecar(values)


def test_memory_is_reckoned_with_the_defaults_of_the_program() -> None:
    s3, spark = S3Settings(), SparkSettings()
    text = (LIBRARY / "templates" / "_memory.tpl").read_text()
    for number in (s3.part_bytes, s3.concurrency, spark.driver_memory_bytes):
        assert re.search(rf"\b{number}\b", text), number
