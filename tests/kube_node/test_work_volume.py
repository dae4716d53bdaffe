"""What happens when the sidecar's work files fill their volume."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kube_node.brokers import BROKER, SIDECAR, Brokers, wait_until
from tests.servers.kubernetes import KubectlFailed

pytestmark = [pytest.mark.real, pytest.mark.node]
WORK = "/var/lib/tiered-sidecar"
SMALL_WORK_VOLUME = """
spec:
  template:
    spec:
      volumes:
        - name: tiered-sidecar-work
          emptyDir: {sizeLimit: 64Mi}
"""
VOLUME_BYTES = 64 << 20
FILL = f"head -c 100M /dev/zero > {WORK}/filler"


def test_an_overflowing_empty_dir_evicts_the_pod_which_comes_back(archived_broker: Brokers) -> None:
    """As the documentation warns: the chart refuses such a limit, which a patch can set."""
    archived_broker.patch_stateful_set(SMALL_WORK_VOLUME)
    archived_broker.wait_ready()
    uid = archived_broker.pod()["metadata"]["uid"]
    in_sidecar(archived_broker, FILL)
    wait_until(lambda: archived_broker.pod()["metadata"]["uid"] != uid, 180, "the pod is evicted")
    events = archived_broker.namespace.kubectl("get", "events", "--field-selector=reason=Evicted")
    assert "tiered-sidecar-work" in events
    archived_broker.wait_ready()
    archived_broker.produce(2100)
    archived_broker.wait_archived()
    archived_broker.verify()


def test_a_full_volume_of_its_own_leaves_the_broker_alone(
    start_brokers: Callable[[int], Brokers], small_disk: Path
) -> None:
    broker = start_brokers(1)
    broker.add_volume(small_disk, "tiered-sidecar-work-kafka-0", "kafka-0-tiered-sidecar-work")
    claim = "sidecar.workVolume.ephemeral.volumeClaimTemplate.spec"
    broker.install_chart(
        f"{claim}.accessModes={{ReadWriteOnce}}",
        f"{claim}.resources.requests.storage=1Gi",
        f"{claim}.storageClassName=",
    )
    broker.add_sidecar()
    broker.wait_ready()
    broker.produce(2100)
    broker.wait_archived()
    pod = broker.pod()["metadata"]["uid"]
    with pytest.raises(KubectlFailed, match="No space left"):
        in_sidecar(broker, FILL)
    broker.produce(4200)
    # The journal is there, too.
    wait_until(lambda: broker.partition()["state"] == "stopped", 60, "the sidecar says that it cannot archive")
    assert "free space below run.state_dir" in broker.partition()["reason"]
    assert broker.pod()["metadata"]["uid"] == pod
    assert broker.is_ready()
    in_sidecar(broker, f"rm {WORK}/filler")
    broker.wait_archived()
    for container in (BROKER, SIDECAR):
        assert broker.container(container)["restartCount"] == 0
    broker.verify()


def in_sidecar(broker: Brokers, script: str) -> None:
    """Raises KubectlFailed with what the shell said."""
    broker.namespace.kubectl("exec", "kafka-0", "-c", SIDECAR, "--", "sh", "-c", script)


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of `VOLUME_BYTES`."""
    path = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={VOLUME_BYTES}", "tmpfs", str(path)], check=True)
    yield path
    # Lazily: a pod that ends may use it still.
    subprocess.run(["umount", "--lazy", str(path)], check=True)
