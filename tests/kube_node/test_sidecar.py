"""What happens to a sidecar on a node, and that its broker goes on meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kube_node.brokers import BROKER, SIDECAR, Brokers, wait_until

pytestmark = [pytest.mark.real, pytest.mark.node]
START_LIMIT_S = 180.0
KUBELET_LIMIT_S = 150.0
"""Until files of a changed ConfigMap or Secret are changed, and the sidecar has seen it."""


def test_a_deleted_pod_leaves_no_finished_segment_behind(archived_broker: Brokers) -> None:
    archived_broker.produce(4200)
    before = archived_broker.pod()["metadata"]["uid"]
    archived_broker.namespace.kubectl("delete", "pod", "kafka-0", "--wait=false")
    wait_until(lambda: archived_broker.pod()["metadata"]["uid"] != before, 90, "the pod is gone, and another one came")
    # Nothing can archive for the new pod yet: its image starts in seconds.
    ends = {partition: offsets[-1] for partition, offsets in archived_broker.base_offsets().items()}
    assert {partition: end for partition, (_, end) in archived_broker.archived().items()} == ends
    archived_broker.wait_ready()
    archived_broker.produce(2100)
    archived_broker.wait_archived()
    archived_broker.verify()


def test_the_broker_starts_without_the_settings_which_may_come_late(start_brokers: Callable[[int], Brokers]) -> None:
    broker = start_brokers(1)
    broker.install_chart()
    settings = f"configmap/{broker.namespace.release}-tiered-sidecar-settings"
    saved = broker.namespace.kubectl("get", settings, "--output=json")
    broker.namespace.kubectl("delete", settings)
    broker.add_sidecar()
    broker.wait_ready(timeout_s=START_LIMIT_S)
    wait_until(lambda: broker.http("/healthz")[0] == 200, 60, "/healthz answers")
    code, answer = broker.http("/readyz")
    assert code == 503
    assert answer.startswith("start: cannot read settings file"), answer
    assert broker.http("/")[0] == 200
    broker.produce(2100)
    created = json.loads(saved)
    created["metadata"] = {"name": created["metadata"]["name"]}
    broker.namespace.apply(json.dumps(created))
    wait_until(lambda: broker.http("/readyz")[0] == 200, KUBELET_LIMIT_S, "the sidecar starts")
    broker.wait_archived()
    assert broker.container(SIDECAR)["restartCount"] == 0
    assert broker.is_ready()
    broker.verify()


def test_changed_settings_are_read_in_the_running_pod(archived_broker: Brokers) -> None:
    before = archived_broker.container(SIDECAR)
    generation = archived_broker.status()["config"]["generation"]
    archived_broker.install_chart("settings.topics.exclude={later}", command="upgrade")
    wait_until(
        lambda: archived_broker.status()["config"]["generation"] > generation, KUBELET_LIMIT_S, "the settings are read"
    )
    archived_broker.produce(2100, "later")
    archived_broker.produce(2100)
    archived_broker.wait_archived()
    assert not archived_broker.archived("later")
    config = archived_broker.status()["config"]
    assert (config["stale"], config["refused"]) == (False, None)
    after = archived_broker.container(SIDECAR)
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    archived_broker.verify()


def test_replaced_keys_are_read_in_the_running_pod(archived_broker: Brokers) -> None:
    before = archived_broker.container(SIDECAR)
    archived_broker.set_keys("second-key", "second-secret")
    # From now on the first keys are refused.
    archived_broker.restart_store()
    archived_broker.produce(3200)
    archived_broker.wait_archived(timeout_s=KUBELET_LIMIT_S)
    after = archived_broker.container(SIDECAR)
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    assert "store_keys_changed" in archived_broker.namespace.kubectl("logs", "kafka-0", "-c", SIDECAR)
    assert archived_broker.is_ready()
    archived_broker.verify()


def test_a_sidecar_that_is_killed_for_its_memory_starts_again_alone(archived_broker: Brokers) -> None:
    before = archived_broker.container(SIDECAR)
    memory = control_group_of(before["containerID"])
    broker = archived_broker.container(BROKER)
    archived_broker.produce(8400)

    def is_killed() -> bool:
        # It has no control group any more when it is killed.
        with suppress(FileNotFoundError):
            squeeze(memory)
        return bool(archived_broker.container(SIDECAR)["restartCount"])

    wait_until(is_killed, 120, "the sidecar is killed")
    assert archived_broker.container(SIDECAR)["lastState"]["terminated"]["reason"] == "OOMKilled"
    archived_broker.wait_ready()
    after = archived_broker.container(BROKER)
    assert (after["containerID"], after["restartCount"]) == (broker["containerID"], 0)
    archived_broker.produce(2100)
    archived_broker.wait_archived()
    archived_broker.verify()


COMPACTING = (
    "settings.compaction.topics[0].pattern=orders",
    "settings.compaction.topics[0].ignore_cleanup_policy=true",
    "settings.compaction.check_interval_s=1",
    "settings.spark.engine=local",
    # It takes long enough to be killed in it.
    "settings.store.read_bytes_per_s=1048576",
)
BY_WHEN = {
    # So that all segments are archived before the first compaction begins.
    "after_upload": "settings.compaction.topics[0].min_compaction_lag_ms=30000",
    "before_upload": "settings.compaction.topics[0].when=before_upload",
}


@pytest.mark.parametrize("when", BY_WHEN)
def test_a_sidecar_that_is_killed_while_it_compacts_compacts_after_its_start(
    when: str, start_brokers: Callable[[int], Brokers]
) -> None:
    broker = start_brokers(1)
    broker.install_chart(*COMPACTING, BY_WHEN[when])
    broker.add_sidecar()
    broker.wait_ready()
    before = broker.container(BROKER)
    memory = control_group_of(broker.container(SIDECAR)["containerID"])
    broker.produce(10500, keys=100)
    if when == "after_upload":
        broker.wait_archived()

    def is_killed() -> bool:
        if broker.container(SIDECAR)["restartCount"]:
            return True
        if is_compacting(broker, when):
            squeeze(memory)
        return False

    wait_until(is_killed, 120, "the sidecar is killed")
    assert broker.container(SIDECAR)["lastState"]["terminated"]["reason"] == "OOMKilled"
    log = broker.namespace.kubectl("logs", "kafka-0", "-c", SIDECAR, "--previous")
    events = [json.loads(line)["event"] for line in log.splitlines()]
    if when == "after_upload":
        assert events[-1] == "compaction_started"
    else:
        assert "group_compacted" not in events
    broker.wait_ready()

    def is_compacted() -> bool:
        (found,) = broker.command("status")
        return bool(found["clean_end_offset"] == found["end_offset"])

    broker.wait_archived()
    wait_until(is_compacted, 60, "the whole archive is compacted")
    assert broker.container(SIDECAR)["restartCount"] == 1
    after = broker.container(BROKER)
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    broker.verify()


def is_compacting(broker: Brokers, when: str) -> bool:
    """By its metric; before the upload by the directory of the running job."""
    if when == "after_upload":
        return "\ntiered_sidecar_compaction_running 1.0\n" in broker.http("/metrics")[1]
    find = ("find", "/var/lib/tiered-sidecar/staging", "-name", "0*")
    return bool(broker.namespace.kubectl("exec", "kafka-0", "-c", SIDECAR, "--", *find))


def squeeze(memory: Path) -> None:
    """Limits a control group to what it uses just now, and hardly any more: less the kernel refuses."""
    used_bytes = int((memory / "memory.usage_in_bytes").read_text())
    for limit_bytes in range(used_bytes - (16 << 20), used_bytes + (1 << 20), 128 << 10):
        with suppress(OSError):
            (memory / "memory.limit_in_bytes").write_text(str(limit_bytes))
            return


def control_group_of(container_id: str) -> Path:
    """Of a running container, in the memory controller."""
    (found,) = Path("/sys/fs/cgroup/memory/kubepods").rglob(container_id.rpartition("/")[2])
    return found
