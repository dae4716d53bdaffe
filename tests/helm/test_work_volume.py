"""The volume for work files: as large as compaction may need, for an emptyDir that is overrun gets the broker's pod evicted.

And the request of ephemeral storage: a node whose disk fills evicts pods that use more than they request first.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.config import CompactionSettings, load_settings
from sidecar.doctor.machine import work_needed_bytes
from sidecar.ports import MIB
from tests.helm.charts import CHART, NEEDED, ROOT, HelmFailed, rendered
from tests.helm.test_charts import pods_of

pytestmark = pytest.mark.real

COMPACTING = {"settings.compaction.topics[0].pattern": "accounts"}
ELSEWHERE = {
    "settings.compaction.staging_dir": "/elsewhere",
    "sidecar.extraVolumeMounts[0].name": "scratch",
    "sidecar.extraVolumeMounts[0].mountPath": "/elsewhere",
}
JOB_MEBIBYTES = CompactionSettings().max_job_bytes // MIB


def work_volume(values: dict[str, str]) -> dict[str, Any]:
    """As the recipe for a plain StatefulSet has it."""
    (config_map,) = (
        found for found in rendered({**NEEDED, **values}) if found["metadata"]["name"].endswith("-recipes")
    )
    volumes = yaml.safe_load(config_map["data"]["plain.yaml"])["spec"]["template"]["spec"]["volumes"]
    (volume,) = (found for found in volumes if found.pop("name") == "tiered-sidecar-work")
    return dict(volume)


@pytest.mark.parametrize(
    ("values", "expected_mebibytes"),
    [
        ({}, 10240),
        (COMPACTING, 1024 + 2 * JOB_MEBIBYTES),
        ({**COMPACTING, "settings.compaction.when": "before_upload"}, 1024 + 3 * JOB_MEBIBYTES),
        ({**COMPACTING, "settings.compaction.topics[0].when": "before_upload"}, 1024 + 3 * JOB_MEBIBYTES),
        ({**COMPACTING, "settings.spark.engine": "local"}, 1024 + JOB_MEBIBYTES),
        ({**COMPACTING, "settings.compaction.enabled": "false"}, 10240),
        ({**COMPACTING, "settings.compaction.max_job_bytes": str(8192 * MIB)}, 1024 + 2 * 8192),
        ({**COMPACTING, "settings.compaction.max_job_bytes": str(1024 * MIB)}, 10240),
        ({**COMPACTING, "settings.compaction.max_staging_bytes": str(20480 * MIB)}, 1024 + 20480 + JOB_MEBIBYTES),
        ({**COMPACTING, **ELSEWHERE}, 1024 + JOB_MEBIBYTES),
    ],
)
def test_an_empty_dir_holds_what_compaction_may_need(values: dict[str, str], expected_mebibytes: int) -> None:
    assert work_volume(values) == {"emptyDir": {"sizeLimit": f"{expected_mebibytes}Mi"}}


@pytest.mark.parametrize(
    "values",
    [
        COMPACTING,
        {**COMPACTING, "settings.compaction.when": "before_upload"},
        {**COMPACTING, "settings.compaction.max_staging_bytes": str(20480 * MIB)},
        {**COMPACTING, "settings.compaction.topics[0].when": "before_upload", "settings.spark.engine": "local"},
    ],
)
def test_the_chart_and_the_program_reckon_the_same(values: dict[str, str], tmp_path: Path) -> None:
    objects = {found["metadata"]["name"]: found for found in rendered({**NEEDED, **values})}
    file = tmp_path / "settings.yaml"
    file.write_text(objects["release-tiered-sidecar-settings"]["data"]["settings.yaml"])
    needed_mebibytes = work_needed_bytes(load_settings(config_file=file).settings) // MIB
    assert work_volume(values) == {"emptyDir": {"sizeLimit": f"{needed_mebibytes}Mi"}}


def test_too_small_an_empty_dir_is_refused() -> None:
    needed_mebibytes = 1024 + 2 * JOB_MEBIBYTES
    given = {**COMPACTING, "sidecar.workSizeLimit": f"{needed_mebibytes}Mi"}
    assert work_volume(given) == {"emptyDir": {"sizeLimit": f"{needed_mebibytes}Mi"}}
    message = f"sidecar.workSizeLimit is 10Gi, and compaction may need {needed_mebibytes} MiB"
    with pytest.raises(HelmFailed, match=re.escape(message)):
        work_volume({**COMPACTING, "sidecar.workSizeLimit": "10Gi"})


def test_a_volume_of_its_own_takes_its_place() -> None:
    claim = "sidecar.workVolume.ephemeral.volumeClaimTemplate.spec"
    given = {f"{claim}.resources.requests.storage": "64Gi", f"{claim}.accessModes[0]": "ReadWriteOnce"}
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Gi"}}}}
    assert work_volume({**COMPACTING, **given}) == {"ephemeral": {"volumeClaimTemplate": template}}


def requests(pod: dict[str, Any]) -> dict[str, str]:
    """Ephemeral storage that the containers of a pod request, by name; none may have a limit."""
    containers = [*pod.get("initContainers", ()), *pod.get("containers", ())]
    assert not any("ephemeral-storage" in found["resources"].get("limits", {}) for found in containers)
    return {found["name"]: found["resources"]["requests"].get("ephemeral-storage", "") for found in containers}


def of_the_recipe(values: dict[str, str]) -> dict[str, str]:
    (config_map,) = (
        found for found in rendered({**NEEDED, **values}) if found["metadata"]["name"].endswith("-recipes")
    )
    return requests(yaml.safe_load(config_map["data"]["plain.yaml"])["spec"]["template"]["spec"])


OWN_CLAIM = {"sidecar.workVolume.ephemeral.volumeClaimTemplate.spec.resources.requests.storage": "64Gi"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "2560Mi"),
        (COMPACTING, f"{2560 + 2 * JOB_MEBIBYTES}Mi"),
        ({**COMPACTING, "settings.compaction.max_job_bytes": str(1024 * MIB)}, "4608Mi"),
        ({**COMPACTING, **OWN_CLAIM}, "1536Mi"),
        ({"sidecar.workVolume.emptyDir.sizeLimit": "64Gi"}, "2560Mi"),
        ({"sidecar.tmpSizeLimit": "256Mi"}, "1792Mi"),
        ({"sidecar.native": "false"}, "2560Mi"),
        ({"sidecar.resources.requests.ephemeral-storage": "20Gi"}, "20Gi"),
        ({"sidecar.resources.requests.ephemeral-storage": "0"}, "0"),
        ({"sidecar.resources": "null"}, "2560Mi"),
    ],
)
def test_a_pod_requests_the_ephemeral_storage_that_it_may_use(values: dict[str, str], expected: str) -> None:
    assert str(of_the_recipe(values)["tiered-sidecar"]) == expected


def test_every_container_with_work_files_requests_it(tmp_path: Path) -> None:
    heal = "heal-producer-snapshots"
    assert of_the_recipe({"heal.enabled": "true"}) == {heal: "1536Mi", "tiered-sidecar": "2560Mi"}
    case = CHART / "ci" / "strimzi-values.yaml"
    (template,) = (one["template"] for one in rendered(files=[case]) if one["kind"] == "PodTemplate")
    injected = requests({"initContainers": template["spec"]["initContainers"]})
    assert injected[heal] == "1536Mi"
    assert injected["tiered-sidecar"].endswith("Mi")
    backfill = [CHART / "ci" / "backfill-once-values.yaml"]
    (job,) = (pod for pod in pods_of(rendered(COMPACTING, backfill)) if pod["containers"])
    assert requests(job) == {"backfill": "2560Mi"}
    demo = [requests(pod) for pod in pods_of(rendered(files=[CHART / "ci" / "demo-values.yaml"]))]
    assert {"tiered-sidecar": "2560Mi", "kafka": "1Gi"} in demo


def test_a_limit_that_would_evict_the_broker_is_refused() -> None:
    limit = "sidecar.resources.limits.ephemeral-storage"
    with pytest.raises(HelmFailed, match=re.escape("limits.ephemeral-storage is 2Gi, and 2560 MiB may be needed")):
        rendered({**NEEDED, limit: "2Gi"})
    with pytest.raises(HelmFailed, match=re.escape("limits.ephemeral-storage is 2Gi, and 2560 MiB may be needed")):
        rendered({**NEEDED, limit: "2Gi", "sidecar.resources.requests.ephemeral-storage": "1Gi"})
    rendered({**NEEDED, limit: "2560Mi"})


def test_the_docs_set_before_compaction_what_it_needs() -> None:
    text = (ROOT / "docs" / "how-to" / "install-on-kubernetes.md").read_text(encoding="utf-8")
    step = text.partition("**To turn compaction on, roll the pods.**")[2].partition("\n2. ")[0]
    values = dict(re.findall(r"`(sidecar[.a-z-]+[A-Za-z.-]*): ([0-9]+[GM]i)`", step))
    assert len(values) == 3
    assert of_the_recipe(values) == of_the_recipe(COMPACTING) == of_the_recipe({**COMPACTING, **values})
    with_a_claim = of_the_recipe({**COMPACTING, **OWN_CLAIM})["tiered-sidecar"]
    state_on_a_claim = text.partition("**State on a claim.**")[2].partition("\n\n")[0]
    assert f"`sidecar.resources.requests.ephemeral-storage: {with_a_claim}`" in state_on_a_claim
