"""The back-fill Job on the volume of a stopped broker, and the sidecar that goes on after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kube_node.brokers import Brokers, wait_until

pytestmark = [pytest.mark.real, pytest.mark.node]


def test_a_job_archives_the_volume_of_a_stopped_broker(start_brokers: Callable[[int], Brokers]) -> None:
    broker = start_brokers(1)
    broker.produce(5300)
    broker.namespace.kubectl("scale", "statefulset", "kafka", "--replicas=0")
    broker.namespace.kubectl("wait", "--for=delete", "pod/kafka-0", "--timeout=90s")
    job = [
        "backfill.enabled=true",
        "backfill.brokers[0].name=zero",
        "backfill.brokers[0].claim=data-kafka-0",
        "backfill.brokers[0].logDirs={/data/logs}",
        "backfill.runAsUser=1000",
        "backfill.runAsGroup=1000",
        "backfill.resources.requests.cpu=100m",
        "networkPolicy.enabled=true",
        "networkPolicy.storePorts={7070}",
    ]
    broker.install_chart(*job, leaders="settings.broker.assume_leader=true")
    broker.namespace.kubectl("wait", "--for=condition=Complete", "job", "--all", "--timeout=240s")
    wanted = {partition: (0, offsets[-1]) for partition, offsets in broker.base_offsets().items()}
    assert broker.archived() == wanted
    broker.verify()
    broker.install_chart(command="upgrade")
    broker.add_sidecar()
    broker.namespace.kubectl("scale", "statefulset", "kafka", "--replicas=1")
    wait_until(broker.is_ready, 180, "the broker is back")
    broker.produce(2100)
    broker.wait_archived()
    broker.verify()
