"""A StatefulSet of brokers with a store beside it, to which tests add the sidecar by the chart and its recipe."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import yaml
from confluent_kafka import KafkaException, Producer

from sidecar.randomness import SystemRandomness
from tests.helm.charts import ROOT
from tests.kube.cluster import Namespace
from tests.kube_node.build import KAFKA_IMAGE, S3_IMAGE
from tests.servers.kubernetes import KubectlFailed
from tests.servers.kubernetes_node import KubernetesNode

TOPIC = "orders"
SIDECAR, BROKER = "tiered-sidecar", "kafka"
ARCHIVE = "s3://archive/cluster"
ASK_BROKERS = "settings.broker.connection.bootstrap_servers={localhost:9092,kafka:9092}"
KEYS = ("first-key", "first-secret")
RECORD_BYTES = 1000
_POLL_S = 0.5
_ANSWER_TIMEOUT_S = 10.0
_COMMAND_TIMEOUT_S = 300.0
_NUMBER_OF_SIDECAR_PORT = 9308


def wait_until(holds: Callable[[], object], timeout_s: float, what: str) -> float:
    """Seconds until it held. An error of kubectl or of a connection counts as not yet. Raises TimeoutError."""
    started_s = time.monotonic()  # noqa: TID251 - a real node has no other clock
    last: object = None
    while True:
        took_s = time.monotonic() - started_s  # noqa: TID251
        try:
            last = holds()
            if last:
                return took_s
        except (KubectlFailed, OSError, KafkaException) as error:
            last = error
        if took_s > timeout_s:
            raise TimeoutError(f"not within {timeout_s:.0f} s: {what} (last: {last!r})")
        time.sleep(_POLL_S)  # noqa: TID251


@dataclass
class Deliveries:
    """Counts records that all replicas in sync have, and those that failed."""

    acknowledged: int = 0
    failed: int = 0

    def count(self, error: object, _: object) -> None:
        """Called by the producer for each record."""
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1


@dataclass(frozen=True)
class Brokers:
    """`replicas` brokers in a namespace; each has its volume below `directory`, the store has `objects` there."""

    node: KubernetesNode
    namespace: Namespace
    directory: Path
    replicas: int

    def start(self) -> None:
        """Creates everything but the sidecars, and returns at once."""
        self.set_keys(*KEYS)
        claims = {"objects": "objects"} | {f"data-{number}": f"data-kafka-{number}" for number in range(self.replicas)}
        for name, claim in claims.items():
            (self.directory / name).mkdir()
            self.add_volume(self.directory / name, name, claim)
        # A bucket is a directory. Pods run as 1000.
        (self.directory / "objects/archive").mkdir()
        os.chown(self.directory / "objects/archive", 1000, 1000)
        text = Template(Path(__file__).with_name("brokers.yaml").read_text()).substitute(
            directory=self.directory,
            s3_image=S3_IMAGE,
            kafka_image=KAFKA_IMAGE,
            replicas=self.replicas,
            min_in_sync=min(self.replicas, 2),
            voters=",".join(f"{number}@kafka-{number}.kafka:9093" for number in range(self.replicas)),
        )
        self.namespace.apply(text)

    def add_volume(self, place: Path, name: str, claim: str) -> None:
        """A directory of the node as the volume of a claim."""
        namespace = self.namespace.name
        on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node1"]}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{namespace}-{name}", "labels": {"namespace": namespace}},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": namespace, "name": claim},
                "local": {"path": str(place)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
            },
        }
        self.namespace.apply(yaml.safe_dump(volume))

    def install_chart(self, *values: str, leaders: str = ASK_BROKERS, command: str = "install") -> None:
        """The chart, with settings for these brokers and this store. Args: leaders: the value that says who they are."""
        given = [
            "image.repository=localhost/tiered-sidecar",
            "image.tag=test",
            "recipes.for=plain",
            f"settings.store.url={ARCHIVE}",
            "settings.store.s3.endpoint_url=http://s3:7070",
            "settings.store.s3.region=us-east-1",
            "settings.store.s3.addressing_style=path",
            leaders,
            "settings.broker.settle_ms=1000",
            "settings.broker.snapshot_grace_ms=1000",
            "settings.run.scan_interval_s=5",
            "s3.existingSecret=store-keys",
            *values,
        ]
        self.namespace.install(*(word for value in given for word in ("--set", value)), command=command)

    def add_sidecar(self) -> None:
        """Patches the StatefulSet with the recipe of the installed chart, as the docs say. The brokers roll."""
        name = f"configmap/{self.namespace.release}-tiered-sidecar-recipes"
        recipes = json.loads(self.namespace.kubectl("get", name, "--output=json"))["data"]
        self.patch_stateful_set(next(text for name, text in recipes.items() if name.startswith("plain")))

    def patch_stateful_set(self, text: str) -> None:
        """A strategic merge patch. The brokers roll."""
        self.namespace.kubectl("patch", "statefulset", "kafka", "--patch-file=/dev/stdin", stdin=text)

    def set_keys(self, access_key_id: str, secret_access_key: str) -> None:
        """The Secret of the store and of the sidecars. Both have read it when they next look."""
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "store-keys"},
            "stringData": {"access-key-id": access_key_id, "secret-access-key": secret_access_key},
        }
        self.namespace.apply(yaml.safe_dump(secret))

    def restart_store(self) -> None:
        """With the keys that the Secret has now."""
        self.namespace.kubectl("rollout", "restart", "deployment/s3")
        self.namespace.kubectl("rollout", "status", "deployment/s3", "--timeout=120s")

    def pod(self, number: int = 0) -> dict[str, Any]:
        """The pod as the API server has it. Raises KubectlFailed if there is none."""
        found: dict[str, Any] = json.loads(self.namespace.kubectl("get", "pod", f"kafka-{number}", "--output=json"))
        return found

    def container(self, name: str, number: int = 0) -> dict[str, Any]:
        """Its status; a native sidecar is an init container."""
        status = self.pod(number)["status"]
        found = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        return next(one for one in found if one["name"] == name)

    def is_ready(self, number: int = 0) -> bool:
        """Whether the pod is, and so in the Service's endpoints."""
        pod = self.pod(number)
        conditions = pod["status"].get("conditions", ())
        is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        return is_ready and "deletionTimestamp" not in pod["metadata"]

    def wait_ready(self, numbers: Iterable[int] | None = None, timeout_s: float = 300.0) -> float:
        """Seconds until all, or these, pods are of the newest template, and ready."""
        asked = range(self.replicas) if numbers is None else numbers

        def ready() -> bool:
            newest = json.loads(self.namespace.kubectl("get", "statefulset", "kafka", "--output=json"))["status"]
            revision = newest.get("updateRevision")
            return all(
                self.is_ready(number) and self.pod(number)["metadata"]["labels"]["controller-revision-hash"] == revision
                for number in asked
            )

        return wait_until(ready, timeout_s, f"brokers {list(asked)} are ready")

    def http(self, path: str, number: int = 0) -> tuple[int, str]:
        """Status and text of what the sidecar answers. Raises OSError if it does not."""
        address = self.pod(number)["status"].get("podIP")
        if address is None:
            raise ConnectionError(f"kafka-{number} has no address")
        url = f"http://{address}:{_NUMBER_OF_SIDECAR_PORT}{path}"
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def status(self, number: int = 0) -> dict[str, Any]:
        """What `/status` answers."""
        found: dict[str, Any] = json.loads(self.http("/status", number)[1])
        return found

    def partition(self) -> dict[str, Any]:
        """What `/status` of the first broker has for the first partition of `TOPIC`. Raises StopIteration if nothing."""
        found: dict[str, Any] = next(one for one in self.status()["partitions"] if one["topic"] == TOPIC)
        return found

    def bootstrap_servers(self) -> str:
        """Addresses of all brokers that have one."""
        addresses = []
        for number in range(self.replicas):
            with suppress(KubectlFailed):
                addresses.append(self.pod(number)["status"].get("podIP"))
        return ",".join(f"{address}:9092" for address in addresses if address)

    def produce(self, records: int, topic: str = TOPIC, keys: int | None = None) -> None:
        """Returns when all brokers in sync have all records, which have `RECORD_BYTES` each. Raises KafkaException.

        Args: keys: so many keys take turns; without, the records have none.
        """
        producer, deliveries = self.producer(), Deliveries()
        for number in range(records):
            key = None if keys is None else str(number % keys)
            value = SystemRandomness().random_bytes(RECORD_BYTES)
            producer.produce(topic, value, key, on_delivery=deliveries.count)
            producer.poll(0)
        left = producer.flush(_COMMAND_TIMEOUT_S)
        if deliveries.acknowledged != records:
            raise KafkaException(f"{left} records were not sent, {deliveries.failed} failed")

    def producer(self) -> Producer:
        """One that waits for all replicas, and goes on while brokers restart."""
        return Producer(
            {
                "bootstrap.servers": self.bootstrap_servers(),
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 240_000,
                "log_level": 2,
            }
        )

    def base_offsets(self, number: int = 0, topic: str = TOPIC) -> dict[int, list[int]]:
        """By partition: the first offsets of the segment files on a broker's volume. The last is that of the active segment."""
        logs = self.directory / f"data-{number}"
        return {
            int(place.name.rpartition("-")[2]): sorted(int(path.stem) for path in place.glob("*.log"))
            for place in logs.glob(f"*/{topic}-*")
        }

    def archived(self, topic: str = TOPIC) -> dict[int, tuple[int, int]]:
        """By partition: start and end offset in the archive. Raises AssertionError if there is a gap or a problem."""
        found = {}
        for line in self.command("status"):
            if line["kind"] == "partition_status" and line["topic"] == topic:
                assert not line["holes"], line
                assert line["problem"] is None, line
                found[line["partition"]] = (line["start_offset"], line["end_offset"])
        return found

    def wait_archived(self, number: int = 0, timeout_s: float = 120.0) -> float:
        """Seconds until the archive ends where the active segments of this broker begin."""

        def everything_is() -> bool:
            wanted = {partition: (0, offsets[-1]) for partition, offsets in self.base_offsets(number).items()}
            return self.archived() == wanted and all(end > 0 for _, end in wanted.values())

        return wait_until(everything_is, timeout_s, f"archive {self.base_offsets(number)}")

    def verify(self) -> None:
        """Every byte of the archive. Raises AssertionError."""
        lines = self.command("verify", "--deep", "--engine", "local")
        assert any(line["kind"] == "partition_verification" for line in lines)

    def command(self, name: str, *arguments: str) -> list[dict[str, Any]]:
        """What a command of the program says about the archive. An archive that is not there yet is an empty list.

        Raises AssertionError if it ends with another exit code than 0 or 1.
        """
        service = json.loads(self.namespace.kubectl("get", "service", "s3", "--output=json"))["spec"]["clusterIP"]
        secret = json.loads(self.namespace.kubectl("get", "secret", "store-keys", "--output=json"))["data"]
        prefix = "TIERED_SIDECAR__STORE__S3__"
        environment = {
            f"{prefix}ENDPOINT_URL": f"http://{service}:7070",
            f"{prefix}REGION": "us-east-1",
            f"{prefix}ADDRESSING_STYLE": "path",
            f"{prefix}ACCESS_KEY_ID": _decoded(secret["access-key-id"]),
            f"{prefix}SECRET_ACCESS_KEY": _decoded(secret["secret-access-key"]),
        }
        done = subprocess.run(
            [sys.executable, "-m", "sidecar", "--json", "--quiet", name, "--archive", ARCHIVE, *arguments],
            env={**os.environ, **environment},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        assert done.returncode in {0, 1}, f"{name} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []

    def remove_volumes(self) -> None:
        """Not what is in them. The namespace is still there, and so are pods that use them: they go when those have ended."""
        selector = f"--selector=namespace={self.namespace.name}"
        self.node.api.kubectl("delete", "persistentvolume", selector, "--wait=false")


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
